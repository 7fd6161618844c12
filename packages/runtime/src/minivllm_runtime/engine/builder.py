"""Builds an engine from its configuration: checkpoint, model, KV pool, scheduler, runner."""

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from minivllm_kvcache import KVCacheManager
from minivllm_runtime.config import EngineConfig, SchedulingPolicy
from minivllm_runtime.device.choose_ops import choose_ops
from minivllm_runtime.device.interface import DeviceOps
from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.engine.placement import resolve_device, resolve_dtype
from minivllm_runtime.engine.thread_connection import ThreadConnection
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.loader.checkpoint import Checkpoint, open_checkpoint
from minivllm_runtime.loader.dummy_checkpoint import DummyCheckpoint
from minivllm_runtime.loader.weights import dummy_weights, load_weights
from minivllm_runtime.messages import EngineStats
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.models.decoder import Decoder
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_runtime.worker.memory import (
    activation_bytes,
    check_pool_fits,
    default_num_blocks,
    kv_block_bytes,
    kv_budget_bytes,
)
from minivllm_runtime.worker.model_runner import Model, ModelRunner
from minivllm_scheduler import FCFS, PRIORITY, FairShare, Scheduler, SchedulerConfig, WaitingOrder
from minivllm_scheduler.recording import Event, RecordingScheduler

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total) while an engine is built."""
OnModel = Callable[[ModelConfig], object]
"""Called with the model's shape before its weights are read; what it raises ends the building."""

_DEFAULT_TOKEN_BUDGET = {"cpu": 512, "cuda": 4096}
_DEFAULT_MAX_NUM_SEQS = {"cpu": 64, "cuda": 256}


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine core and what its clients need to know of it.

    Attributes:
        core: Ready for its first command.
        grammars: Compiles the schemas of the core's requests; one that was compiled lately is accepted at once.
        tokenizer: The checkpoint's.
        model_config: Shape of the model.
        dtype, device: Of weights and KV cache.
        kernels: What computes: "PyTorch", "C" or "Triton".
        num_blocks, block_size: Of the KV pool.
        max_model_len: Most tokens of one request.
    """

    core: EngineCore
    grammars: GrammarCompiler
    tokenizer: Tokenizer
    model_config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    kernels: str
    num_blocks: int
    block_size: int
    max_model_len: int

    @property
    def dtype_name(self) -> str:
        """Of weights and KV cache: "bfloat16", for example."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def device_name(self) -> str:
        """Where it runs: "cpu" or "cuda"."""
        return self.device.type

    def stats(self) -> EngineStats:
        """Gauges and counters at this moment."""
        return self.core.stats()

    def connect(self) -> ThreadConnection:
        """A connection to the core, which then runs in a thread of its own."""
        return ThreadConnection(self.core)


