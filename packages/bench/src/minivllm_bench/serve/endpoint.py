"""Where a server listens, and requests to it as bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self
from urllib.parse import urlsplit

from minivllm_bench.errors import InvalidSetting

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server of the OpenAI API.

    Attributes:
        host, port: Where it listens.
        tls: Whether it is reached by https.
        base_path: What comes before `/v1` and `/health`; without a slash at its end.
        api_key: Sent with every request; None: none.
    """

    host: str
    port: int
    tls: bool = False
    base_path: str = ""
    api_key: str | None = None

    @classmethod
    def parse(cls, url: str, api_key: str | None = None) -> Self:
        """The endpoint of a URL such as `http://127.0.0.1:8000`; a `/v1` at its end is left out.

        Raises:
            InvalidSetting: it is no http(s) URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidSetting(f"{url} is not a URL: {error}") from error
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
            raise InvalidSetting(f"{url} is not the URL of a server; one looks like http://127.0.0.1:8000")
        base_path = parts.path.rstrip("/").removesuffix("/v1")
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or _DEFAULT_PORTS[parts.scheme], tls, base_path, api_key)

    @property
    def name(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = _NO_HEADERS
    ) -> bytes:
        """A whole HTTP/1.1 request for one use of a connection.

        Args:
            method: Such as "POST".
            path: Begins with a slash, `base_path` not included.
            body: JSON.
            headers: Beside those that every request has.
        """
        fields = {"Host": self.name, "Connection": "close", "Content-Length": str(len(body)), **headers}
        if body:
            fields["Content-Type"] = "application/json"
        if self.api_key is not None:
            fields["Authorization"] = f"Bearer {self.api_key}"
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {self.base_path}{path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body
