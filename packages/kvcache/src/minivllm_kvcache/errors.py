"""Everything this package raises on purpose. "No room now" is not an error: calls answer `None` for it.

KVCacheError
├── InvalidArgument (ValueError)     a size, a count or a token id is out of its range
├── UnknownRequest (LookupError)     the request holds no blocks: never allocated, or freed already
├── DuplicateRequest (ValueError)    the request holds blocks already
└── BlockNotInUse (ValueError)       a block was freed more often than it was taken
"""


class KVCacheError(Exception):
    """Base of all errors that this package raises on purpose."""


class InvalidArgument(KVCacheError, ValueError):
    """An argument is out of its range; the message names the value and the limit."""


class UnknownRequest(KVCacheError, LookupError):
    """The request holds no blocks: it was never allocated, or was freed already."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id!r} holds no blocks")
        self.request_id = request_id


class DuplicateRequest(KVCacheError, ValueError):
    """The request holds blocks already; it must be freed before it is allocated again."""

    def __init__(self, request_id: str, num_blocks: int) -> None:
        super().__init__(f"request {request_id!r} holds {num_blocks} blocks already")
        self.request_id = request_id


class BlockNotInUse(KVCacheError, ValueError):
    """A block without references was freed."""

    def __init__(self, block_id: int) -> None:
        super().__init__(f"block {block_id} has no references left to give back")
        self.block_id = block_id
