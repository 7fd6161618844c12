import torch

from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.worker.kv_cache import KVCacheTensors

CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=8,
    hidden_size=8,
    intermediate_size=8,
    num_layers=3,
    num_heads=2,
    num_kv_heads=2,
    head_dim=4,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=16,
)


def test_clearing_touches_the_named_blocks_of_every_layer_and_nothing_else():
    cache = KVCacheTensors(CONFIG, 5, 4, torch.float32, torch.device("cpu"))
    for layer in cache.layers:
        layer.fill_(float("nan"))
    cache.clear([1, 4])
    for layer in cache.layers:
        for pool in layer:
            assert pool.shape == (6, 2, 4, 4)
            cleared = [block for block in range(6) if not pool[block].isnan().any()]
            assert cleared == [1, 4]


def test_the_padding_block_is_the_extra_one_and_finite():
    cache = KVCacheTensors(CONFIG, 5, 4, torch.float32, torch.device("cpu"))
    assert cache.padding_block == 5
    assert (cache.layers[2][:, 5] == 0).all()
