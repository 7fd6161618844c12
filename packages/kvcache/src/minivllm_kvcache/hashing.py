"""Keys of the prefix cache: a SHA-256 digest per full block stands for the whole prefix up to its end."""

import struct
from collections.abc import Iterable, Sequence
from hashlib import sha256

from minivllm_kvcache.errors import InvalidArgument


class PrefixKeys:
    """The known token ids of one request, and the key of each block that they fill.

        key(-1) = SHA-256(SHA-256(salt))                             the root, never a key itself
        key(i)  = SHA-256(key(i - 1) ‖ ids of block i as 4-byte little-endian integers)

    Equal keys therefore mean equal salt and equal ids from position 0 on, in the same order: no
    comparison of ids is needed after a lookup. The root's input has 32 bytes and a block's has more, so
    no salt can be chosen to stand for somebody's prefix. Every block is hashed once, when its key is
    first asked for. The object belongs to the request and outlives preemption.

    Args:
        token_ids: Ids known at the start, each in [0, 2³²). A `range` is kept as it is, anything else
            as a tuple, so that the caller's list may change afterwards.
        block_size: Tokens per block.
        salt: Requests with different salts never share blocks.

    Attributes:
        appended: Ids that became known since the start. Only ever append to it; to do so directly saves the call of
            `append`, once per request and step.

    Raises:
        InvalidArgument: `block_size` is less than 1.
    """

    __slots__ = ("_block_size", "_digests", "_encoding", "_given", "_root", "appended")

    def __init__(self, token_ids: Sequence[int], block_size: int, salt: str = "") -> None:
        if block_size < 1:
            raise InvalidArgument(f"block_size is {block_size}, it must be at least 1")
        self._given: Sequence[int] = token_ids if isinstance(token_ids, range) else tuple(token_ids)
        self.appended: list[int] = []
        self._block_size = block_size
        self._encoding = struct.Struct(f"<{block_size}I")
        self._root = sha256(sha256(salt.encode("utf-8", "surrogatepass")).digest()).digest()
        self._digests: list[bytes] = []

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._block_size

    @property
    def num_tokens(self) -> int:
        """Number of known ids, those given at the start and those added since."""
        return len(self._given) + len(self.appended)

    def append(self, token_id: int) -> None:
        """Adds one id that became known, typically a sampled one."""
        self.appended.append(token_id)

    def extend(self, token_ids: Iterable[int]) -> None:
        """Adds ids that became known, in order."""
        self.appended.extend(token_ids)

    def token(self, position: int) -> int:
        """Returns the id at `position`, which must be in [0, num_tokens).

        Raises:
            InvalidArgument: No id is known at `position`.
        """
        if not 0 <= position < self.num_tokens:
            raise InvalidArgument(f"position {position} is outside the {self.num_tokens} known ids")
        num_given = len(self._given)
        return self._given[position] if position < num_given else self.appended[position - num_given]

    def tokens(self, start: int = 0, stop: int | None = None) -> Sequence[int]:
        """Returns the known ids at positions [start, stop), `stop` defaulting to all of them.

        The result never changes later. It is not copied where it lies within a `range` given at the start.

        Raises:
            InvalidArgument: Not 0 <= start <= stop <= num_tokens.
        """
        num_tokens = self.num_tokens
        stop = num_tokens if stop is None else stop
        if not 0 <= start <= stop <= num_tokens:
            raise InvalidArgument(f"[{start}, {stop}) is outside the {num_tokens} known ids")
        num_given = len(self._given)
        if stop <= num_given:
            return self._given[start:stop]
        if start >= num_given:
            return tuple(self.appended[start - num_given : stop - num_given])
        return (*self._given[start:], *self.appended[: stop - num_given])

    def key(self, index: int) -> bytes:
        """Returns the 32-byte key of block `index`, of the ids at positions [0, (index + 1) · block_size).

        Raises:
            InvalidArgument: `index` is negative, the block is not filled by known ids, or an id is
                outside [0, 2³²).
        """
        num_full_blocks = self.num_tokens // self._block_size
        if not 0 <= index < num_full_blocks:
            raise InvalidArgument(f"block {index} has no key: known ids fill {num_full_blocks} blocks")
        digests = self._digests
        while len(digests) <= index:
            digests.append(self._hash_next_block())
        return digests[index]

    def _hash_next_block(self) -> bytes:
        index = len(self._digests)
        parent = self._digests[-1] if self._digests else self._root
        ids = self.tokens(index * self._block_size, (index + 1) * self._block_size)
        try:
            encoded = self._encoding.pack(*ids)
        except struct.error as error:
            raise InvalidArgument(f"token ids of block {index} must be in [0, 2**32): {ids!r}") from error
        return sha256(parent + encoded).digest()
