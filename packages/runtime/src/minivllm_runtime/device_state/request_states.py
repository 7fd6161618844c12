"""Per-request tensors in stable slots, kept on the device from admission to release."""

from collections.abc import Sequence

import torch

from minivllm_kernels.sampling_table import SamplingTable
from minivllm_runtime.device_state.staging import TableWrites
from minivllm_runtime.messages import EngineRequest


class RequestStates:
    """Token ids, block tables and sampling parameters of the running requests.

    A request keeps its slot while it runs, so a step sends only what changed: new blocks from the scheduler,
    and nothing for tokens sampled on the device. Changes reach the tensors at `flush`.

    There is one slot more than there may be requests, for the padding rows of CUDA graphs.

    Attributes:
        token_ids: [max_num_seqs + 1, max_model_len] int64.
        block_tables: [max_num_seqs + 1, max_blocks] int32.
        sampling: Row by row as above; a slot whose parameters nobody set is greedy.
        padding_slot: Row of no request; `pad_with` says which block it has.
    """

    def __init__(self, max_num_seqs: int, max_model_len: int, block_size: int, device: torch.device) -> None:
        max_blocks = -(-max_model_len // block_size)
        self.token_ids = torch.zeros(max_num_seqs + 1, max_model_len, dtype=torch.int64, device=device)
        self.block_tables = torch.zeros(max_num_seqs + 1, max_blocks, dtype=torch.int32, device=device)
        self.sampling = SamplingTable(
            torch.zeros(max_num_seqs + 1, 3, device=device),
            torch.zeros(max_num_seqs + 1, 4, dtype=torch.int64, device=device),
        )
        self.padding_slot = max_num_seqs
        self._new_token_ids = TableWrites(self.token_ids)
        self._new_block_ids = TableWrites(self.block_tables)
        self._new_floats = TableWrites(self.sampling.floats)
        self._new_integers = TableWrites(self.sampling.integers)
        self._slots: dict[str, int] = {}
        self._num_blocks: dict[str, int] = {}
        self._num_prompt_tokens: dict[str, int] = {}
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))

    def admit(
        self, request_id: str, token_ids: Sequence[int], num_prompt_tokens: int, block_ids: Sequence[int]
    ) -> None:
        """Give the request a slot for all it has: known ids and blocks."""
        slot = self._free_slots.pop()
        self._slots[request_id] = slot
        self._num_blocks[request_id] = 0
        self._num_prompt_tokens[request_id] = num_prompt_tokens
        self._new_token_ids.add(slot, 0, token_ids)
        self.append_blocks(request_id, block_ids)

    def set_sampling(self, request: EngineRequest) -> None:
        """Say how an admitted request is sampled where the device draws; see SamplingTable."""
        slot = self._slots[request.request_id]
        temperature = 0.0 if request.is_greedy else request.temperature
        seed = request.seed - 2**64 if request.seed >= 2**63 else request.seed
        num_prompt_tokens = self._num_prompt_tokens[request.request_id]
        self._new_floats.add(slot, 0, (temperature, request.top_p, request.min_p))
        self._new_integers.add(slot, 0, (request.top_k, seed, request.choice, num_prompt_tokens))

    def append_blocks(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Extend the request's block table."""
        start = self._num_blocks[request_id]
        self._new_block_ids.add(self._slots[request_id], start, block_ids)
        self._num_blocks[request_id] = start + len(block_ids)

    def flush(self) -> None:
        """Send the changes since the last time to the device, in a few copies however many requests they are of."""
        for writes in self._all_writes():
            writes.flush()

    def discard_changes(self) -> None:
        """Forget the changes since the last time: the requests they are of are over."""
        for writes in self._all_writes():
            writes.discard()

    def _all_writes(self) -> tuple[TableWrites, ...]:
        return self._new_token_ids, self._new_block_ids, self._new_floats, self._new_integers

    def pad_with(self, block_id: int) -> None:
        """Let padding rows read and write this block only."""
        self.block_tables[self.padding_slot] = block_id

    def release(self, request_id: str) -> None:
        """Free the request's slot; a request that was never admitted has none."""
        if request_id in self._slots:
            self._free_slots.append(self._slots.pop(request_id))
            del self._num_blocks[request_id], self._num_prompt_tokens[request_id]

    def slot(self, request_id: str) -> int:
        """Row of the request in the tensors."""
        return self._slots[request_id]

    def slots(self, request_ids: Sequence[str]) -> list[int]:
        """Rows of several requests in the tensors."""
        return [*map(self._slots.__getitem__, request_ids)]

    def num_prompt_tokens(self, request_id: str) -> int:
        """Ids of the request that were given, not generated."""
        return self._num_prompt_tokens[request_id]

    def __len__(self) -> int:
        return len(self._slots)
