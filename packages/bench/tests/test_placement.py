import sys

import pytest

from minivllm_bench.errors import InvalidSetting, MissingExtra
from minivllm_bench.machine import read_cpu
from minivllm_bench.placement import default_threads, resolve_device, resolve_dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_chosen_dtype_is_kept(dtype):
    assert resolve_dtype(dtype, "cpu") == dtype


def test_the_dtype_left_open_is_the_one_the_processor_multiplies():
    native = {"avx512_bf16", "amx_bf16", "bf16"} & read_cpu()[1]
    assert resolve_dtype("auto", "cpu") == ("bfloat16" if native else "float32")
    assert resolve_dtype("auto", "cuda") == "bfloat16"


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
