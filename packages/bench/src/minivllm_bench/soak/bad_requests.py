"""Requests that a server must refuse, each with the status that is right."""

import json
from dataclasses import dataclass
from typing import Final

from minivllm_bench.serve.client import COMPLETIONS

_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_WRONG_METHOD: Final = 405


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request and its right refusal.

    Attributes:
        name: In reports.
        status: That the server must answer with.
        method, path, body: The request.
    """

    name: str
    status: int
    method: str
    path: str
    body: bytes


def _completion(name: str, status: int = _BAD_REQUEST, **fields: object) -> BadRequest:
    body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 4, **fields}).encode()
    return BadRequest(name, status, "POST", COMPLETIONS, body)


def _raw(name: str, body: bytes) -> BadRequest:
    return BadRequest(name, _BAD_REQUEST, "POST", COMPLETIONS, body)


BAD_REQUESTS: Final = (
    _raw("cut JSON", b'{"prompt": "a", '),
    _raw("a list", b"[]"),
    _raw("no body", b""),
    _raw("no UTF-8", b'{"prompt": "\xff\xfe"}'),
    _raw("a lone surrogate", b'{"prompt": "\\ud800"}'),
    _raw("NaN", b'{"prompt": "a", "temperature": NaN}'),
    _raw("no prompt", b'{"max_tokens": 4}'),
    _completion("a prompt that is a number", prompt=7),
    _completion("a negative id", prompt=[-1]),
    _completion("an id past every vocabulary", prompt=[2**40]),
    _completion("a negative max_tokens", max_tokens=-1),
    _completion("a max_tokens past every context", max_tokens=2**40),
    _completion("a temperature of 3", temperature=3),
    _completion("a million choices", n=1_000_000),
    _completion("stream_options without stream", stream_options={"include_usage": True}),
    _completion("another model", _NOT_FOUND, model="no-such-model"),
    BadRequest("an unknown route", _NOT_FOUND, "GET", "/v1/nope", b""),
    BadRequest("a wrong method", _WRONG_METHOD, "GET", COMPLETIONS, b""),
)
"""Each is refused before anything is queued."""
