"""A block of the KV cache as the allocator sees it: number, reference count, key, place in the free list."""


class Block:
    """Metadata of one physical block; the keys and values themselves live elsewhere.

    A block is *in use* while requests hold it, else it waits in the free list. A waiting block with a
    key is *idle cached*: its content is still valid and a request may take it back. A waiting block
    without a key is *unused*.

    Attributes:
        block_id: Index of the block in the KV tensors.
        ref_count: Number of requests whose block table holds this block.
        block_hash: Key under which the prefix cache knows the content; None if it does not.
        prev_free: Neighbour towards the front of the free list; None at the front and while in use.
        next_free: Neighbour towards the back of the free list; None at the back and while in use.
    """

    __slots__ = ("block_hash", "block_id", "next_free", "prev_free", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.block_hash: bytes | None = None
        self.prev_free: Block | None = None
        self.next_free: Block | None = None

    def __repr__(self) -> str:
        key = "no key" if self.block_hash is None else self.block_hash.hex()[:12]
        return f"Block({self.block_id}, ref_count={self.ref_count}, {key})"
