"""Hugging Face `generate`: the whole batch at once, left padded, with KV cache and fused attention."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from minivllm_bench.engines.interface import Completion, DType, EngineSettings, TimedRun
from minivllm_bench.engines.model_source import ModelSource, find_model
from minivllm_bench.errors import EngineFailed
from minivllm_bench.workloads import BenchRequest

PAD_ID = 0
"""Masked wherever it stands for padding, so any id would do."""


class HfEngine:
    """`transformers` in its usual best form: sdpa attention, KV cache, inference mode, one static batch."""

    def __init__(self, model: Any, tokenizer: Any, settings: EngineSettings) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._num_threads = settings.num_threads
        model.generation_config = generation_config(settings.temperature)

    @classmethod
    def load(cls, settings: EngineSettings) -> Self:
        """Read model and tokenizer.

        Raises:
            EngineFailed: the model is missing, damaged or unknown to transformers.
        """
        return cls(*load(settings), settings)

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return int(self._model.get_input_embeddings().num_embeddings)

    def run(self, requests: Sequence[BenchRequest]) -> TimedRun:
        """See `Engine.run`. The batch runs on until its longest request ends; surplus tokens are cut off."""
        torch.set_num_threads(self._num_threads)
        started = time.perf_counter()
        rows = self._generate(requests)
        texts = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        seconds = time.perf_counter() - started
        completions = (Completion(tuple(ids), text) for ids, text in zip(rows, texts, strict=True))
        return TimedRun(tuple(completions), seconds)

    def close(self) -> None:
        """Drop the weights."""
        del self._model

    def _generate(self, requests: Sequence[BenchRequest]) -> list[list[int]]:
        input_ids, attention_mask = left_pad([request.prompt_token_ids for request in requests], PAD_ID)
        with torch.inference_mode():
            output_ids = self._model.generate(
                input_ids.to(self._model.device),
                attention_mask=attention_mask.to(self._model.device),
                max_new_tokens=max(request.output_len for request in requests),
            )
        new_ids = output_ids[:, input_ids.shape[1] :].tolist()
        return [ids[: request.output_len] for ids, request in zip(new_ids, requests, strict=True)]


def generation_config(temperature: float) -> GenerationConfig:
    """Plain sampling without end; the checkpoint's own config may name end-of-sequence ids, top-k and the like."""
    if temperature == 0:
        return GenerationConfig(do_sample=False, use_cache=True, pad_token_id=PAD_ID)
    return GenerationConfig(
        do_sample=True, temperature=temperature, top_k=0, top_p=1.0, use_cache=True, pad_token_id=PAD_ID
    )


def load(settings: EngineSettings) -> tuple[Any, Any]:
    """Model, on its device and ready to generate, and tokenizer.

    Raises:
        EngineFailed: the model is missing, damaged or unknown to transformers.
    """
    if settings.dummy_weights:
        model, tokenizer = load_dummy(settings.model, settings.dtype)
    else:
        model, tokenizer = load_pretrained(find_model(settings.model), settings.dtype)
    return model.eval().to(settings.device), tokenizer


def load_dummy(folder: str, dtype: DType) -> tuple[Any, Any]:
    """Model with the random weights that transformers starts training from, and tokenizer, of a folder without weights.

    Raises:
        EngineFailed: the folder's config is unknown to transformers.
    """
    try:
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        )
        return model, AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise _cannot_load(folder, error) from error


def load_pretrained(source: ModelSource, dtype: DType) -> tuple[Any, Any]:
    """Model and tokenizer as transformers loads them, every weight in `dtype`.

    Raises:
        EngineFailed: the model is missing, damaged or unknown to transformers.
    """
    logging.disable_progress_bar()
    name = source.gguf_file or source.location
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.location, gguf_file=source.gguf_file)
        model = AutoModelForCausalLM.from_pretrained(
            source.location,
            dtype=getattr(torch, dtype),
            attn_implementation="sdpa",
            **_gguf_options(source),
        )
    except (OSError, ValueError, KeyError) as error:
        raise _cannot_load(name, error) from error
    found = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    if found != {dtype}:
        raise EngineFailed(f"hf loaded {name} in {', '.join(sorted(found))}, asked for {dtype}")
    return model, tokenizer


def _cannot_load(name: str, error: Exception) -> EngineFailed:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return EngineFailed(f"hf cannot load {name}: {reason}")


def _gguf_options(source: ModelSource) -> dict[str, Any]:
    """Arguments that load a GGUF file with dense weights: packed ones are slower at this, an unfair peer."""
    if source.gguf_file is None:
        return {}
    try:
        from transformers import GgufConfig
    except ImportError:  # Versions without it have no packed form.
        return {"gguf_file": source.gguf_file}
    return {"gguf_file": source.gguf_file, "quantization_config": GgufConfig(dequantize=True)}


def save_folder(settings: EngineSettings, folder: Path) -> None:
    """Write the model as a Hugging Face folder with weights, for engines that read nothing else.

    Raises:
        EngineFailed: the model is missing, damaged or unknown to transformers.
    """
    for part in load(dataclasses.replace(settings, device="cpu")):
        part.save_pretrained(folder)


def left_pad(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts as one rectangle, aligned at the right, where generation goes on.

    Args:
        prompts: B prompts of at least one id each.
        pad_id: Fills the room on the left.

    Returns:
        (input_ids, attention_mask): int64 [B, W] on the CPU, W the longest prompt; the mask is 1 on real ids.
    """
    width = max(len(prompt) for prompt in prompts)
    input_ids = torch.tensor([[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    attention_mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return input_ids, attention_mask
