"""A server of a taped model as a process of its own. Its argument: settings, as JSON.

It prints its URL when it is ready. Then it reads lines: so many steps more, "fail" in the next one, "break" in all.
"""

import asyncio
import json
import socket
import sys
import tempfile
import threading

import zmq

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.engine.builder import BuiltEngine
from minivllm_runtime.engine.process.engine_server import EngineServer
from minivllm_runtime.engine.process.wire import EngineDescription
from minivllm_server.api_processes import ApiProcesses, Assignment, Shared
from minivllm_server.ledger import make_ledger
from minivllm_server.listener import bind, url_of
from minivllm_server.logs import configure_logging
from minivllm_server.server import serve_engine
from minivllm_server.settings import ServerSettings
from minivllm_server.shared_ledger import LedgerServer

from .harness import assemble_tape
from .tape_model import TapeModel


def obey(model: TapeModel) -> None:
    """Does what the input says."""
    for line in sys.stdin:
        match line.strip():
            case "fail":
                model.faults.append(RuntimeError("broken once"))
            case "break":
                model.broken = RuntimeError("broken for good")
            case num_steps:
                model.pace.allow(float(num_steps))


def serve_to_clients(built: BuiltEngine, address: str) -> None:
    """What an engine process does, in a thread that ends with this process."""
    description = EngineDescription(
        built.tokenizer.parts(),
        built.model_config,
        built.dtype_name,
        built.device_name,
        built.kernels,
        built.num_blocks,
        built.block_size,
        built.max_model_len,
        built.stats(),
    )
    router = zmq.Context.instance().socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.bind(address)
    threading.Thread(target=EngineServer(built.core, description, router).serve, daemon=True).start()


def serve_in_processes(built: BuiltEngine, listener: socket.socket, settings: ServerSettings) -> None:
    """As `minivllm serve --api-processes`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LedgerServer(make_ledger(settings), f"{folder}/ledger") as ledger,
    ):
        serve_to_clients(built, address := f"ipc://{folder}/engine")
        shared = Shared(folder, ledger.address)
        assignment = Assignment(settings.model_dump(mode="json"), address, listener.fileno(), shared)
        stop_timeout_s = settings.drain_timeout_s + 30
        processes = ApiProcesses(assignment, settings.api_processes, stop_timeout_s=stop_timeout_s)
        processes.serve(lambda: say_where(listener))


def say_where(listener: socket.socket) -> None:
    """Tells who started us that we are ready."""
    print(url_of(listener), flush=True)


def main() -> None:
    """Serves until a signal comes."""
    settings = ServerSettings(**json.loads(sys.argv[1]))
    configure_logging(settings.log_format, settings.log_level)
    built, model = assemble_tape(settings, context=40_000)
    model.pace.hold()
    threading.Thread(target=obey, args=(model,), daemon=True).start()
    with bind("127.0.0.1", 0) as listener:
        if settings.api_processes > 1:
            serve_in_processes(built, listener, settings)
        else:
            engine = AsyncEngine(built)
            asyncio.run(
                serve_engine(engine, listener, settings, on_ready=lambda _server: say_where(listener))
            )


if __name__ == "__main__":
    main()
