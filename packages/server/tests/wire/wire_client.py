"""Readers of what the server writes, strict about every byte."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Self

import httpx

PATIENCE_S = 30
"""More than anything takes that a test waits for, on the slowest machine."""

ENVELOPE = {"message", "type", "param", "code"}


def expect_error(answer: httpx.Response, status: int) -> dict:
    """The error of an answer with this status, in OpenAI's envelope."""
    assert answer.status_code == status, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"].startswith("application/json")
    return unwrap_error(answer.json())


def unwrap_error(body: dict) -> dict:
    """What is inside the envelope."""
    assert set(body) == {"error"}
    assert set(body["error"]) == ENVELOPE
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    assert isinstance(body["error"]["type"], str)
    return body["error"]


class Stream:
    """A stream of events; `with` opens it, iterating gives its chunks up to [DONE] or its end.

    Attributes:
        chunks: Read so far.
        is_done: Whether [DONE] was read, and nothing after it.
    """

    def __init__(self, client: httpx.Client, path: str, body: dict) -> None:
        self._context = client.stream("POST", path, json=body)
        self._stack = contextlib.ExitStack()
        self.chunks: list[dict] = []
        self.is_done = False

    def __enter__(self) -> Self:
        self.answer = self._stack.enter_context(self._context)
        assert self.answer.status_code == 200, self.answer.read()
        assert self.answer.headers["content-type"].startswith("text/event-stream")
        self._events = self._read_events()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[dict]:
        for event in self._events:
            assert not self.is_done, f"{event!r} follows [DONE]"
            if event == b"[DONE]":
                self.is_done = True
            else:
                self.chunks.append(json.loads(event))
                yield self.chunks[-1]

    def read_all(self) -> Self:
        """Open it, read to the end, close it."""
        with self:
            for _ in self:
                pass
        return self

    def read_until(self, text: str, *, index: int = 0) -> None:
        """Read until a choice has this much text, and check that it is this text."""
        while self.text(index) != text:
            assert next(iter(self), None) is not None, f"the stream ended with {self.text(index)!r}"
            assert text.startswith(self.text(index)), self.text(index)

    def text(self, index: int = 0) -> str:
        """The deltas of a choice, joined."""
        return "".join(_text_of(choice) for choice in self.choices(index))

    def finish_reasons(self, index: int = 0) -> list[str | None]:
        """Of every chunk of a choice."""
        return [choice["finish_reason"] for choice in self.choices(index)]

    def choices(self, index: int) -> list[dict]:
        """The parts of one choice."""
        return [
            choice for chunk in self.chunks for choice in chunk.get("choices", ()) if choice["index"] == index
        ]

    def _read_events(self) -> Iterator[bytes]:
        pending = b""
        for data in self.answer.iter_raw():
            *events, pending = (pending + data).split(b"\n\n")
            for event in events:
                assert event.isascii(), event
                assert event.startswith(b"data: "), event
                assert len(event.splitlines()) == 1, event
                yield event.removeprefix(b"data: ")
        assert pending == b"", pending


def _text_of(choice: dict) -> str:
    return choice["text"] if "text" in choice else choice["delta"].get("content") or ""


class InBackground(threading.Thread):
    """A whole answer that comes while the test does something else."""

    def __init__(self, post: Callable[[], httpx.Response]) -> None:
        super().__init__()
        self._post = post
        self.start()

    def run(self) -> None:
        self.answer = self._post()

    def join_answer(self) -> httpx.Response:
        """The answer, once it is there."""
        self.join(PATIENCE_S)
        assert not self.is_alive(), "no answer came"
        return self.answer


class RawConnection:
    """A socket with one request on it, closed without a word when it is left."""

    def __init__(self, port: int, request: bytes, *, receive_buffer_bytes: int | None = None) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(PATIENCE_S)
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """More, behind what was sent."""
        self._socket.sendall(data)

    def read_some(self) -> bytes:
        """Whatever comes first; nothing once the server hung up."""
        return self._socket.recv(65536)

    def read_until_closed(self) -> bytes:
        """Everything until the server hangs up."""
        return b"".join(iter(self.read_some, b""))

    def read_answer(self) -> tuple[int, bytes]:
        """Status and body of a whole answer."""
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        return answer.status, answer.read()


def raw_request(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A request as bytes; `headers` replace what frames the body."""
    framing = headers or {"Content-Length": str(len(body))}
    fields = {"Host": "x", "Content-Type": "application/json", **framing}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
