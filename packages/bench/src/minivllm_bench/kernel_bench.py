"""The operations of a decoder on a CUDA device, each against the time that its bytes and its arithmetic take at least.

Every operation is captured in a CUDA graph that runs it over several sets of inputs, more than the cache holds, and
the median of several replays counts: neither launches nor repeated reads flatter it or hurt it.
"""

import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from minivllm_bench.attention_peers import AttentionShape, attention_peers
from minivllm_runtime.attention.rotary import RotaryTables
from minivllm_runtime.attention.step_attention import BatchLayout
from minivllm_runtime.device.choose_ops import choose_ops
from minivllm_runtime.device.interface import DeviceOps, Projection
from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.sampling.step_sampler import StepSampler
from minivllm_scheduler.simulation import DeviceSheet

_BLOCK_SIZE = 16
_WORKING_SET_BYTES = 2**28
"""Several times the largest cache of a GPU."""
_REPLAYS = 15
_SAMPLING = {
    "greedy": (0.0, 1.0, 0.0, 0),
    "temperature": (0.6, 1.0, 0.0, 0),
    "top-p 0.95": (0.6, 0.95, 0.0, 0),
    "top-k 20": (0.6, 1.0, 0.0, 20),
    "both": (0.6, 0.95, 0.0, 20),
    "min-p 0.1": (0.6, 1.0, 0.1, 0),
}
"""Temperature, top_p, min_p and top_k."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One operation on one shape.

    Attributes:
        operation: Its name and what it works on.
        seconds: Of one call.
        moved_bytes: Inputs read once and outputs written once.
        flops: Multiplications and additions.
        least_seconds: What the device's copy and product rates allow.
    """

    operation: str
    seconds: float
    moved_bytes: int
    flops: int
    least_seconds: float


@dataclass(frozen=True, slots=True)
class _Case:
    operation: str
    moved_bytes: int
    flops: int
    make: Callable[[], Callable[[], object]]
    """Draws a set of inputs and returns the call on it."""
    is_peer: bool = False
    """Whether somebody else wrote the kernel."""


def measure_kernels(
    shape: ModelConfig,
    dtype: torch.dtype,
    ceilings: DeviceSheet,
    *,
    rows: Sequence[int],
    contexts: Sequence[int],
) -> tuple[KernelCost, ...]:
    """Time the operations of a model's shape on the current CUDA device.

    Args:
        shape: Of the model.
        dtype: Of weights, activations and KV cache.
        ceilings: Measured rates of the device.
        rows: Numbers of tokens for projections and norms, and of requests for sampling and decode attention.
        contexts: Tokens of each request for decode attention, then their mean in ragged batches; prompts of that length
            for prefill attention.

    Returns:
        A cost per operation; behind each attention those of the installed peers on the same shape. A peer that fails is
        left out, with a line on stderr.
    """
    bench = _Bench(shape, dtype)
    costs = (_measure_if_it_runs(case, ceilings) for case in bench.cases(rows, contexts))
    return tuple(cost for cost in costs if cost is not None)


def _measure_if_it_runs(case: _Case, ceilings: DeviceSheet) -> KernelCost | None:
    """The cost of a case; None if it is a peer's, and fails."""
    try:
        return _measure(case, ceilings)
    except Exception as error:
        if not case.is_peer:
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"minivllm-bench: {case.operation} fails: {reason}", file=sys.stderr)
        return None


