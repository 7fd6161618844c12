from pathlib import Path

import huggingface_hub.constants
import pytest

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.hub import download


@pytest.fixture
def offline(monkeypatch, tmp_path) -> Path:
    """The hub client without network and with an empty cache, whose folder is returned."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("model", ["owner/model", "model", "owner/model-1.5B_v2"])
def test_an_id_that_cannot_be_reached_is_refused_in_one_line(offline, model):
    with pytest.raises(ModelLoadError, match="the hub could not provide it") as caught:
        download(model)
    assert "\n" not in str(caught.value)
    assert repr(model) in str(caught.value)


@pytest.mark.parametrize("model", ["", "a/b/c", "/abs", "../up", "a b", "owner/", "-x/y", "owner/model\n"])
def test_what_is_no_id_never_reaches_the_hub(model):
    with pytest.raises(ModelLoadError, match="no such file or folder"):
        download(model)


def test_a_model_in_the_cache_needs_no_network(offline):
    snapshot = offline / "models--owner--model" / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = offline / "models--owner--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123456789abcdef")
    assert download("owner/model") == snapshot
