"""Changes of the prefix cache, for whoever keeps a copy of its contents, such as a router between engines."""

from enum import StrEnum
from typing import NamedTuple


class BlockEventKind(StrEnum):
    """What happened to a key."""

    STORED = "stored"
    REMOVED = "removed"


class BlockEvent(NamedTuple):
    """One change of the prefix cache.

    Attributes:
        kind: STORED when a block was registered under the key, REMOVED when the block was taken for
            other content.
        key: The full digest that `PrefixKeys.key` gave.
        block_id: The block that carries, or carried, the content.
    """

    kind: BlockEventKind
    key: bytes
    block_id: int
