"""API keys: how they are written down, and whose a request is."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from minivllm_runtime.errors import InvalidParameter

_KEY: Final = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_.-]+):(?P<named>[\x21-\x7e]+)|(?P<bare>[\x21-\x39\x3b-\x7e]+))"
)
"""A bare secret has no colon: what is before one is a name."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of one key; None is no limit.

    Attributes:
        requests_per_minute: POST requests.
        tokens_per_minute: Prompt and generated tokens together.
        max_concurrent_requests: POST requests handled at the same time.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrent_requests: int | None = None

    @property
    def has_any(self) -> bool:
        """Whether anything is limited."""
        return self != KeyLimits()


_LIMITS: Final = tuple(field.name for field in fields(KeyLimits))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that opens the server. Of the secret only a digest is kept.

    Attributes:
        name: For logs and limits; says nothing of the secret.
        digest: SHA-256 of the secret.
        limits: What its requests may use.
    """

    name: str
    digest: bytes
    limits: KeyLimits


class KeyRing:
    """All keys of a server.

    Args:
        keys: At least one, with different names and secrets.

    Raises:
        InvalidParameter: Two keys are equal, or have the same name.
    """

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        names = [key.name for key in keys]
        for name in names:
            if names.count(name) > 1:
                raise InvalidParameter("api_key", f"two API keys are called {name!r}")
        if len({key.digest for key in keys}) < len(keys):
            raise InvalidParameter("api_key", "two API keys are equal")
        self.keys = tuple(keys)

    def find(self, secret: bytes) -> ApiKey | None:
        """Returns the key with this secret. The time it takes tells nothing about the secrets."""
        digest = hashlib.sha256(secret).digest()
        found = None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def parse_key(text: str, place: str, limits: KeyLimits) -> ApiKey:
    """Returns the key that `name:secret` or a bare secret stands for.

    Args:
        text: One of both.
        place: Where the key was given, such as `key3`; the name of one that has none.
        limits: Of the key.

    Raises:
        InvalidParameter: It is neither. The message does not quote it.
    """
    match = _KEY.fullmatch(text)
    if match is None:
        raise InvalidParameter(
            "api_key",
            f"API key {place!r} is neither name:key nor a key without a colon, of printable ASCII characters",
        )
    secret = match["named"] or match["bare"]
    return ApiKey(match["name"] or place, hashlib.sha256(secret.encode()).digest(), limits)


def read_key_file(path: Path, limits: KeyLimits) -> tuple[ApiKey, ...]:
    """Reads a file of keys: a line each, `name:secret`, then limits of its own such as `tokens_per_minute=1000`.

    A bare secret is called `line<number>`. Empty lines and those that begin with a `#` are ignored, indented or not.

    Args:
        path: Of the file.
        limits: Of keys that have none of their own.

    Raises:
        InvalidParameter: The file cannot be read, holds no key, or a line of it is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidParameter("api_key_file", f"cannot read the API keys in {path}: {reason}") from error
    keys = tuple(
        _parse_line(line.split(), number, limits)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    )
    if not keys:
        raise InvalidParameter("api_key_file", f"{path} holds no API key")
    return keys


def _parse_line(words: Sequence[str], number: int, limits: KeyLimits) -> ApiKey:
    key, *own = words
    return parse_key(key, f"line{number}", _with_own(own, number, limits))


def _with_own(assignments: Iterable[str], line: int, limits: KeyLimits) -> KeyLimits:
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in _LIMITS or not value.isdecimal() or int(value) < 1:
            raise InvalidParameter(
                "api_key_file",
                f"line {line} of the API keys: {assignment[:40]!r} is none of "
                f"{', '.join(f'{limit}=N' for limit in _LIMITS)} with N at least 1",
            )
        limits = replace(limits, **{name: int(value)})
    return limits
