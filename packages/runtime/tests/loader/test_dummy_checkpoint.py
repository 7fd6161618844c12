import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.loader.dummy_checkpoint import DummyCheckpoint


@pytest.mark.parametrize("name", ["missing", "file"])
def test_it_needs_a_folder(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidParameter, match=f"load_format dummy needs a local folder.*{name}") as caught:
        DummyCheckpoint(tmp_path / name)
    assert caught.value.param == "load_format"
