import pytest
import torch

from minivllm_kernels.attend_context import kv_tile_size, widens_dot


@pytest.mark.parametrize(
    ("head_dim", "element_bytes", "expected"),
    [(64, 2, 64), (96, 2, 64), (128, 4, 32), (256, 4, 16), (512, 4, 16)],
)
def test_kv_tile_size_bounds_shared_memory(head_dim, element_bytes, expected):
    assert kv_tile_size(head_dim, element_bytes) == expected


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, True), (torch.float16, False), (torch.float32, False)]
)
def test_only_bfloat16_on_a_cpu_is_widened(dtype, expected):
    assert widens_dot(torch.zeros(1, dtype=dtype)) is expected
    assert not widens_dot(torch.zeros(1, dtype=dtype, device="meta"))
