import pytest
import torch

from minivllm_runtime.device.torch_ops import TorchOps

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 2, 64, 65, 300])
@pytest.mark.parametrize("size", [8, 20, 24, 1504])
@torch.inference_mode()
def test_a_gated_projection_is_the_same_for_any_number_of_tokens(size, num_tokens, has_bias):
    """One token, a few and many have kernels of their own, all on one weight, whose rows may be reordered."""
    from minivllm_runtime.device.triton_ops import TritonOps

    x = torch.randn((num_tokens, 64), device="cuda").half()
    weight = torch.randn((2 * size, 64), device="cuda").half() / 8
    bias = torch.randn(2 * size, device="cuda").half() if has_bias else None
    output = TritonOps(torch.float16).gated_linear(weight, bias)(x)
    expected = TorchOps().gated_linear(weight.float(), None if bias is None else bias.float())(x.float())
    torch.testing.assert_close(output.float(), expected, atol=4e-3, rtol=2**-8)
