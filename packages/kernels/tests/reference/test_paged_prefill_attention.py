import pytest
import torch

from minivllm_kernels.reference.paged_prefill_attention import gather_context, paged_prefill_attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(2, 2), (9, 3), (8, 1)])
@pytest.mark.parametrize("head_dim", [64, 80])
def test_equals_sdpa_on_contiguous_keys_and_values(
    device, paged_batch, num_heads, num_kv_heads, head_dim, dtype
):
    starts, lengths = [0, 15, 16, 17, 5], [17, 16, 1, 15, 0]
    batch = paged_batch(
        device,
        [start + length for start, length in zip(starts, lengths, strict=True)],
        lengths,
        heads=(num_heads, num_kv_heads),
        head_dim=head_dim,
        dtype=dtype,
    )
    output = paged_prefill_attention(
        batch.query,
        batch.key_cache,
        batch.value_cache,
        batch.block_tables,
        batch.query_start_loc,
        batch.context_lens,
        batch.scale,
    )
    assert output.dtype == dtype
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(output.float(), batch.sdpa(), atol=1e-5, rtol=max(rounding, 1e-5))


def test_gather_context_returns_token_order():
    cache = torch.arange(24.0).view(3, 2, 4, 1)
    gathered = gather_context(cache, torch.tensor([2, 0, 99], dtype=torch.int32), 6)
    assert gathered[:, 0, 0].tolist() == [16, 17, 18, 19, 0, 1]
    assert gathered[:, 1, 0].tolist() == [20, 21, 22, 23, 4, 5]
