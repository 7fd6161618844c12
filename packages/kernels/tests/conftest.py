"""Without a CUDA device the kernels run in Triton's interpreter, chosen before triton is imported."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest
import torch

from minivllm_kernels.head_norms import HeadNorms

if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise pytest.UsageError(
            "triton was imported before TRITON_INTERPRET=1 could be set for its kernels' tests"
        )
    os.environ["TRITON_INTERPRET"] = "1"

INVALID_BLOCK = 2**30


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """The arguments of the paged attention ops, and the same keys and values in token order."""

    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    query_start_loc: torch.Tensor
    context_lens: torch.Tensor
    max_query_len: int
    scale: float
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]

    def sdpa(self) -> torch.Tensor:
        """PyTorch's own attention on the contiguous keys and values, in float32."""
        outputs = []
        starts = self.query_start_loc.tolist()
        for i, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            query = self.query[starts[i] : starts[i + 1]]
            positions = torch.arange(len(keys), device=query.device)
            visible = positions <= positions[len(keys) - len(query) :, None]
            outputs.append(
                torch.nn.functional.scaled_dot_product_attention(
                    *(x.float().transpose(0, 1)[None] for x in (query, keys, values)),
                    attn_mask=visible,
                    scale=self.scale,
                    enable_gqa=True,
                )[0].transpose(0, 1)
            )
        return torch.cat(outputs)


def build_paged_batch(
    device: torch.device,
    context_lens: Sequence[int],
    query_lens: Sequence[int] | None = None,
    *,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    table_width: int | None = None,
) -> PagedBatch:
    """Scatter random contexts over a pool full of NaN, in random order; ids past a table's end are invalid.

    Each request has one query token unless `query_lens` is given.
    """
    generator = torch.Generator().manual_seed(sum(context_lens) + head_dim)
    num_heads, num_kv_heads = heads
    query_lens = query_lens or [1] * len(context_lens)
    blocks_needed = [-(-n // block_size) for n in context_lens]
    num_blocks = sum(blocks_needed) + 3
    free = torch.randperm(num_blocks, generator=generator).tolist()
    pool = torch.full((2, num_blocks, num_kv_heads, block_size, head_dim), float("nan")).to(dtype)
    tables = torch.full(
        (len(context_lens), table_width or max(blocks_needed) + 2), INVALID_BLOCK, dtype=torch.int32
    )
    contexts = []
    for row, length in enumerate(context_lens):
        kv = torch.randn((2, length, num_kv_heads, head_dim), generator=generator).to(dtype)
        contexts.append(kv.to(device))
        ids = [free.pop() for _ in range(blocks_needed[row])]
        tables[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        for position in range(length):
            pool[:, ids[position // block_size], :, position % block_size] = kv[:, position]
    starts = torch.tensor([0, *query_lens]).cumsum(0)
    query = torch.randn((int(starts[-1]), num_heads, head_dim), generator=generator).to(dtype)
    return PagedBatch(
        query=query.to(device),
        key_cache=pool[0].to(device),
        value_cache=pool[1].to(device),
        block_tables=tables.to(device),
        query_start_loc=starts.int().to(device),
        context_lens=torch.tensor(context_lens, dtype=torch.int32, device=device),
        max_query_len=max(query_lens),
        scale=head_dim**-0.5,
        keys=tuple(kv[0] for kv in contexts),
        values=tuple(kv[1] for kv in contexts),
    )


@contextmanager
def fresh_memory_is_nan() -> Iterator[None]:
    """Fill every new tensor with NaN, so that an element that a kernel fails to write shows."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(1).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    """What a test draws depends on no other test."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session")
def paged_batch() -> Callable[..., PagedBatch]:
    return build_paged_batch


@pytest.fixture(params=[False, True], ids=["plain", "normalized"])
def head_norms(request: pytest.FixtureRequest, device: torch.device) -> Callable[..., HeadNorms | None]:
    """Norms of queries and keys of a head size with random weights of a dtype, or none."""

    def build(head_dim: int, dtype: torch.dtype) -> HeadNorms | None:
        if not request.param:
            return None
        query, key = (1 + torch.randn((2, head_dim), device=device) / 4).to(dtype).float()
        return HeadNorms(query, key, 1e-3)

    return build


@pytest.fixture(scope="session")
def poisoned() -> Callable[[], AbstractContextManager[None]]:
    return fresh_memory_is_nan


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
