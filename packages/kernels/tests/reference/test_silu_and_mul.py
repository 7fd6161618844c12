import math

import torch

from minivllm_kernels.reference.silu_and_mul import silu_and_mul


def test_the_first_half_is_the_gate():
    output = silu_and_mul(torch.tensor([[1.0, -2.0, 3.0, 5.0]]))
    expected = [3.0 / (1 + math.exp(-1.0)), -2.0 * 5.0 / (1 + math.exp(2.0))]
    torch.testing.assert_close(output, torch.tensor([expected]))