def _measure(case: _Case, ceilings: DeviceSheet) -> KernelCost:
    num_sets = max(2, min(32, _WORKING_SET_BYTES // case.moved_bytes + 1))
    with torch.inference_mode():
        calls = [case.make() for _ in range(num_sets)]
        for call in calls:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [call() for call in calls]
        seconds = statistics.median(_replay_seconds(graph) for _ in range(_REPLAYS)) / num_sets
    del kept
    least = max(case.moved_bytes / ceilings.bytes_per_s, case.flops / ceilings.flops_per_s)
    return KernelCost(case.operation, seconds, case.moved_bytes, case.flops, least)


def _replay_seconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


class _Bench:
    """Makes the cases of one model's shape."""

    def __init__(self, shape: ModelConfig, dtype: torch.dtype) -> None:
        self._shape = shape
        self._dtype = dtype
        self._ops: DeviceOps = choose_ops(torch.device("cuda"), dtype, shape)

    def cases(self, rows: Sequence[int], contexts: Sequence[int]) -> Iterator[_Case]:
        """All cases, projections first."""
        shape = self._shape
        hidden, heads = shape.hidden_size, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
        for num_rows in rows:
            yield self._product("qkv", num_rows, heads, hidden, self._ops.linear)
            yield self._product(
                "o", num_rows, hidden, shape.num_heads * shape.head_dim, self._ops.residual_linear
            )
            yield self._product(
                "gate, up and silu",
                num_rows,
                2 * shape.intermediate_size,
                hidden,
                self._ops.gated_linear,
                is_gated=True,
            )
            yield self._product("down", num_rows, hidden, shape.intermediate_size, self._ops.residual_linear)
            yield self._product("head", num_rows, shape.vocab_size, hidden, self._ops.linear)
            yield self._norm(num_rows)
            for kind, parameters in _SAMPLING.items():
                yield self._sampling(f"sample, {kind}", num_rows, *parameters)
        for context in contexts:
            for num_rows in rows:
                yield from self._attentions(f"decode attention, context {context}", num_rows, context, 1)
            for num_rows in rows:
                if num_rows > 1:
                    lengths = _ragged(num_rows, context)
                    yield self._attention(f"decode attention, ragged around {context}", lengths, 1)
        for context in contexts:
            yield from self._attentions(
                f"prefill attention, prompts of {context}", max(1, 4096 // context), context, context
            )

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self._dtype, device="cuda")

    def _product(
        self,
        name: str,
        num_rows: int,
        num_outputs: int,
        num_inputs: int,
        bind: Callable[[Tensor, None], Projection],
        *,
        is_gated: bool = False,
    ) -> _Case:
        def make() -> Callable[[], object]:
            weight, x = self._random(num_outputs, num_inputs), self._random(num_rows, num_inputs)
            project = bind(weight, None)
            return lambda: project(x)

        width = num_outputs // 2 if is_gated else num_outputs
        elements = num_outputs * num_inputs + num_rows * (num_inputs + width)
        flops = 2 * num_rows * num_outputs * num_inputs
        return _Case(f"{name}, {num_rows} rows", elements * self._dtype.itemsize, flops, make)

    def _norm(self, num_rows: int) -> _Case:
        hidden = self._shape.hidden_size

        def make() -> Callable[[], object]:
            x, residual = self._random(num_rows, hidden), self._random(num_rows, hidden)
            norm = self._ops.rms_norm(torch.ones(hidden, device="cuda"), 1e-5)
            return lambda: norm.add(x, residual)

        return _Case(f"add and norm, {num_rows} rows", 4 * num_rows * hidden * self._dtype.itemsize, 0, make)

    def _sampling(
        self, name: str, num_rows: int, temperature: float, top_p: float, min_p: float, top_k: int
    ) -> _Case:
        vocab_size = self._shape.vocab_size

        def make() -> Callable[[], object]:
            logits = 3 * self._random(num_rows, vocab_size)
            states = RequestStates(num_rows, 1, _BLOCK_SIZE, torch.device("cuda"))
            states.sampling.floats[:] = torch.tensor([temperature, top_p, min_p])
            states.sampling.integers[:, 0] = top_k
            sampler = StepSampler(states, vocab_size)
            slots = torch.arange(num_rows, device="cuda")
            positions = torch.zeros_like(slots)
            return lambda: sampler.draw(logits, slots, positions)

        return _Case(f"{name}, {num_rows} rows", num_rows * vocab_size * self._dtype.itemsize, 0, make)

    def _attentions(self, name: str, num_rows: int, context: int, query_len: int) -> Iterator[_Case]:
        """Our attention, then that of the peers."""
        ours = self._attention(name, [context] * num_rows, query_len)
        yield ours
        shape = AttentionShape(
            num_requests=num_rows,
            query_len=query_len,
            context_len=context,
            num_heads=self._shape.num_heads,
            num_kv_heads=self._shape.num_kv_heads,
            head_dim=self._shape.head_dim,
            dtype=self._dtype,
            device="cuda",
        )
        for peer, make in attention_peers(shape):
            yield replace(ours, operation=f"{ours.operation}, {peer}", make=make, is_peer=True)

    def _attention(self, name: str, context_lens: Sequence[int], query_len: int) -> _Case:
        shape, num_rows, head_dim = self._shape, len(context_lens), self._shape.head_dim
        num_tokens, num_heads = num_rows * query_len, shape.num_heads + 2 * shape.num_kv_heads
        most_blocks = -(-max(context_lens) // _BLOCK_SIZE)

        def make() -> Callable[[], object]:
            pool = self._random(2, num_rows * most_blocks + 1, shape.num_kv_heads, _BLOCK_SIZE, head_dim)
            tables = torch.randperm(num_rows * most_blocks, device="cuda").int().view(num_rows, most_blocks)
            ends = torch.tensor(context_lens, device="cuda")
            positions = (ends[:, None] - query_len + torch.arange(query_len, device="cuda")).flatten()
            blocks = tables.long().repeat_interleave(query_len, dim=0)
            block_ids = blocks.gather(1, (positions // _BLOCK_SIZE)[:, None]).squeeze(1)
            layout = BatchLayout(
                query_lens=(query_len,) * num_rows,
                context_lens=tuple(context_lens),
                query_start_loc=torch.arange(0, num_tokens + 1, query_len, dtype=torch.int32, device="cuda"),
                context_lens_device=ends.int(),
                block_tables=tables,
                slot_mapping=block_ids * _BLOCK_SIZE + positions % _BLOCK_SIZE,
                longest_first=ends.argsort(descending=True, stable=True).int(),
            )
            rotary = RotaryTables(positions, torch.rand(max(context_lens), head_dim, device="cuda"))
            heads = self._random(num_tokens, num_heads, head_dim)
            step = self._ops.attention([pool], shape.num_heads, head_dim**-0.5).plan(layout)
            return lambda: step.attend(0, heads, rotary)

        elements = 2 * sum(context_lens) * shape.num_kv_heads * head_dim
        elements += num_tokens * (num_heads + shape.num_heads) * head_dim
        pairs = sum(
            query_len * (context - query_len) + query_len * (query_len + 1) // 2 for context in context_lens
        )
        flops = 4 * pairs * shape.num_heads * head_dim
        return _Case(f"{name}, {num_rows} requests", elements * self._dtype.itemsize, flops, make)


def _ragged(num_requests: int, mean: int) -> list[int]:
    """Lengths from an eighth of the mean to fifteen eighths, evenly spaced, in random order."""
    step = (mean - mean // 8) / (num_requests - 1)
    lengths = [max(round(mean // 8 + 2 * step * index), 1) for index in range(num_requests)]
    random.Random(0).shuffle(lengths)  # noqa: S311 - the same on every machine
    return lengths
