"""A server of a taped model as a process of its own. Its argument: settings, as JSON.

It prints its URL when it is ready. The model takes as many steps as each line of the input says.
"""

import asyncio
import json
import sys
import threading

from minivllm_server.listener import bind, url_of
from minivllm_server.server import serve_engine
from minivllm_server.settings import ServerSettings

from .harness import tape_engine
from .tape_model import Pace


def obey(pace: Pace) -> None:
    """Lets the model go on as the input says."""
    for line in sys.stdin:
        pace.allow(float(line))


def main() -> None:
    """Serves until a signal comes."""
    settings = ServerSettings(**json.loads(sys.argv[1]))
    engine, model = tape_engine(settings, context=40_000)
    model.pace.hold()
    threading.Thread(target=obey, args=(model.pace,), daemon=True).start()
    with bind("127.0.0.1", 0) as listener:
        ready = lambda _server: print(url_of(listener), flush=True)  # noqa: E731
        asyncio.run(serve_engine(engine, listener, settings, on_ready=ready))


if __name__ == "__main__":
    main()
