"""SmolLM2-135M-Instruct's real weights, in `transformers` and in our decoder; a test skips where they are missing."""

from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM, GgufConfig, PreTrainedModel

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.bundled import bundled_file
from minivllm_runtime.loader.checkpoint import Checkpoint, open_checkpoint
from minivllm_runtime.loader.weights import load_weights
from minivllm_runtime.models.decoder import Decoder

CONTEXT = 512


@cache
def smollm2_checkpoint() -> Checkpoint:
    """The bundled checkpoint."""
    try:
        return open_checkpoint("smollm2")
    except ModelLoadError as error:
        pytest.skip(str(error))


@cache
def smollm2_reference(device: str) -> PreTrainedModel:
    """The model of `transformers`, in float32."""
    smollm2_checkpoint()
    pytest.importorskip("gguf", reason="transformers reads GGUF files with it")
    path = bundled_file()
    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    return model.eval().to(device)


def smollm2_decoder() -> Decoder:
    """Our decoder in float32 on the CPU, not packed yet."""
    checkpoint = smollm2_checkpoint()
    decoder = Decoder(checkpoint.config, CONTEXT)
    load_weights(decoder, checkpoint.tensors())
    return decoder
