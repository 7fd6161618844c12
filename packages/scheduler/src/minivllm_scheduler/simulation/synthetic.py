"""SyntheticWorkload: requests drawn from distributions, the same ones for the same seed."""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minivllm_scheduler.request import Request
from minivllm_scheduler.simulation.arrivals import ArrivalProcess, ClosedLoop
from minivllm_scheduler.simulation.errors import InvalidWorkload, require_at_least, require_positive
from minivllm_scheduler.simulation.lengths import FixedLength, LengthDistribution
from minivllm_scheduler.simulation.traffic import SAMPLED_TOKEN_ID, STOP_TOKEN_ID, FreshTokenIds, TimedRequest


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """System prompts: each session's first prompt begins with one of them, all equally likely.

    Attributes:
        num_groups: How many there are.
        num_tokens: Length of each; it comes on top of the drawn prompt length.

    Raises:
        InvalidWorkload: Either is below 1.
    """

    num_groups: int
    num_tokens: int

    def __post_init__(self) -> None:
        require_at_least("num_groups", self.num_groups, 1, InvalidWorkload)
        require_at_least("num_tokens", self.num_tokens, 1, InvalidWorkload)


@dataclass(frozen=True, slots=True)
class MultiTurn:
    """Conversations: each prompt repeats all prompts and answers before it and adds to them.

    Attributes:
        turns: Requests per conversation.
        think_time_s: Mean pause between an answer and the next turn; exponential.

    Raises:
        InvalidWorkload: `think_time_s` is below 0.
    """

    turns: LengthDistribution
    think_time_s: float = 0.0

    def __post_init__(self) -> None:
        require_at_least("think_time_s", self.think_time_s, 0, InvalidWorkload)


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A kind of requests that a waiting order can tell from others.

    Attributes:
        tenant: Whose they are.
        priority: Smaller goes first in a priority order.
        share: Of all sessions, relative to the shares of the other classes.

    Raises:
        InvalidWorkload: `share` is not above 0.
    """

    tenant: str = ""
    priority: int = 0
    share: float = 1.0

    def __post_init__(self) -> None:
        require_positive("share", self.share, InvalidWorkload)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticWorkload:
    """Requests drawn from distributions.

    Lengths are drawn in the order in which sessions begin and arrival times from a stream of their own, so
    another rate, scheduler or cost model meets the same requests.

    Attributes:
        num_requests: Requests in total, every turn of every conversation counted.
        arrivals: When sessions begin: single requests, or conversations where `multi_turn` is given.
        prompt_tokens: Length of what a prompt adds to its shared prefix or its conversation.
        output_tokens: Length of an answer; none is longer than `max_tokens`.
        max_tokens: What every request asks for, where answers end with a stop id before that. None: requests ask for
            what they get.
        shared_prefixes: Prefixes that sessions have in common; None for none.
        multi_turn: Makes each session a conversation; None makes it a single request.
        classes: Of which each session is one, at random; without any all are alike.
        seed: The same seed gives the same requests.

    Raises:
        InvalidWorkload: `num_requests` or `max_tokens` is below 1.
    """

    num_requests: int
    arrivals: ArrivalProcess | ClosedLoop
    prompt_tokens: LengthDistribution
    output_tokens: LengthDistribution
    max_tokens: int | None = None
    shared_prefixes: SharedPrefixes | None = None
    multi_turn: MultiTurn | None = None
    classes: Sequence[RequestClass] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("num_requests", self.num_requests, 1, InvalidWorkload)
        if self.max_tokens is not None:
            require_at_least("max_tokens", self.max_tokens, 1, InvalidWorkload)

    def start(self) -> "SyntheticTraffic":
        """The requests, from the beginning."""
        return SyntheticTraffic(self)


class _Turn(NamedTuple):
    num_prompt_tokens: int
    num_output_tokens: int
    pause_s: float


class _Session(NamedTuple):
    """A session under way.

    Attributes:
        kind: Its class.
        history: Ids of all prompts and answers so far, or of its shared prefix.
        turns: Those still to come.
    """

    kind: RequestClass
    history: Sequence[int]
    turns: deque[_Turn]


class SyntheticTraffic:
    """One run of a `SyntheticWorkload`."""

    def __init__(self, workload: SyntheticWorkload) -> None:
        self._workload = workload
        self._rng = random.Random(f"{workload.seed}/requests")  # noqa: S311 - reproducible on purpose
        self._ids = FreshTokenIds()
        shared = workload.shared_prefixes
        self._prefixes = (
            [self._ids.take(shared.num_tokens) for _ in range(shared.num_groups)] if shared else []
        )
        self._multi_turn = workload.multi_turn or MultiTurn(FixedLength(1))
        self._num_unplanned = workload.num_requests
        self._num_sent = 0
        self._classes = [*workload.classes] or [RequestClass()]
        self._class_rng = random.Random(f"{workload.seed}/classes")  # noqa: S311 - reproducible on purpose
        self._going_on: dict[str, _Session] = {}  # sessions that have turns to come, by the request under way

    def arrivals(self) -> Iterator[TimedRequest]:
        """The first request of each session."""
        rng = random.Random(f"{self._workload.seed}/arrivals")  # noqa: S311 - reproducible on purpose
        for time_s in self._workload.arrivals.times_s(rng):
            if self._num_unplanned == 0:
                return
            yield self._begin_session(time_s)

    def follow_up(self, request: Request, now_s: float) -> TimedRequest | None:
        """The next turn of the conversation, or the next session of the closed loop's user."""
        session = self._going_on.pop(request.request_id, None)
        if session is not None:
            return self._send(now_s + session.turns[0].pause_s, session)
        loop = self._workload.arrivals
        if isinstance(loop, ClosedLoop) and self._num_unplanned > 0:
            return self._begin_session(now_s + self._pause_s(loop.think_time_s))
        return None

    def _begin_session(self, time_s: float) -> TimedRequest:
        num_turns = min(self._multi_turn.turns.draw(self._rng), self._num_unplanned)
        self._num_unplanned -= num_turns
        turns = deque(self._draw_turn() for _ in range(num_turns))
        prefix = self._rng.choice(self._prefixes) if self._prefixes else ()
        (kind,) = self._class_rng.choices(self._classes, [each.share for each in self._classes])
        return self._send(time_s, _Session(kind, prefix, turns))

    def _send(self, time_s: float, session: _Session) -> TimedRequest:
        turn = session.turns.popleft()
        added = self._ids.take(turn.num_prompt_tokens)
        limit = self._workload.max_tokens
        num_output_tokens = turn.num_output_tokens if limit is None else min(turn.num_output_tokens, limit)
        is_stopped = limit is not None and num_output_tokens < limit
        request = Request(
            request_id=str(self._num_sent),
            prompt_token_ids=(*session.history, *added) if session.history else added,
            max_tokens=num_output_tokens if limit is None else limit,
            stop_token_ids=frozenset({STOP_TOKEN_ID}) if is_stopped else frozenset(),
            tenant=session.kind.tenant,
            priority=session.kind.priority,
        )
        self._num_sent += 1
        if session.turns:
            answer = [SAMPLED_TOKEN_ID] * num_output_tokens
            if is_stopped:
                answer[-1] = STOP_TOKEN_ID
            history = (*request.prompt_token_ids, *answer)
            self._going_on[request.request_id] = session._replace(history=history)
        return TimedRequest(time_s, request, num_output_tokens if is_stopped else None)

    def _draw_turn(self) -> _Turn:
        workload = self._workload
        return _Turn(
            workload.prompt_tokens.draw(self._rng),
            workload.output_tokens.draw(self._rng),
            self._pause_s(self._multi_turn.think_time_s),
        )

    def _pause_s(self, mean_s: float) -> float:
        return self._rng.expovariate(1.0 / mean_s) if mean_s else 0.0
