"""RequestView: what a policy may see of a request. Nothing of it can be changed, and nothing is copied."""

from collections.abc import Sequence
from typing import overload

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler.request import Request, RequestState, RequestStatus


class RequestView:
    """A request that runs or could be admitted, at the moment a policy is asked. Not for keeping."""

    __slots__ = ("_kv", "_state")

    def __init__(self, state: RequestState, kv: KVCacheManager) -> None:
        self._state = state
        self._kv = kv

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self._state.request

    @property
    def arrival_time_s(self) -> float:
        """When it was added, in seconds of the scheduler's clock."""
        return self._state.arrival_time_s

    @property
    def num_known_tokens(self) -> int:
        """Tokens of its prompt and of its output so far."""
        return self._state.num_known_tokens

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose KV it has. Preempted, it computes them again, where the prefix cache does not keep them."""
        return self._state.num_computed_tokens

    @property
    def num_remaining_tokens(self) -> int:
        """Output tokens until `max_tokens`, at least 1; a stop id may end it before."""
        return self._state.max_total_tokens - self._state.num_known_tokens

    @property
    def max_kv_tokens(self) -> int:
        """Tokens whose KV it needs at the end; that of the last one sampled is not."""
        return self._state.max_total_tokens - 1

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._kv.block_size

    @property
    def num_blocks(self) -> int:
        """KV blocks it holds, shared ones included; 0 while it waits."""
        return len(self._kv.block_ids(self._state.request_id)) if self._is_running else 0

    @property
    def num_exclusive_blocks(self) -> int:
        """KV blocks it holds alone: those that its preemption makes free."""
        return self._kv.num_exclusive_blocks(self._state.request_id) if self._is_running else 0

    @property
    def _is_running(self) -> bool:
        return self._state.status is RequestStatus.RUNNING


class RequestViews(Sequence[RequestView]):
    """Views of several requests, each made when it is looked at.

    Args:
        states: Not copied.
        kv: Where they hold blocks.
    """

    __slots__ = ("_kv", "_states")

    def __init__(self, states: Sequence[RequestState], kv: KVCacheManager) -> None:
        self._states = states
        self._kv = kv

    def __len__(self) -> int:
        return len(self._states)

    @overload
    def __getitem__(self, index: int) -> RequestView: ...
    @overload
    def __getitem__(self, index: slice) -> "RequestViews": ...
    def __getitem__(self, index: int | slice) -> "RequestView | RequestViews":
        if isinstance(index, slice):
            return RequestViews(self._states[index], self._kv)
        return RequestView(self._states[index], self._kv)
