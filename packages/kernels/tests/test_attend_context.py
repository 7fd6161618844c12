import pytest
import torch

from minivllm_kernels.attend_context import widens_dot


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, True), (torch.float16, False), (torch.float32, False)]
)
def test_only_bfloat16_on_a_cpu_is_widened(dtype, expected):
    assert widens_dot(torch.zeros(1, dtype=dtype)) is expected
    assert not widens_dot(torch.zeros(1, dtype=dtype, device="meta"))
