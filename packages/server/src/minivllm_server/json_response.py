"""JSON as it goes over the wire: compact and ASCII only."""

import json
from typing import Any

from fastapi.responses import JSONResponse

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
"""Made once: `json.dumps` makes one for every call that wants other separators."""


def to_json(content: Any) -> bytes:
    """Returns `content` as compact JSON with every non-ASCII character escaped.

    U+2028 and U+2029 end a line for some clients, so an unescaped one would split a server-sent event.
    """
    return _ENCODER.encode(content).encode("ascii")


class AsciiJSONResponse(JSONResponse):
    """A JSON response with every non-ASCII character escaped."""

    def render(self, content: Any) -> bytes:
        """Returns the body."""
        return to_json(content)
