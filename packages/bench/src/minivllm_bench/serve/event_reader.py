"""Server-sent events, as the OpenAI API uses them: each one line of `data:`.

Source: WHATWG HTML, "Server-sent events". Events of several data lines are taken for several events; no server of
this API sends them.
"""

DONE = b"[DONE]"
"""The payload that ends a stream."""


class EventReader:
    """Cuts a body that arrives in pieces into the payloads of its events."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that `data` completes, in order."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
