import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from minivllm_kernels.reference.rms_norm import add_rms_norm, rms_norm


@pytest.fixture(params=[torch.float32, torch.float16, torch.bfloat16])
def norm(request):
    norm = LlamaRMSNorm(80, eps=1e-5).to(request.param)
    torch.nn.init.normal_(norm.weight)
    return norm.requires_grad_(requires_grad=False)


def test_equals_hugging_face_bit_for_bit(norm):
    x = torch.randn((2, 3, 80)).to(norm.weight.dtype)
    assert torch.equal(rms_norm(x, norm.weight, 1e-5), norm(x))


def test_fused_add_equals_hugging_face_bit_for_bit(norm):
    x, residual = torch.randn((2, 3, 80)).to(norm.weight.dtype)
    total = residual + x
    normed = add_rms_norm(x, residual, norm.weight, 1e-5)
    assert torch.equal(residual, total)
    assert torch.equal(normed, norm(total))
