"""Request: what is asked for. RequestState: how far it got, seen by nobody but the scheduler."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from minivllm_kvcache import PrefixKeys
from minivllm_scheduler.errors import InvalidRequest

TOKEN_ID_LIMIT: Final = 2**32
"""Token ids are below this: the prefix cache encodes them in four bytes."""


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class RequestStatus(StrEnum):
    """Where a request is; each status has one container in the scheduler."""

    HELD = "held"  # waits for the leader of its group, outside the waiting queue
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  # in the waiting queue again, its ids kept, its blocks given back
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to generate, in token ids.

    Attributes:
        request_id: Unique among the requests that have not ended.
        prompt_token_ids: At least one id, each in [0, 2³²). A `range` will do in a simulation.
        max_tokens: Output tokens at which the request ends with `FinishReason.LENGTH`, at least 1.
        stop_token_ids: Ids that end the request with `FinishReason.STOP`; the sampled one counts as an output
            token.
        priority: Smaller goes first in a priority order; FCFS ignores it.
        tenant: Whose request it is.
        cache_salt: Requests share cached prefixes only with requests of the same salt.
        group: Requests of a group have one prompt (the n choices of a call). The first one added leads; the
            others are admitted once its prompt is computed, and share it.
        reads_prefix_cache: False computes every prompt token, cached or not.
        runs_ahead: False gives it no row while a sampled id of it is unknown to the host (grammars need the
            id).

    Raises:
        InvalidRequest: Empty prompt, a prompt id out of range, or `max_tokens` below 1.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    priority: int = 0
    tenant: str = ""
    cache_salt: str = ""
    group: str | None = None
    reads_prefix_cache: bool = True
    runs_ahead: bool = True

    def __post_init__(self) -> None:
        if len(self.prompt_token_ids) == 0:
            raise InvalidRequest(f"request {self.request_id!r} has 0 prompt tokens, it must have at least 1")
        if self.max_tokens < 1:
            raise InvalidRequest(
                f"request {self.request_id!r} has max_tokens {self.max_tokens}, it must be at least 1"
            )
        try:
            array("I", self.prompt_token_ids)  # takes exactly these ids, a third of the time of min and max
        except OverflowError:
            smallest, largest = min(self.prompt_token_ids), max(self.prompt_token_ids)
            raise InvalidRequest(
                f"request {self.request_id!r} has prompt ids from {smallest} to {largest}, "
                f"they must lie in [0, {TOKEN_ID_LIMIT})"
            ) from None


class RequestState:
    """Progress of one request.

    Its tokens, by position, at any moment::

        | computed, or in a row of an outstanding step |  behind  |
        | prompt ids | output ids | placeholders                  |
        |<--- num_known_tokens -->|<- ids still on the device    ->|

    A request is *behind* while `num_computed_tokens < num_known_tokens + num_placeholders`; a row lets it
    catch up. Prefill, decode and recomputation after a preemption differ only in how far behind the request
    is.

    Attributes:
        request: What was asked for.
        request_id: Its id.
        keys: The known ids, and their prefix-cache keys.
        arrival: Place in the order of arrival, unique within a scheduler.
        arrival_time_s: When it was added, in seconds of the caller's clock.
        rank: Its place in the waiting order; the smallest waits in front.
        status: Where it is.
        num_prompt_tokens: Length of the prompt.
        num_known_tokens: Prompt and output ids; output ids are kept across preemptions.
        num_computed_tokens: Positions whose KV is written once the outstanding steps have run.
        num_placeholders: Ids that outstanding steps sample.
        num_cached_tokens: Prefix-cache hit at the first admission, None before it.
        max_total_tokens: Prompt and output tokens at which it ends.
    """

    __slots__ = (
        "arrival",
        "arrival_time_s",
        "keys",
        "max_total_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_known_tokens",
        "num_placeholders",
        "num_prompt_tokens",
        "rank",
        "request",
        "request_id",
        "status",
    )

    def __init__(
        self, request: Request, block_size: int, arrival: int, now: float, rank: float = 0.0
    ) -> None:
        self.request = request
        self.request_id = request.request_id
        self.keys = PrefixKeys(request.prompt_token_ids, block_size, request.cache_salt)
        self.arrival = arrival
        self.arrival_time_s = now
        self.rank = rank
        self.status = RequestStatus.WAITING
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.num_known_tokens = self.num_prompt_tokens
        self.num_computed_tokens = 0
        self.num_placeholders = 0
        self.num_cached_tokens: int | None = None
        self.max_total_tokens = self.num_prompt_tokens + request.max_tokens

    def start_running(self, num_cached_tokens: int) -> None:
        """Admission, with a prefix-cache hit of so many tokens."""
        self.status = RequestStatus.RUNNING
        self.num_computed_tokens = num_cached_tokens
        if self.num_cached_tokens is None:
            self.num_cached_tokens = num_cached_tokens

    def append(self, token_id: int) -> FinishReason | None:
        """Puts a sampled id in its placeholder. Returns why the request ends with it, None if it goes on."""
        self.num_placeholders -= 1
        self.num_known_tokens += 1
        self.keys.appended.append(token_id)
        if token_id in self.request.stop_token_ids:
            return FinishReason.STOP
        if self.num_known_tokens == self.max_total_tokens:
            return FinishReason.LENGTH
        return None
