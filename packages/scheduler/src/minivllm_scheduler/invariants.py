"""What must hold between any two calls of a scheduler; for tests and idle moments."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler.request import RequestState, RequestStatus
from minivllm_scheduler.sibling_groups import SiblingGroups
from minivllm_scheduler.step import StepInFlight
from minivllm_scheduler.waiting_queue import WaitingQueue


def check_containers(
    requests: Mapping[str, RequestState],
    running: Sequence[RequestState],
    waiting: WaitingQueue,
    groups: SiblingGroups,
) -> None:
    """Asserts that each live request has one status and is in the one container of that status."""
    waiting.check_invariants()
    groups.check_invariants()
    assert all(state.status is RequestStatus.RUNNING for state in running)
    assert all(state.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED) for state in waiting)
    assert all(state.status is RequestStatus.HELD for state in groups)
    ids = [state.request_id for container in (running, waiting, groups) for state in container]
    assert sorted(ids) == sorted(requests), "a live request is in no container, or in two"


def check_progress(requests: Iterable[RequestState], in_flight: Sequence[StepInFlight]) -> None:
    """Asserts that every request's counts agree with its known ids and with the steps in flight."""
    samples = Counter(id(state) for step in in_flight for state, _, _, samples in step.progress if samples)
    for state in requests:
        last = state.num_known_tokens + state.num_placeholders
        assert state.num_known_tokens == state.keys.num_tokens
        assert state.num_placeholders == samples[id(state)]
        assert last <= state.max_total_tokens, f"{state.request_id!r} computes past max_tokens"
        assert state.num_computed_tokens < last, f"{state.request_id!r} is not behind"
        if state.status is not RequestStatus.RUNNING:
            assert state.num_computed_tokens == 0


def check_blocks(running: Sequence[RequestState], kv: KVCacheManager) -> None:
    """Asserts that running requests, and only they, hold blocks, as many as what they have computed fills."""
    kv.check_invariants()
    held: set[int] = set()
    for state in running:
        block_ids = kv.block_ids(state.request_id)
        assert len(block_ids) == -(-state.num_computed_tokens // kv.block_size)
        held.update(block_ids)
    assert kv.stats().in_use == len(held), "blocks in use that no running request holds"
