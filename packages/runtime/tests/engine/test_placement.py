import dataclasses

import pytest
import torch

from minivllm_runtime import InvalidParameter
from minivllm_runtime.engine.placement import resolve_device, resolve_dtype
from minivllm_runtime.model_config import ModelConfig

MODEL = ModelConfig(
    architecture="llama",
    vocab_size=8,
    hidden_size=8,
    intermediate_size=8,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=8,
)
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_the_cpu_can_always_be_chosen():
    assert resolve_device("cpu") == CPU


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_without_a_cuda_device_auto_is_the_cpu_and_cuda_is_refused():
    assert resolve_device("auto") == CPU
    with pytest.raises(InvalidParameter, match="no CUDA device"):
        resolve_device("cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_with_a_cuda_device_auto_takes_it():
    assert resolve_device("auto") == resolve_device("cuda") == CUDA


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_chosen_dtype_is_kept(dtype, device):
    assert resolve_dtype(dtype, MODEL, device) == getattr(torch, dtype)


@pytest.mark.parametrize("published", ["float32", "bfloat16", "float16"])
def test_a_gpu_takes_the_dtype_that_the_model_was_published_in(published):
    model = dataclasses.replace(MODEL, checkpoint_dtype=published)
    assert resolve_dtype("auto", model, CUDA) == getattr(torch, published)


@pytest.mark.parametrize("published", ["float32", "bfloat16", "float16"])
def test_a_cpu_takes_one_that_it_multiplies_whatever_was_published(published):
    model = dataclasses.replace(MODEL, checkpoint_dtype=published)
    assert resolve_dtype("auto", model, CPU) in {torch.float32, torch.bfloat16}
    assert resolve_dtype("auto", model, CPU) == resolve_dtype("auto", MODEL, CPU)
