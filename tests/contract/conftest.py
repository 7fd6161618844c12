"""A real engine around a tiny random Llama, whose scheduler is recorded."""

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device.torch_ops import TorchOps
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.loader.weights import dummy_weights
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.models.decoder import Decoder
from minivllm_runtime.tokenizer import Tokenizer

TINY_LLAMA = ModelConfig(
    architecture="llama",
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=128,
)


@pytest.fixture(scope="session")
def make_recorded_engine():
    """Builds an engine core, and the list that the events of its scheduler go to."""
    model = Decoder(TINY_LLAMA, TINY_LLAMA.max_position_embeddings)
    dummy_weights(model)
    model.pack(TorchOps())
    vocabulary = {f"t{token_id}": token_id for token_id in range(TINY_LLAMA.vocab_size)}
    tokenizer = Tokenizer(Backend(models.WordLevel(vocabulary, unk_token="t0")))

    def make(**settings):
        events = []
        built = assemble_engine(
            EngineConfig(block_size=4, **settings),
            model,
            tokenizer,
            TINY_LLAMA,
            dtype=torch.float32,
            device=torch.device("cpu"),
            record=events.append,
        )
        return built.core, events

    return make
