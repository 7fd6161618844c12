import threading

import pytest

from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.soak.visitor import Visitor

from .faulty_server import FaultyServer


@pytest.fixture
def server():
    with FaultyServer() as faulty:
        thread = threading.Thread(target=faulty.serve_forever, args=(0.02,))
        thread.start()
        yield faulty
        faulty.shutdown()
        thread.join()


@pytest.fixture
def visitor(server):
    return Visitor(Endpoint.parse(server.url), "m", timeout_s=30)
