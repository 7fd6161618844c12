import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import reshape_and_cache as reference
from minivllm_kernels.reshape_and_cache import reshape_and_cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("num_heads", "head_dim", "block_size"), [(3, 64, 16), (1, 80, 5), (2, 96, 1)])
def test_equals_the_twin_bit_for_bit(device, dtype, num_heads, head_dim, block_size):
    num_blocks, num_tokens = 12, 11
    key, value = torch.randn((2, num_tokens, num_heads, head_dim), device=device).to(dtype)
    caches = torch.randn((2, num_blocks, num_heads, block_size, head_dim), device=device).to(dtype)
    expected = caches.clone()
    slots = torch.randperm(num_blocks * block_size, device=device)[:num_tokens]
    reshape_and_cache(key, value, caches[0], caches[1], slots)
    reference.reshape_and_cache(key, value, expected[0], expected[1], slots)
    assert torch.equal(caches, expected)


def test_reads_views_of_a_fused_projection(device):
    fused = torch.randn((5, 7, 16), device=device)
    caches = torch.zeros((2, 4, 2, 4, 16), device=device)
    expected = caches.clone()
    slots = torch.tensor([3, 0, 15, 8, 7], device=device)
    reshape_and_cache(fused[:, 3:5], fused[:, 5:], caches[0], caches[1], slots)
    reference.reshape_and_cache(fused[:, 3:5], fused[:, 5:], expected[0], expected[1], slots)
    assert torch.equal(caches, expected)


def test_no_tokens_change_nothing(device):
    caches = torch.zeros((2, 4, 2, 4, 16), device=device)
    nothing = torch.empty((0, 2, 16), device=device)
    reshape_and_cache(
        nothing, nothing, caches[0], caches[1], torch.empty(0, dtype=torch.int64, device=device)
    )
    assert not caches.any()


def test_refuses_slots_of_32_bits(device):
    caches = torch.zeros((2, 4, 2, 4, 16), device=device)
    tokens = torch.zeros((1, 2, 16), device=device)
    with pytest.raises(InvalidTensor, match=r"slot_mapping has dtype torch\.int32"):
        reshape_and_cache(
            tokens, tokens, caches[0], caches[1], torch.zeros(1, dtype=torch.int32, device=device)
        )
