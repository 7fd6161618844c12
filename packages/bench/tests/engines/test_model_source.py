import pytest

from minivllm_bench.engines.model_source import ModelSource, find_model
from minivllm_bench.errors import EngineFailed


def test_the_bundled_model_is_a_gguf_file_of_an_installed_package():
    source = find_model("smollm2")
    assert source.gguf_file.endswith(".gguf")


def test_a_gguf_file_is_a_folder_and_a_name(tmp_path):
    (tmp_path / "model.gguf").touch()
    assert find_model(str(tmp_path / "model.gguf")) == ModelSource(str(tmp_path), "model.gguf")


def test_folders_and_hub_ids_are_taken_as_they_are(tmp_path):
    assert find_model(str(tmp_path)) == ModelSource(str(tmp_path))
    assert find_model("owner/name") == ModelSource("owner/name")


@pytest.mark.parametrize("name", ["missing.gguf", "/no/such/folder", "./no-such-folder"])
def test_what_does_not_exist_is_named(name):
    with pytest.raises(EngineFailed, match=name):
        find_model(name)
