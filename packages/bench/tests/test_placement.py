import sys

import pytest

from minivllm_bench.engines.dummy_model import write_dummy_model
from minivllm_bench.errors import EngineFailed, InvalidSetting, MissingExtra
from minivllm_bench.model_configs import CONFIGS
from minivllm_bench.placement import default_threads, resolve_device, resolve_dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_chosen_dtype_is_kept_and_no_model_looked_for(dtype):
    assert resolve_dtype(dtype, "cpu", "no-such-model") == dtype


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("published", ["float32", "bfloat16", "float16"])
def test_a_dtype_left_open_is_the_engine_s_choice(published, key, tmp_path):
    placement = pytest.importorskip("minivllm_runtime.engine.placement")
    torch = pytest.importorskip("torch")
    config = {name: value for name, value in CONFIGS["qwen3-0.6b"].items() if name != "torch_dtype"}
    write_dummy_model({**config, key: published}, tmp_path)
    assert resolve_dtype("auto", "cuda", str(tmp_path), has_weights=False) == published
    hf_config = pytest.importorskip("minivllm_runtime.loader.hf_config")
    on_cpu = placement.resolve_dtype("auto", hf_config.read_hf_config(tmp_path), torch.device("cpu"))
    assert f"torch.{resolve_dtype('auto', 'cpu', str(tmp_path), has_weights=False)}" == str(on_cpu)


def test_a_model_that_the_engine_does_not_know_is_one_line(tmp_path):
    pytest.importorskip("minivllm_runtime")
    with pytest.raises(EngineFailed, match=r"^minivllm cannot load [^\n]+--dtype auto"):
        resolve_dtype("auto", "cpu", str(tmp_path))


def test_without_the_engine_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minivllm_runtime.engine", None)
    with pytest.raises(MissingExtra, match=r"minivllm-bench\[engine\], or name a dtype"):
        resolve_dtype("auto", "cpu", "smollm2")


def test_devices_are_those_that_exist():
    torch = pytest.importorskip("torch")
    assert resolve_device("cpu") == "cpu"
    assert default_threads() >= 1
    if torch.cuda.is_available():
        assert resolve_device("auto") == resolve_device("cuda") == "cuda"
    else:
        assert resolve_device("auto") == "cpu"
        with pytest.raises(InvalidSetting, match="no CUDA device"):
            resolve_device("cuda")


def test_without_pytorch_the_extras_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"minivllm-bench\[engine\]"):
        resolve_device("auto")