def build_engine(
    config: EngineConfig,
    *,
    progress: Progress | None = None,
    on_model: OnModel | None = None,
    record: Callable[[Event], object] | None = None,
) -> BuiltEngine:
    """Load the model that `config` names and build its engine; `record` as in `assemble_engine`.

    What is known without the weights is refused before they are read.

    Raises:
        ModelLoadError: the model is missing, damaged or of an unsupported kind.
        InvalidParameter: a setting does not fit this model or this machine.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    checkpoint = _open_checkpoint(config)
    device, dtype, context = plan_engine(config, checkpoint.config)
    tokenizer = checkpoint.load_tokenizer()
    if on_model is not None:
        on_model(checkpoint.config)
    with _default_dtype(dtype), torch.device(device):
        model = Decoder(checkpoint.config, context)
    _fill(model, checkpoint, progress)
    ops = choose_ops(device, dtype, checkpoint.config)
    model.pack(ops)
    return _assemble(config, _LoadedModel(model, tokenizer, checkpoint.config, dtype, device, ops), record)


class EnginePlan(NamedTuple):
    """What is decided before the weights are read.

    Attributes:
        device, dtype: Of weights and KV cache.
        context: Most positions of one request as far as model and settings go; the pool may allow fewer.
    """

    device: torch.device
    dtype: torch.dtype
    context: int


def plan_engine(config: EngineConfig, model_config: ModelConfig) -> EnginePlan:
    """Decide what needs no weights.

    Raises:
        InvalidParameter: a setting does not fit this model or this machine.
    """
    device = resolve_device(config.device)
    plan = EnginePlan(
        device, resolve_dtype(config.dtype, model_config, device), _resolve_context(config, model_config)
    )
    if config.num_blocks is not None:
        block_bytes = kv_block_bytes(model_config, config.block_size, plan.dtype)
        check_pool_fits(config.num_blocks, block_bytes, device)
    return plan


def assemble_engine(
    config: EngineConfig,
    model: Model,
    tokenizer: Tokenizer,
    model_config: ModelConfig,
    *,
    dtype: torch.dtype,
    device: torch.device,
    record: Callable[[Event], object] | None = None,
) -> BuiltEngine:
    """Put scheduler, KV pool and runner around a model that is already loaded (or scripted, in a test).

    `record` is called with every event of the scheduler; see `minivllm_scheduler.recording`.
    """
    ops = choose_ops(device, dtype, model_config)
    return _assemble(config, _LoadedModel(model, tokenizer, model_config, dtype, device, ops), record)


class _LoadedModel(NamedTuple):
    """A model with its weights, and what computes it where."""

    model: Model
    tokenizer: Tokenizer
    config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    ops: DeviceOps


def _assemble(
    config: EngineConfig, loaded: _LoadedModel, record: Callable[[Event], object] | None
) -> BuiltEngine:
    limits = _resolve_limits(config, loaded.device)
    num_blocks, max_model_len = _size_pool(config, limits, loaded.config, loaded.dtype, loaded.device)
    kv_manager = KVCacheManager(num_blocks, config.block_size, prefix_caching=config.enable_prefix_caching)
    scheduler_config = SchedulerConfig(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=max_model_len,
        max_num_waiting=config.max_num_waiting,
    )
    run_ahead = loaded.device.type == "cuda" if config.run_ahead is None else config.run_ahead
    scheduler = _make_scheduler(scheduler_config, kv_manager, config.scheduling_policy, run_ahead, record)
    num_sampled_ids = min(loaded.tokenizer.vocab_size, loaded.config.vocab_size)
    grammars = GrammarCompiler(loaded.tokenizer, num_sampled_ids)
    core = EngineCore(
        scheduler,
        kv_manager,
        _make_runner(loaded, scheduler_config, num_blocks, config.block_size, num_sampled_ids),
        grammars=grammars,
        max_num_requests=scheduler_config.max_num_requests,
        run_ahead=run_ahead,
    )
    # What exists now lives as long as the engine; a full collection would walk all of it, every time.
    gc.freeze()
    return BuiltEngine(
        core=core,
        grammars=grammars,
        tokenizer=loaded.tokenizer,
        model_config=loaded.config,
        dtype=loaded.dtype,
        device=loaded.device,
        kernels=loaded.ops.kernels,
        num_blocks=num_blocks,
        block_size=config.block_size,
        max_model_len=max_model_len,
    )


def _make_runner(
    loaded: _LoadedModel, limits: SchedulerConfig, num_blocks: int, block_size: int, num_sampled_ids: int
) -> ModelRunner:
    """The runner with its tensors on the device, ready for the first step."""
    config, device = loaded.config, loaded.device
    kv_cache = KVCacheTensors(config, num_blocks, block_size, loaded.dtype, device)
    runner = ModelRunner(
        loaded.model,
        loaded.ops.attention(kv_cache.layers, config.num_heads, 1 / math.sqrt(config.head_dim)),
        kv_cache,
        RequestStates(limits.max_num_seqs, limits.max_model_len, block_size, device),
        num_sampled_ids=num_sampled_ids,
    )
    if device.type == "cuda":
        runner.warm_up(limits.max_num_batched_tokens)
    return runner


def _make_scheduler(
    config: SchedulerConfig,
    kv_manager: KVCacheManager,
    policy: SchedulingPolicy,
    run_ahead: bool,
    record: Callable[[Event], object] | None,
) -> Scheduler:
    order = _waiting_order(policy)
    if record is None:
        return Scheduler(config, kv_manager, order=order)
    return RecordingScheduler(config, kv_manager, run_ahead=run_ahead, record=record, order=order)


def _waiting_order(policy: SchedulingPolicy) -> WaitingOrder:
    match policy:
        case "fcfs":
            return FCFS
        case "priority":
            return PRIORITY
        case "fair":
            return FairShare()  # keeps the clocks of one scheduler


class _Limits(NamedTuple):
    """Of one step, resolved for the device."""

    max_num_seqs: int
    max_num_batched_tokens: int


def _resolve_limits(config: EngineConfig, device: torch.device) -> _Limits:
    """What the settings leave open: as much as the device's default, and never a step too small for its rows."""
    budget = config.max_num_batched_tokens
    max_num_seqs = config.max_num_seqs
    if max_num_seqs is None:
        max_num_seqs = min(_DEFAULT_MAX_NUM_SEQS[device.type], budget or _DEFAULT_TOKEN_BUDGET[device.type])
    return _Limits(max_num_seqs, budget or max(_DEFAULT_TOKEN_BUDGET[device.type], max_num_seqs))


