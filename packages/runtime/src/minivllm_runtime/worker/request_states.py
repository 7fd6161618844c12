"""Per-request tensors in stable slots, kept on the device from admission to release."""

from collections.abc import Sequence

import torch
from torch import Tensor


class RequestStates:
    """Token ids and block tables of the running requests.

    A request keeps its slot while it runs, so a step sends only what changed: new blocks from the scheduler,
    and nothing for tokens sampled on the device.

    Attributes:
        token_ids: [max_num_seqs, max_model_len] int64.
        block_tables: [max_num_seqs, max_blocks] int32.
    """

    def __init__(self, max_num_seqs: int, max_model_len: int, block_size: int, device: torch.device) -> None:
        max_blocks = -(-max_model_len // block_size)
        self.token_ids = torch.zeros(max_num_seqs, max_model_len, dtype=torch.int64, device=device)
        self.block_tables = torch.zeros(max_num_seqs, max_blocks, dtype=torch.int32, device=device)
        self._slots: dict[str, int] = {}
        self._num_blocks: dict[str, int] = {}
        self._num_prompt_tokens: dict[str, int] = {}
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))

    def admit(
        self, request_id: str, token_ids: Sequence[int], num_prompt_tokens: int, block_ids: Sequence[int]
    ) -> None:
        """Give the request a slot and write all it has: known ids and blocks."""
        slot = self._free_slots.pop()
        self._slots[request_id] = slot
        self._num_blocks[request_id] = 0
        self._num_prompt_tokens[request_id] = num_prompt_tokens
        self.token_ids[slot, : len(token_ids)] = self._to_device(token_ids, torch.int64)
        self.append_blocks(request_id, block_ids)

    def append_blocks(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Extend the request's block table."""
        start = self._num_blocks[request_id]
        end = start + len(block_ids)
        self.block_tables[self._slots[request_id], start:end] = self._to_device(block_ids, torch.int32)
        self._num_blocks[request_id] = end

    def release(self, request_id: str) -> None:
        """Free the request's slot; a request that was never admitted has none."""
        if request_id in self._slots:
            self._free_slots.append(self._slots.pop(request_id))
            del self._num_blocks[request_id], self._num_prompt_tokens[request_id]

    def slot(self, request_id: str) -> int:
        """Row of the request in the tensors."""
        return self._slots[request_id]

    def num_prompt_tokens(self, request_id: str) -> int:
        """Ids of the request that were given, not generated."""
        return self._num_prompt_tokens[request_id]

    def __len__(self) -> int:
        return len(self._slots)

    def _to_device(self, values: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(self.token_ids.device, non_blocking=True)
