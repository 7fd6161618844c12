import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import rotate_and_cache as reference
from minivllm_kernels.rotate_and_cache import rotate_and_cache

# Half precision is rounded once, by Triton's interpreter to bfloat16 by cutting off.
TOLERANCES = [(torch.float32, 1e-6), (torch.float16, 2**-10), (torch.bfloat16, 2**-7)]


def step(device, num_heads, num_kv_heads, head_dim, dtype, block_size=5):
    """Heads of five tokens and everything else the op takes; two tokens have one slot's neighbours."""
    heads = torch.randn((5, num_heads + 2 * num_kv_heads, head_dim), device=device).to(dtype)
    angles = torch.rand((32, head_dim // 2), device=device) * 6
    cos_sin_cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    positions = torch.tensor([31, 0, 7, 7, 2], device=device)
    slots = torch.tensor([0, 29, 17, 18, 3], device=device)
    caches = torch.full((2, 6, num_kv_heads, block_size, head_dim), float("nan"), device=device).to(dtype)
    return heads, positions, cos_sin_cache, slots, caches


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"), [(9, 3, 64), (5, 1, 80), (2, 2, 96), (1, 1, 2), (32, 4, 64)]
)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin(device, num_heads, num_kv_heads, head_dim, dtype, tolerance):
    heads, positions, cos_sin_cache, slots, caches = step(device, num_heads, num_kv_heads, head_dim, dtype)
    twin_heads, twin_caches = heads.clone(), caches.clone()
    rotate_and_cache(heads, positions, cos_sin_cache, slots, *caches)
    reference.rotate_and_cache(twin_heads, positions, cos_sin_cache, slots, *twin_caches)
    torch.testing.assert_close(heads, twin_heads, atol=1e-6, rtol=tolerance)
    torch.testing.assert_close(caches, twin_caches, atol=1e-6, rtol=tolerance, equal_nan=True)


@pytest.mark.parametrize("op", [rotate_and_cache, reference.rotate_and_cache])
def test_refuses_heads_without_queries(device, op):
    heads, positions, cos_sin_cache, slots, caches = step(device, 2, 2, 8, torch.float32)
    with pytest.raises(
        InvalidTensor, match="heads has 4 heads, expected a multiple of 2 KV heads above twice"
    ):
        op(heads[:, :4], positions, cos_sin_cache, slots, *caches)
