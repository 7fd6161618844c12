import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.reference import rotate_and_cache as reference
from minivllm_kernels.rms_norm import rms_norm
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
    ("num_heads", "num_kv_heads", "head_dim"),
    [(9, 3, 64), (5, 1, 80), (2, 2, 96), (1, 1, 2), (32, 4, 64), (6, 2, 128)],
)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin(device, head_norms, num_heads, num_kv_heads, head_dim, dtype, tolerance):
    heads, positions, cos_sin_cache, slots, caches = step(device, num_heads, num_kv_heads, head_dim, dtype)
    twin_heads, twin_caches = heads.clone(), caches.clone()
    norms = head_norms(head_dim, dtype)
    rotate_and_cache(heads, positions, cos_sin_cache, slots, *caches, norms)
    reference.rotate_and_cache(twin_heads, positions, cos_sin_cache, slots, *twin_caches, norms)
    # The rotation may cancel all but what a norm rounded.
    atol = 1e-6 if norms is None else 8 * tolerance
    torch.testing.assert_close(heads, twin_heads, atol=atol, rtol=tolerance)
    torch.testing.assert_close(caches, twin_caches, atol=atol, rtol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_round_where_rms_norm_does(device, dtype):
    heads, positions, cos_sin_cache, slots, caches = step(device, 6, 2, 128, dtype)
    norms = HeadNorms(*torch.randn((2, 128), device=device).to(dtype).float(), eps=1e-6)
    normalized, plain_caches = heads.clone(), caches.clone()
    for part, weight in ((normalized[:, :6], norms.query), (normalized[:, 6:8], norms.key)):
        part.copy_(rms_norm(part, weight.to(dtype), norms.eps))
    rotate_and_cache(normalized, positions, cos_sin_cache, slots, *plain_caches)
    rotate_and_cache(heads, positions, cos_sin_cache, slots, *caches, norms)
    # Sums in another order change a rounding now and then.
    assert (heads[:, :6] != normalized[:, :6]).float().mean() < 0.01
    written = ~plain_caches.isnan()
    assert (caches != plain_caches)[written].float().mean() < 0.01


@pytest.mark.parametrize("op", [rotate_and_cache, reference.rotate_and_cache])
def test_refuses_heads_without_queries(device, op):
    heads, positions, cos_sin_cache, slots, caches = step(device, 2, 2, 8, torch.float32)
    with pytest.raises(
        InvalidTensor, match="heads has 4 heads, expected a multiple of 2 KV heads above twice"
    ):
        op(heads[:, :4], positions, cos_sin_cache, slots, *caches)
