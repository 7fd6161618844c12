"""The KV tensors of all layers."""

from collections.abc import Sequence

import torch

from minivllm_runtime.model_config import ModelConfig


class KVCacheTensors:
    """One allocation for all layers: [layers, 2, num_blocks + 1, Hkv, block_size, D].

    The extra last block belongs to padding; the allocator never knows it. Blocks are cleared when they are handed out:
    a slot that was never written since then reads as zero, so what a masked read meets is always finite.

    Attributes:
        layers: K and V of each layer, [2, num_blocks + 1, Hkv, block_size, D].
        block_size: Tokens per block.
        padding_block: Id of the extra block.
    """

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.num_layers, 2, num_blocks + 1, config.num_kv_heads, block_size, config.head_dim)
        self._pool = torch.empty(shape, dtype=dtype, device=device)
        self._pool[:, :, num_blocks] = 0
        self.layers = tuple(self._pool)
        self.block_size = block_size
        self.padding_block = num_blocks

    def clear(self, block_ids: Sequence[int]) -> None:
        """Zero the blocks in every layer."""
        self._pool.index_fill_(2, torch.tensor(block_ids, dtype=torch.int64, device=self._pool.device), 0)
