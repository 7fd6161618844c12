import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from minivllm_kernels.reference.rotary_embedding import rotary_embedding


def make_table(num_positions, head_dim):
    frequencies = 10_000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.outer(torch.arange(num_positions), frequencies)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def test_equals_hugging_face():
    query, key = torch.randn((5, 6, 80)), torch.randn((5, 2, 80))
    positions = torch.tensor([0, 31, 4, 4, 9])
    table = make_table(32, 80)
    cos, sin = (half.repeat(1, 2)[None] for half in table[positions].chunk(2, dim=-1))
    batched = (heads.transpose(0, 1)[None] for heads in (query, key))
    expected = [rotated[0].transpose(0, 1) for rotated in apply_rotary_pos_emb(*batched, cos, sin)]
    rotated = rotary_embedding(query, key, positions, table)
    assert rotated[0] is query
    assert rotated[1] is key
    torch.testing.assert_close(rotated, tuple(expected))


def test_scores_depend_on_the_distance_of_positions_only():
    query, key = torch.randn((2, 1, 1, 64)).expand(2, 2, 1, 64).clone()
    table = make_table(64, 64)
    rotary_embedding(query, key.clone(), torch.tensor([7, 47]), table)
    rotary_embedding(key, key.clone(), torch.tensor([3, 43]), table)
    near, far = (query * key).sum(dim=(1, 2))
    torch.testing.assert_close(near, far)
