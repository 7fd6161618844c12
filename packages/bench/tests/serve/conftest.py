import threading

import pytest

from .scripted_server import ScriptedServer


@pytest.fixture
def scripted():
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
