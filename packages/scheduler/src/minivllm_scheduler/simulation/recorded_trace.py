"""The workload of a recorded run, as a trace that the simulator serves."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from minivllm_scheduler.output import RequestUpdate
from minivllm_scheduler.recording.events import Added, Event, Recording
from minivllm_scheduler.recording.policy_names import Policy
from minivllm_scheduler.request import Request
from minivllm_scheduler.simulation.replay import replay
from minivllm_scheduler.simulation.trace import Trace, TraceRow


def trace_of(recording: Recording, **policies: Policy) -> Trace:
    """When requests came, and how long their prompts and answers were.

    Times count from the first request. Answers are as long as they became, however the request ended; requests that
    ended without a token are left out. Requests whose prompts share their first block, and their cache salt, form
    a prefix group; what they share is measured against the first of them.

    Args:
        recording: A run, with or without its outputs.
        policies: Those that the recording cannot name; see `replay`.

    Raises:
        InvalidRecording, ReplayDiverged: As `replay` does.
    """
    served = _Served()
    replay(recording, served.take_event, on_updates=served.take_updates, **policies)
    answered = [index for index, length in enumerate(served.output_lengths) if length]
    requests = [served.requests[index] for index in answered]
    prefixes = _prefix_groups(requests, recording.setup.block_size)
    return Trace(
        tuple(
            TraceRow(
                arrival_time_s=served.arrival_times_s[index] - served.arrival_times_s[0],
                prompt_tokens=len(request.prompt_token_ids),
                output_tokens=served.output_lengths[index],
                prefix_group=group,
                prefix_tokens=num_tokens,
            )
            for index, request, (group, num_tokens) in zip(answered, requests, prefixes, strict=True)
        )
    )


class _Served:
    """Requests in order of arrival, and the length of their answers."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.arrival_times_s: list[float] = []
        self.output_lengths: list[int] = []
        self._indices: dict[str, int] = {}  # of the latest request of an id

    def take_event(self, event: Event) -> None:
        if isinstance(event, Added):
            for request in event.requests:
                self._indices[request.request_id] = len(self.requests)
                self.requests.append(request)
                self.arrival_times_s.append(event.now)
                self.output_lengths.append(0)

    def take_updates(self, updates: Iterable[RequestUpdate]) -> None:
        for update in updates:
            self.output_lengths[self._indices[update.request_id]] += len(update.token_ids)


def _prefix_groups(requests: Sequence[Request], block_size: int) -> list[tuple[str | None, int]]:
    """Name of each request's prefix group, None for none, and how many tokens of the prefix it has."""
    members: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for index, request in enumerate(requests):
        block = tuple(request.prompt_token_ids[:block_size])
        members.setdefault((request.cache_salt, block), []).append(index)
    groups: list[tuple[str | None, int]] = [(None, 0)] * len(requests)
    for (_, block), (first, *others) in members.items():
        if not others or len(block) < block_size:
            continue
        prompt = requests[first].prompt_token_ids
        lengths = [_num_shared(prompt, requests[index].prompt_token_ids) for index in others]
        for index, length in zip((first, *others), (max(lengths), *lengths), strict=True):
            groups[index] = (f"prefix-{first}", length)
    return groups


def _num_shared(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
