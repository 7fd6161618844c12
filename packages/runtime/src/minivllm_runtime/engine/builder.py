"""Builds an engine from its configuration: checkpoint, model, KV pool, scheduler, runner."""

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from minivllm_kvcache import KVCacheManager
from minivllm_runtime.attention.step_attention import AttentionBackend
from minivllm_runtime.attention.torch_backend import TorchAttentionBackend
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.loader.checkpoint import Checkpoint, open_checkpoint
from minivllm_runtime.loader.weights import load_weights
from minivllm_runtime.models.decoder import Decoder
from minivllm_runtime.models.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_runtime.worker.memory import check_pool_fits, default_num_blocks, kv_block_bytes
from minivllm_runtime.worker.model_runner import Model, ModelRunner
from minivllm_runtime.worker.request_states import RequestStates
from minivllm_scheduler import Scheduler, SchedulerConfig
from minivllm_scheduler.recording import Event, RecordingScheduler

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total) while an engine is built."""

_DEFAULT_TOKEN_BUDGET = {"cpu": 512, "cuda": 2048}


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine core and what its clients need to know of it.

    Attributes:
        core: Ready for its first command.
        tokenizer: The checkpoint's.
        model_config: Shape of the model.
        dtype, device: Of weights and KV cache.
        num_blocks, block_size: Of the KV pool.
        max_model_len: Most tokens of one request.
    """

    core: EngineCore
    tokenizer: Tokenizer
    model_config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    num_blocks: int
    block_size: int
    max_model_len: int


def build_engine(
    config: EngineConfig,
    *,
    progress: Progress | None = None,
    record: Callable[[Event], object] | None = None,
) -> BuiltEngine:
    """Load the model that `config` names and build its engine; `record` as in `assemble_engine`.

    Raises:
        ModelLoadError: the model is missing, damaged or of an unsupported kind.
        InvalidParameter: a setting does not fit this model or this machine.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    checkpoint = open_checkpoint(config.model)
    device = _resolve_device(config)
    dtype = _resolve_dtype(config, checkpoint.config, device)
    tokenizer = checkpoint.load_tokenizer()
    context = _resolve_context(config, checkpoint.config)
    model = _load_model(checkpoint, context, dtype, device, progress)
    return assemble_engine(
        config, model, tokenizer, checkpoint.config, dtype=dtype, device=device, record=record
    )


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
    num_blocks, max_model_len = _size_pool(config, model_config, dtype, device)
    kv_manager = KVCacheManager(num_blocks, config.block_size, prefix_caching=config.enable_prefix_caching)
    scheduler_config = SchedulerConfig(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=_token_budget(config, device),
        max_model_len=max_model_len,
        max_num_waiting=config.max_num_waiting,
    )
    kv_cache = KVCacheTensors(model_config, num_blocks, config.block_size, dtype, device)
    runner = ModelRunner(
        model,
        _attention_backend(kv_cache, model_config, device),
        kv_cache,
        RequestStates(config.max_num_seqs, max_model_len, config.block_size, device),
        num_sampled_ids=min(tokenizer.vocab_size, model_config.vocab_size),
    )
    run_ahead = device.type == "cuda" if config.run_ahead is None else config.run_ahead
    if record is None:
        scheduler = Scheduler(scheduler_config, kv_manager)
    else:
        scheduler = RecordingScheduler(scheduler_config, kv_manager, run_ahead=run_ahead, record=record)
    core = EngineCore(
        scheduler,
        kv_manager,
        runner,
        max_num_waiting=config.max_num_waiting,
        run_ahead=run_ahead,
    )
    # What exists now lives as long as the engine; a full collection would walk all of it, every time.
    gc.freeze()
    return BuiltEngine(
        core, tokenizer, model_config, dtype, device, num_blocks, config.block_size, max_model_len
    )


def _token_budget(config: EngineConfig, device: torch.device) -> int:
    if config.max_num_batched_tokens is not None:
        return config.max_num_batched_tokens
    return max(_DEFAULT_TOKEN_BUDGET[device.type], config.max_num_seqs)


def _load_model(
    checkpoint: Checkpoint, context: int, dtype: torch.dtype, device: torch.device, progress: Progress | None
) -> Decoder:
    with _default_dtype(dtype), torch.device(device):
        model = Decoder(checkpoint.config, context)
    num_loaded = 0

    def on_tensor() -> None:
        nonlocal num_loaded
        num_loaded += 1
        if progress is not None:
            progress("loading weights", num_loaded, checkpoint.num_tensors)

    load_weights(model, checkpoint.tensors(), on_tensor=on_tensor)
    model.pack()
    return model


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def _attention_backend(
    kv_cache: KVCacheTensors, config: ModelConfig, device: torch.device
) -> AttentionBackend:
    scale = 1 / math.sqrt(config.head_dim)
    if device.type == "cuda":
        # Imported here: a CPU needs no kernels.
        from minivllm_runtime.attention.triton_backend import TritonAttentionBackend

        return TritonAttentionBackend(kv_cache.layers, config.num_heads, scale)
    return TorchAttentionBackend(kv_cache.layers, config.num_heads, scale)


def _resolve_device(config: EngineConfig) -> torch.device:
    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise InvalidParameter("device", "device is cuda, but no CUDA device is available")
    return torch.device("cuda" if available and config.device != "cpu" else "cpu")


def _resolve_dtype(config: EngineConfig, model_config: ModelConfig, device: torch.device) -> torch.dtype:
    name: str = config.dtype
    if name == "auto":
        if device.type == "cuda":
            name = model_config.checkpoint_dtype
        else:
            multiplies_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
            name = "bfloat16" if multiplies_bfloat16 else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


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
    return config.max_model_len


def _size_pool(
    config: EngineConfig, model_config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> tuple[int, int]:
    """Blocks in the pool, and the longest request that both context and pool allow."""
    context = _resolve_context(config, model_config)
    block_bytes = kv_block_bytes(model_config, config.block_size, dtype)
    if config.num_blocks is None:
        most_useful = config.max_num_seqs * -(-context // config.block_size)
        num_blocks = default_num_blocks(block_bytes, most_useful, device)
    else:
        num_blocks = config.num_blocks
        check_pool_fits(num_blocks, block_bytes, device)
    capacity = num_blocks * config.block_size
    # The last token of a request is never computed, so it needs no place in the pool.
    longest = min(context, capacity + 1)
    if config.max_model_len is not None and config.max_model_len > longest:
        raise InvalidParameter(
            "max_model_len",
            f"max_model_len ({config.max_model_len}) is above the KV pool of {capacity} tokens "
            f"({num_blocks} blocks of {config.block_size})",
        )
    return num_blocks, longest
