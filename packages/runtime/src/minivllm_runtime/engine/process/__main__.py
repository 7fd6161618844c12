"""The program of an engine process: its configuration comes in as one line of JSON, then it serves until input ends.

Standard output belongs to the parent (see `startup`); whatever else is printed goes to standard error. When the
parent closes standard input, or dies and leaves it closed, the process ends at once: also while it imports the
tensor library, which takes seconds.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.process.log_relay import relay_logs
from minivllm_runtime.engine.process.startup import (
    Announcement,
    Loading,
    ModelRefused,
    Opened,
    Ready,
    SettingRefused,
)
from minivllm_runtime.errors import InvalidParameter, ModelLoadError

if TYPE_CHECKING:
    from minivllm_runtime.engine.builder import BuiltEngine
    from minivllm_runtime.engine.process.wire import EngineDescription

_LAST_WORDS_TIMEOUT_MS = 1000
_MOST_UNREAD_MESSAGES = 10_000


def main() -> int:
    """Build and serve; the exit code is 0 only if the parent ended us."""
    parent = _take_standard_output()
    line = sys.stdin.buffer.readline()
    if not line:  # the parent is gone already
        return 1
    config = msgspec.json.decode(line, type=EngineConfig)
    relay_logs(lambda logged: _announce(parent, logged))
    # Created when it is needed: who kills us while we load leaves nothing behind.
    folder = Path(tempfile.gettempdir(), f"minivllm-{secrets.token_hex(8)}")
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    try:
        from minivllm_runtime.engine.builder import build_engine

        built = build_engine(
            config,
            progress=lambda *stage: _announce(parent, Loading(*stage)),
            on_model=lambda model_config: _announce(parent, Opened(model_config)),
        )
        folder.mkdir(mode=0o700)
        return _serve(built, f"ipc://{folder}/engine", parent)
    except InvalidParameter as error:
        _announce(parent, SettingRefused(error.param, str(error)))
    except ModelLoadError as error:
        _announce(parent, ModelRefused(str(error)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1


def _serve(built: BuiltEngine, address: str, parent: BinaryIO) -> int:
    import zmq

    from minivllm_runtime.engine.process.engine_server import EngineServer

    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.SNDHWM, _MOST_UNREAD_MESSAGES)
        socket.setsockopt(zmq.LINGER, _LAST_WORDS_TIMEOUT_MS)
        socket.bind(address)
        _announce(parent, Ready(address))
        EngineServer(built.core, _describe(built), socket).serve()
    return 1


def _describe(built: BuiltEngine) -> EngineDescription:
    from minivllm_runtime.engine.process.wire import EngineDescription

    return EngineDescription(
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


def _take_standard_output() -> BinaryIO:
    """The real standard output; libraries that print find standard error in its place."""
    parent = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return parent


def _announce(parent: BinaryIO, announcement: Announcement) -> None:
    parent.write(msgspec.json.encode(announcement) + b"\n")
    parent.flush()


def _end_with_parent(folder: Path) -> None:
    # Not through sys.stdin, which the interpreter closes when it ends: it aborts if a thread is reading then.
    while os.read(0, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
