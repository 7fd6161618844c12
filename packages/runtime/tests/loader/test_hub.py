import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.hub import cached, download


@pytest.fixture
def offline(monkeypatch, tmp_path) -> Path:
    """The hub client without network and with an empty cache, whose folder is returned."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("model", ["owner/model", "model", "owner/model-1.5B_v2"])
def test_an_id_that_cannot_be_reached_is_refused_in_one_line(offline, model):
    with pytest.raises(ModelLoadError) as caught:
        download(model)
    assert str(caught.value) == (
        f"no model {model!r}: it is not the bundled one (smollm2), nor a folder or .gguf file; "
        "the hub is not asked (HF_HUB_OFFLINE is set) and its local cache lacks it: check the name"
    )


@pytest.fixture
def hub_at(monkeypatch, offline) -> Callable[[int], None]:
    """Lets the hub client ask a port of this machine."""

    def ask(port: int) -> None:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", "*")

    return ask


def test_a_hub_that_cannot_be_reached_is_told_from_an_offline_client(hub_at):
    with socket.socket() as bound:  # not listening: connections to it are refused
        bound.bind(("127.0.0.1", 0))
        hub_at(bound.getsockname()[1])
        with pytest.raises(
            ModelLoadError, match=r"could not be asked \(.+\) and its local cache lacks it"
        ) as caught:
            download("owner/model")
    assert "\n" not in str(caught.value)


@pytest.fixture
def hub_that_answers() -> Iterator[Callable[[int, str], int]]:
    """Starts a hub that gives every question the same status and error code; returns its port."""
    with ExitStack() as stack:

        def start(status: int, code: str) -> int:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.send_response(status)
                    self.send_header("X-Error-Code", code)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

                def log_message(self, *_: object) -> None:
                    pass

            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server.server_port

        yield start


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (
            404,
            "RepoNotFound",
            "the hub has no such model, or a private one: check the name, or run `hf auth login`",
        ),
        (401, "RepoNotFound", "the hub has no such model, or a private one"),
        (403, "GatedRepo", "the hub wants consent to its terms"),
        (418, "", "the hub could not be asked .*418"),
    ],
)
def test_what_the_hub_refuses_comes_with_advice(hub_at, hub_that_answers, status, code, advice):
    hub_at(hub_that_answers(status, code))
    with pytest.raises(ModelLoadError, match=advice) as caught:
        download("owner/model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["", "a/b/c", "/abs", "../up", "a b", "owner/", "-x/y", "owner/model\n"])
def test_what_is_no_id_never_reaches_the_hub(model):
    with pytest.raises(ModelLoadError, match="no such file or folder"):
        download(model)


@pytest.fixture
def cached_model(offline) -> Path:
    """The folder of a model that was downloaded before, as far as its config."""
    snapshot = offline / "models--owner--model" / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = offline / "models--owner--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123456789abcdef")
    return snapshot


def test_a_model_in_the_cache_needs_no_network(cached_model):
    assert download("owner/model") == cached_model


def test_the_cache_is_searched_without_asking_the_hub(cached_model, hub_at):
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub_at(hub.getsockname()[1])
        assert cached("owner/model") == cached_model
        assert cached("owner/other") is None
        hub.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody came
            hub.accept()
    with pytest.raises(ModelLoadError, match="no such file or folder"):
        cached("a/b/c")
