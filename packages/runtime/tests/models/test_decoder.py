"""Case C37: logits equal those of `transformers` for every family, head count and bias."""

import pytest
import torch

from minivllm_kernels.reference.rms_norm import add_rms_norm
from minivllm_runtime.device.torch_ops import TorchNorm, TorchOps

from ..reference.dense_attention import DenseAttention
from ..reference.tiny_transformers import VARIANTS, VOCAB_SIZE, decoder_of, reference_model


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_logits_equal_transformers(variant):
    reference = reference_model(variant)
    decoder, _ = decoder_of(reference)
    input_ids = torch.randint(VOCAB_SIZE, (50,), generator=torch.Generator().manual_seed(1))
    hidden = decoder(input_ids, torch.arange(50), DenseAttention(decoder.config.num_heads))
    torch.testing.assert_close(
        decoder.compute_logits(hidden), reference(input_ids[None]).logits[0], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("wanted", [[], [49], [0, 7, 49], [7, 7, 3]])
@torch.inference_mode()
def test_wanted_tokens_have_the_states_they_have_among_all(wanted):
    decoder, _ = decoder_of(reference_model("llama 9/3 heads"))
    step = (
        torch.randint(VOCAB_SIZE, (50,), generator=torch.Generator().manual_seed(1)),
        torch.arange(50),
        DenseAttention(decoder.config.num_heads),
    )
    wanted = torch.tensor(wanted, dtype=torch.int64)
    torch.testing.assert_close(decoder(*step, wanted), decoder(*step)[wanted])


@torch.inference_mode()
def test_packing_a_half_precision_model_keeps_its_logits():
    reference = reference_model("llama 9/3 heads")
    decoder, _ = decoder_of(reference)
    for parameter in decoder.parameters():
        parameter.data = parameter.to(torch.bfloat16) if parameter.ndim > 1 else parameter
    input_ids = torch.randint(VOCAB_SIZE, (20,), generator=torch.Generator().manual_seed(1))

    def logits():
        return decoder.compute_logits(
            decoder(input_ids, torch.arange(20), DenseAttention(decoder.config.num_heads))
        ).float()

    plain = logits()
    decoder.pack(TorchOps())
    exact = reference(input_ids[None]).logits[0]
    assert (logits() - exact).norm() < 1.2 * (plain - exact).norm()


class AddingNorm(TorchNorm):
    """Adds parts, as the norm of a device does that leaves products in them."""

    def add(self, x, residual):
        return add_rms_norm(x, residual, self._weight, self._eps)


class OpsWithParts(TorchOps):
    """Leaves products for the residual in three parts."""

    def residual_linear(self, weight, bias):
        def project(x):
            columns = torch.arange(x.shape[1]).chunk(3)
            parts = torch.stack([x[:, part] @ weight[:, part].T for part in columns])
            if bias is not None:
                parts[0] += bias
            return parts

        return project

    def rms_norm(self, weight, eps):
        return AddingNorm(weight, eps)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("wanted", [None, [], [49], [7, 7, 3]])
@torch.inference_mode()
def test_products_in_parts_give_the_same_states(variant, wanted):
    decoder, _ = decoder_of(reference_model(variant))
    step = (
        torch.randint(VOCAB_SIZE, (50,), generator=torch.Generator().manual_seed(1)),
        torch.arange(50),
        DenseAttention(decoder.config.num_heads),
        None if wanted is None else torch.tensor(wanted, dtype=torch.int64),
    )
    plain = decoder(*step)
    decoder.pack(OpsWithParts())
    torch.testing.assert_close(decoder(*step), plain, rtol=1e-4, atol=1e-4)
