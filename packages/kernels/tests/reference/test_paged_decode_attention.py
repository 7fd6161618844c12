import pytest
import torch

from minivllm_kernels.reference.paged_decode_attention import paged_decode_attention


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(2, 2), (9, 3), (5, 1), (8, 1)])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
def test_equals_sdpa_on_contiguous_keys_and_values(device, paged_batch, num_heads, num_kv_heads, head_dim):
    batch = paged_batch(
        device, [1, 15, 16, 17, 31, 32, 33], heads=(num_heads, num_kv_heads), head_dim=head_dim
    )
    output = paged_decode_attention(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        batch.block_tables,
        batch.context_lens,
        batch.scale,
    )
    torch.testing.assert_close(output, batch.sdpa(), atol=1e-5, rtol=1e-5)


def test_padding_rows_become_zeros(device, paged_batch):
    batch = paged_batch(device, [0, 3])
    output = paged_decode_attention(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        batch.block_tables,
        batch.context_lens,
        batch.scale,
    )
    assert not output[0].any()
    assert output[1].all()
