"""How much one API key may use: token buckets per minute and a cap on what runs at once."""

from collections.abc import Callable

import msgspec

from minivllm_server.api_keys import KeyLimits

Clock = Callable[[], float]
"""Seconds, from an arbitrary moment on."""

SECONDS_PER_MINUTE = 60.0


class TokenBucket:
    """A bucket that holds what may be used in a minute, and is filled at an even rate.

    It may be taken from below empty: what a request costs is known only while it is generated. Nothing new is
    let in until the debt is paid back.

    Args:
        per_minute: Capacity, and what flows in per minute.
        now: In seconds.
    """

    def __init__(self, per_minute: int, now: float) -> None:
        self._capacity = float(per_minute)
        self._per_s = per_minute / SECONDS_PER_MINUTE
        self._level = self._capacity
        self._filled_at = now

    def take(self, amount: float, now: float) -> None:
        """Takes `amount`, whether it is there or not."""
        self._fill(now)
        self._level -= amount

    def wait_s(self, amount: float, now: float) -> float:
        """Returns the seconds until `amount` is there, 0 if it is."""
        self._fill(now)
        return max(0.0, (amount - self._level) / self._per_s)

    def _fill(self, now: float) -> None:
        self._level = min(self._capacity, self._level + (now - self._filled_at) * self._per_s)
        self._filled_at = now


class Refusal(msgspec.Struct, frozen=True):
    """Why a request must not be opened now.

    Attributes:
        limit: What was reached: "5 requests per minute".
        wait_s: Seconds until it is worth trying again.
    """

    limit: str
    wait_s: float


class Account:
    """What one key has used and may still use.

    Args:
        limits: Of the key.
        clock: Tells the time.
    """

    def __init__(self, limits: KeyLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._num_open = 0
        now = clock()
        self._requests = _bucket(limits.requests_per_minute, now)
        self._tokens = _bucket(limits.tokens_per_minute, now)

    def open_request(self) -> Refusal | None:
        """Counts a request, after which `close_request` must follow; or says why not, and counts nothing."""
        now = self._clock()
        if self._num_open == self._limits.max_concurrent_requests:
            return Refusal(f"{self._num_open} requests at once", wait_s=1.0)
        # One token is enough: nobody knows yet how many the request takes.
        for bucket, limit in (
            (self._requests, f"{self._limits.requests_per_minute} requests per minute"),
            (self._tokens, f"{self._limits.tokens_per_minute} tokens per minute"),
        ):
            wait_s = 0.0 if bucket is None else bucket.wait_s(1.0, now)
            if wait_s > 0:
                return Refusal(limit, wait_s)
        if self._requests is not None:
            self._requests.take(1.0, now)
        self._num_open += 1
        return None

    def close_request(self) -> None:
        """The request that was opened has ended."""
        self._num_open -= 1

    def charge_tokens(self, num_tokens: int) -> None:
        """Counts tokens that were read or generated."""
        if self._tokens is not None and num_tokens:
            self._tokens.take(num_tokens, self._clock())


def _bucket(per_minute: int | None, now: float) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute, now)
