"""What pydantic found wrong, as one line for a person."""

from collections.abc import Mapping, Sequence
from typing import Any

MAX_QUOTED_CHARS = 64
"""A value that was sent is quoted up to this length: a megabyte of it must not come back."""


def describe_violation(violation: Mapping[str, Any], location: Sequence[str | int]) -> str:
    """Returns one line: which field, what it should be, what it was.

    Args:
        violation: An element of `ValidationError.errors()`.
        location: Path to the value: names of fields and indices of lists.
    """
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    message = str(violation["msg"]).removeprefix("Value error, ").partition(", unable to parse")[0]
    text = f"{path}: {message}" if path else message
    if violation["type"] == "missing" or _speaks_for_itself(violation):
        return text
    return f"{text}, got {_quote(violation['input'])}"


def _speaks_for_itself(violation: Mapping[str, Any]) -> bool:
    """Whether a check of our own refused a container: its message names what in it is wrong."""
    return violation["type"] == "value_error" and isinstance(violation["input"], list | tuple | dict)


def _quote(value: object) -> str:
    if isinstance(value, list | tuple | dict | bytes):
        return f"{type(value).__name__} of length {len(value)}"
    text = repr(value[:MAX_QUOTED_CHARS] if isinstance(value, str) else value)
    return text if len(text) <= MAX_QUOTED_CHARS + 2 else text[:MAX_QUOTED_CHARS] + "…"
