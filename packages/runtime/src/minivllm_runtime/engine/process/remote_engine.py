"""A client's end of an engine process."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.connection import OnDeath, OnOutput
from minivllm_runtime.engine.process.engine_process import EngineProcess
from minivllm_runtime.engine.process.wire import (
    EngineDescription,
    FromEngine,
    ToEngine,
    decode_description,
    decode_output,
    decode_reason,
    encode,
)
from minivllm_runtime.errors import EngineDead
from minivllm_runtime.messages import AbortRequest, AddRequests, AskStats, Command, EngineStats
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer

_log = logging.getLogger(__name__)
_KINDS: Final = {AddRequests: ToEngine.ADD, AbortRequest: ToEngine.ABORT, AskStats: ToEngine.ASK}
_DESCRIPTION_TIMEOUT_MS = 30_000


class RemoteEngine:
    """An engine process seen from a client; see connection.Engine.

    Args:
        address: Of the engine.
        process: If it is ours to end.

    Attributes:
        address: As given; other clients may connect to it.

    Raises:
        EngineDead: nobody answers at the address.
    """

    def __init__(self, address: str, process: EngineProcess | None = None) -> None:
        description = _ask_description(address)
        self.address, self._process = address, process
        self._stats = description.stats
        self.tokenizer = Tokenizer.from_parts(description.tokenizer)
        self.model_config = description.model_config
        self.dtype_name, self.device_name = description.dtype_name, description.device_name
        self.kernels = description.kernels
        self.num_blocks, self.block_size = description.num_blocks, description.block_size
        self.max_model_len = description.max_model_len

    @classmethod
    def spawn(
        cls,
        config: EngineConfig,
        *,
        progress: Callable[[str, int, int], None] | None = None,
        on_model: Callable[[ModelConfig], object] | None = None,
    ) -> "RemoteEngine":
        """Start an engine process that ends with the connection; raises what `EngineProcess.spawn` raises."""
        process = EngineProcess.spawn(config, progress=progress, on_model=on_model)
        try:
            return cls(process.address, process)
        except BaseException:
            process.close()
            raise

    def stats(self) -> EngineStats:
        """Gauges and counters at the time of the description."""
        return self._stats

    def connect(self) -> "RemoteConnection":
        """A connection, not started."""
        return RemoteConnection(self.address, self._process)

    def close(self) -> None:
        """End the engine process if it is ours; `stop` of a connection does so, too."""
        if self._process is not None:
            self._process.close()


class RemoteConnection:
    """See EngineConnection."""

    def __init__(self, address: str, process: EngineProcess | None) -> None:
        self._address = address
        self._process = process
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def start(self, on_output: OnOutput, on_death: OnDeath) -> None:
        """Connect and introduce ourselves."""
        self._context = zmq.asyncio.Context()
        socket = self._socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        socket.connect(self._address)
        socket.send_multipart((ToEngine.HELLO.value, b""))
        self._tasks = (
            asyncio.create_task(_receive(socket, on_output, on_death)),
            asyncio.create_task(_watch(monitor, on_death)),
        )

    def send(self, command: Command) -> None:
        """Send a command."""
        assert self._socket is not None, "start comes first"
        self._socket.send_multipart((_KINDS[type(command)].value, encode(command)))

    async def stop(self) -> None:
        """Disconnect; ends the engine process if it is ours."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = ()
        if self._context is not None and self._socket is not None:
            self._socket.disable_monitor()
            self._context.destroy(linger=0)
            self._context = self._socket = None
        if self._process is not None:
            await asyncio.to_thread(self._process.close)


async def _receive(socket: zmq.asyncio.Socket, on_output: OnOutput, on_death: OnDeath) -> None:
    try:
        while True:
            kind, payload = await socket.recv_multipart()
            if kind == FromEngine.DEATH:
                on_death(decode_reason(payload))
            else:
                on_output(decode_output(payload))
    except Exception as error:  # a fault of ours: nothing would be delivered any more
        _log.exception("the engine's output cannot be taken in")
        on_death(f"{type(error).__name__}: {error}")


async def _watch(monitor: zmq.asyncio.Socket, on_death: OnDeath) -> None:
    """Wait for the end of the connection: the kernel closes it with the process, whatever ended that."""
    await recv_monitor_message(monitor)
    on_death("the engine process ended")


def _ask_description(address: str) -> EngineDescription:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        socket.send_multipart((ToEngine.DESCRIBE.value, b""))
        if not socket.poll(_DESCRIPTION_TIMEOUT_MS):
            raise EngineDead(f"no engine answers at {address}")
        _, payload = socket.recv_multipart()
        return decode_description(payload)
