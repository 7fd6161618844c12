import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import rotary_embedding as reference
from minivllm_kernels.rotary_embedding import rotary_embedding

# Half precision is rounded once, by Triton's interpreter to bfloat16 by cutting off.
TOLERANCES = [(torch.float32, 1e-6), (torch.float16, 2**-10), (torch.bfloat16, 2**-7)]


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim"), [(9, 3, 64), (5, 1, 80), (2, 2, 96), (1, 1, 2)]
)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin(device, num_heads, num_kv_heads, head_dim, dtype, tolerance):
    query = torch.randn((4, num_heads, head_dim), device=device).to(dtype)
    key = torch.randn((4, num_kv_heads, head_dim), device=device).to(dtype)
    angles = torch.rand((32, head_dim // 2), device=device) * 6
    cos_sin_cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    positions = torch.tensor([31, 0, 7, 7], device=device)
    expected = reference.rotary_embedding(query.clone(), key.clone(), positions, cos_sin_cache)
    rotated = rotary_embedding(query, key, positions, cos_sin_cache)
    assert rotated[0] is query
    assert rotated[1] is key
    torch.testing.assert_close(rotated, expected, atol=1e-6, rtol=tolerance)


def test_rotates_views_and_leaves_their_neighbours_alone(device):
    fused = torch.randn((3, 4, 8), device=device)
    before = fused.clone()
    angles = torch.rand((16, 4), device=device)
    cos_sin_cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    positions = torch.arange(3, device=device)
    rotary_embedding(fused[:, :2], fused[:, 2:3], positions, cos_sin_cache)
    expected = reference.rotary_embedding(
        before[:, :2].clone(), before[:, 2:3].clone(), positions, cos_sin_cache
    )
    torch.testing.assert_close((fused[:, :2], fused[:, 2:3]), expected)
    assert torch.equal(fused[:, 3:], before[:, 3:])


@pytest.mark.parametrize("op", [rotary_embedding, reference.rotary_embedding])
def test_refuses_a_table_of_another_head_dim(device, op):
    query = torch.zeros((1, 1, 8), device=device)
    with pytest.raises(InvalidTensor, match=r"cos_sin_cache has shape \(4, 4\), expected \(4, 8\)"):
        op(
            query,
            query.clone(),
            torch.zeros(1, dtype=torch.int64, device=device),
            torch.zeros((4, 4), device=device),
        )
