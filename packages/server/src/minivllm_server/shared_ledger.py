"""One ledger for several HTTP processes: the parent keeps it, they ask over a Unix socket, a JSON object per line.

What a process had open when it ended is closed for it.
"""

import asyncio
import itertools
import socket
import threading
from collections import Counter
from types import TracebackType
from typing import Final, Self

import msgspec

from minivllm_server.ledger import LocalLedger
from minivllm_server.rate_limit import Refusal

_ENDED: Final = "the process that counts what API keys use has ended"


class _Open(msgspec.Struct, frozen=True, tag=True):
    number: int
    key_name: str


class _Close(msgspec.Struct, frozen=True, tag=True):
    key_name: str


class _Charge(msgspec.Struct, frozen=True, tag=True):
    key_name: str
    num_tokens: int


class _Answer(msgspec.Struct, frozen=True):
    """To the `_Open` of that number."""

    number: int
    refusal: Refusal | None


_Message = _Open | _Close | _Charge


class LedgerServer:
    """Answers for a ledger while it is entered, in a thread.

    Args:
        ledger: Used by nobody else meanwhile.
        address: Path of the socket, which is created.

    Attributes:
        address: The same.
    """

    def __init__(self, ledger: LocalLedger, address: str) -> None:
        self._ledger = ledger
        self.address = address
        self._has_started = threading.Event()

    def __enter__(self) -> Self:
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(self.address)
        except OSError:
            listener.close()
            raise
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener)), daemon=True)
        self._thread.start()
        self._has_started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _serve(self, listener: socket.socket) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_unix_server(self._serve_process, sock=listener)
        self._has_started.set()
        await self._end.wait()
        server.close()

    async def _serve_process(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        num_open: Counter[str] = Counter()
        try:
            async for line in reader:
                match msgspec.json.decode(line, type=_Message):
                    case _Open(number, key_name):
                        refusal = await self._ledger.open_request(key_name)
                        num_open[key_name] += refusal is None
                        writer.write(msgspec.json.encode(_Answer(number, refusal)) + b"\n")
                    case _Close(key_name):
                        self._ledger.close_request(key_name)
                        num_open[key_name] -= 1
                    case _Charge(key_name, num_tokens):
                        self._ledger.charge_tokens(key_name, num_tokens)
        except ConnectionError:  # the process was killed
            pass
        finally:
            for key_name in num_open.elements():
                self._ledger.close_request(key_name)
            writer.close()


class LedgerClient:
    """The ledger of a `LedgerServer`, asked from one event loop. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[str, asyncio.Future[Refusal | None]]] = {}
        self._charges: Counter[str] = Counter()
        self._reading = asyncio.create_task(self._read_answers(reader))

    @classmethod
    async def connect(cls, address: str) -> Self:
        """Returns a client of the server with this socket."""
        return cls(*await asyncio.open_unix_connection(address))

    async def open_request(self, key_name: str) -> Refusal | None:
        """See `Ledger`."""
        if self._reading.done():
            raise ConnectionError(_ENDED)
        number = next(self._numbers)
        answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (key_name, answer)
        self._send(_Open(number, key_name))
        return await answer

    def close_request(self, key_name: str) -> None:
        """See `Ledger`."""
        self._send(_Close(key_name))

    def charge_tokens(self, key_name: str, num_tokens: int) -> None:
        """See `Ledger`. What the streams of one step use is sent together."""
        if not self._charges:
            asyncio.get_running_loop().call_soon(self._send_charges)
        self._charges[key_name] += num_tokens

    async def aclose(self) -> None:
        """Disconnects."""
        self._send_charges()
        self._writer.close()
        await self._reading

    def _send_charges(self) -> None:
        for key_name, num_tokens in self._charges.items():
            self._send(_Charge(key_name, num_tokens))
        self._charges.clear()

    def _send(self, message: _Message) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")

    async def _read_answers(self, reader: asyncio.StreamReader) -> None:
        try:
            async for line in reader:
                answer = msgspec.json.decode(line, type=_Answer)
                key_name, waiting = self._waiting.pop(answer.number)
                if not waiting.done():
                    waiting.set_result(answer.refusal)
                elif answer.refusal is None:  # whoever asked was cancelled
                    self.close_request(key_name)
        except ConnectionError:
            pass
        finally:
            for _, waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError(_ENDED))
