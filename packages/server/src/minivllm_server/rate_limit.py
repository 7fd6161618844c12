"""How much one API key may use: token buckets per minute and a cap on what runs at once."""

import math
from collections.abc import Callable

from minivllm_server.api_keys import KeyLimits
from minivllm_server.errors import ApiError

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


class Account:
    """What one key has used and may still use.

    Args:
        name: Of the key.
        limits: Of the key.
        clock: Tells the time.
    """

    def __init__(self, name: str, limits: KeyLimits, clock: Clock) -> None:
        self._name = name
        self._limits = limits
        self._clock = clock
        self._num_open = 0
        now = clock()
        self._requests = _bucket(limits.requests_per_minute, now)
        self._tokens = _bucket(limits.tokens_per_minute, now)

    def open_request(self) -> None:
        """Counts a request; `close_request` must follow.

        Raises:
            ApiError: 429, a limit is reached; nothing is counted then.
        """
        now = self._clock()
        if self._num_open == self._limits.max_concurrent_requests:
            raise self._refusal(f"{self._num_open} requests at once", 1.0)
        # One token is enough: nobody knows yet how many the request takes.
        for bucket, amount, limit in (
            (self._requests, 1.0, f"{self._limits.requests_per_minute} requests per minute"),
            (self._tokens, 1.0, f"{self._limits.tokens_per_minute} tokens per minute"),
        ):
            wait_s = 0.0 if bucket is None else bucket.wait_s(amount, now)
            if wait_s > 0:
                raise self._refusal(limit, wait_s)
        if self._requests is not None:
            self._requests.take(1.0, now)
        self._num_open += 1

    def close_request(self) -> None:
        """The request that was opened has ended."""
        self._num_open -= 1

    def charge_tokens(self, num_tokens: int) -> None:
        """Counts tokens that were read or generated."""
        if self._tokens is not None and num_tokens:
            self._tokens.take(num_tokens, self._clock())

    def _refusal(self, limit: str, wait_s: float) -> ApiError:
        return ApiError(
            429,
            f"the key {self._name!r} has reached its limit of {limit}",
            code="rate_limit_exceeded",
            headers={"Retry-After": str(max(1, math.ceil(wait_s)))},
        )


def _bucket(per_minute: int | None, now: float) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute, now)
