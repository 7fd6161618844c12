"""Where it is counted what the API keys use: in the only HTTP process, or in the parent of several."""

import time
from collections.abc import Iterable
from typing import Protocol

from minivllm_server.api_keys import ApiKey
from minivllm_server.rate_limit import Account, Clock, Refusal
from minivllm_server.settings import ServerSettings


class Ledger(Protocol):
    """The accounts of all keys that have limits, by the name of the key."""

    async def open_request(self, key_name: str) -> Refusal | None:
        """Counts a request, after which `close_request` must follow; or says why not, and counts nothing.

        Raises:
            ConnectionError: Whoever counts has ended.
        """
        ...

    def close_request(self, key_name: str) -> None:
        """A request that was opened has ended."""
        ...

    def charge_tokens(self, key_name: str, num_tokens: int) -> None:
        """Counts tokens that were read or generated."""
        ...


class LocalLedger:
    """Accounts in this process.

    Args:
        keys: All keys.
        clock: Tells the time.
    """

    def __init__(self, keys: Iterable[ApiKey], clock: Clock) -> None:
        self._accounts = {key.name: Account(key.limits, clock) for key in keys if key.limits.has_any}

    async def open_request(self, key_name: str) -> Refusal | None:
        """See `Ledger`."""
        return self._accounts[key_name].open_request()

    def close_request(self, key_name: str) -> None:
        """See `Ledger`."""
        self._accounts[key_name].close_request()

    def charge_tokens(self, key_name: str, num_tokens: int) -> None:
        """See `Ledger`."""
        self._accounts[key_name].charge_tokens(num_tokens)


def make_ledger(settings: ServerSettings) -> LocalLedger:
    """Returns a new ledger of the keys in the settings."""
    key_ring = settings.key_ring()
    return LocalLedger(() if key_ring is None else key_ring.keys, time.monotonic)
