"""One server per test module, at rest after every test."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from .harness import TapeServer


@pytest.fixture(scope="module")
def launch() -> Iterator[Callable[..., TapeServer]]:
    """Starts servers that end with the module."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(TapeServer(**options))


@pytest.fixture(scope="module")
def module_server(launch, request) -> TapeServer:
    """The server of the module's `SERVER` options."""
    return launch(**getattr(request.module, "SERVER", {}))


@pytest.fixture
def server(module_server) -> Iterator[TapeServer]:
    """The module's server; whatever a test did, it comes to rest."""
    yield module_server
    module_server.model.pace.release()
    assert module_server.comes_to_rest()