def _open_checkpoint(config: EngineConfig) -> Checkpoint | DummyCheckpoint:
    if config.load_format == "dummy":
        return DummyCheckpoint(Path(config.model).expanduser())
    return open_checkpoint(config.model)


def _fill(model: Decoder, checkpoint: Checkpoint | DummyCheckpoint, progress: Progress | None) -> None:
    """Give the model its weights."""
    if isinstance(checkpoint, DummyCheckpoint):
        dummy_weights(model)
        return
    num_loaded = 0

    def on_tensor() -> None:
        nonlocal num_loaded
        num_loaded += 1
        if progress is not None:
            progress("loading weights", num_loaded, checkpoint.num_tensors)

    load_weights(model, checkpoint.tensors(), on_tensor=on_tensor)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def _resolve_context(config: EngineConfig, model_config: ModelConfig) -> int:
    """Most positions of one request as far as model and settings go; the pool may allow fewer."""
    limit = model_config.max_position_embeddings
    if config.max_model_len is None:
        return limit
    if config.max_model_len > limit:
        raise InvalidParameter(
            "max_model_len",
            f"max_model_len ({config.max_model_len}) is above the model's context of {limit} tokens",
        )
    if config.num_blocks is not None:
        _check_capacity(config.max_model_len, config.num_blocks, config.block_size)
    return config.max_model_len


def _pool_allows(num_blocks: int, block_size: int) -> int:
    """Most tokens of one request: the last one is never computed, so it needs no place in the pool."""
    return num_blocks * block_size + 1


def _check_capacity(max_model_len: int, num_blocks: int, block_size: int) -> None:
    if max_model_len > _pool_allows(num_blocks, block_size):
        raise InvalidParameter(
            "max_model_len",
            f"max_model_len ({max_model_len}) is above the KV pool of {num_blocks * block_size} tokens "
            f"({num_blocks} blocks of {block_size})",
        )


def _size_pool(
    config: EngineConfig,
    limits: _Limits,
    model_config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[int, int]:
    """Blocks in the pool, and the longest request that both context and pool allow."""
    context = _resolve_context(config, model_config)
    block_bytes = kv_block_bytes(model_config, config.block_size, dtype)
    if config.num_blocks is None:
        most_useful = limits.max_num_seqs * -(-context // config.block_size)
        reserved_bytes = activation_bytes(model_config, *limits, dtype) if device.type == "cuda" else 0
        budget_bytes = kv_budget_bytes(device, config.gpu_memory_utilization, reserved_bytes)
        num_blocks = default_num_blocks(block_bytes, most_useful, budget_bytes)
    else:
        num_blocks = config.num_blocks
        check_pool_fits(num_blocks, block_bytes, device)
    if config.max_model_len is not None:
        _check_capacity(config.max_model_len, num_blocks, config.block_size)
    return num_blocks, min(context, _pool_allows(num_blocks, config.block_size))
