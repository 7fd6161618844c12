"""Copies a checkpoint's tensors into a decoder's fused parameters, and refuses whatever does not match exactly."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.models.decoder import Decoder

_HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"


def load_weights(
    model: Decoder, tensors: Iterable[tuple[str, Tensor]], *, on_tensor: Callable[[], None] | None = None
) -> None:
    """Fill `model` from (Hugging Face name, tensor) pairs; `on_tensor` is called after each.

    Raises:
        ModelLoadError: a tensor is unexpected, has the wrong shape or is missing. A redundant head beside a tied
            embedding is skipped.
    """
    targets = _targets(model)
    for name, tensor in tensors:
        if on_tensor is not None:
            on_tensor()
        if name == _HEAD and model.config.tie_word_embeddings:
            continue
        target = targets.pop(name, None)
        if target is None:
            raise ModelLoadError(f"unexpected tensor {name!r} in the checkpoint")
        if target.shape != tensor.shape:
            raise ModelLoadError(
                f"tensor {name!r} has shape {list(tensor.shape)}, expected {list(target.shape)}"
            )
        target.copy_(tensor)
    if targets:
        missing = sorted(targets)
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelLoadError(f"missing from the checkpoint: {', '.join(missing[:3])}{more}")


def dummy_weights(model: Decoder, seed: int = 0) -> None:
    """Fill `model` with small random weights (norms near one), to measure shapes that have no checkpoint at hand."""
    for index, (name, target) in enumerate(sorted(_targets(model).items())):
        generator = torch.Generator(target.device).manual_seed(seed + index)
        target.normal_(1.0 if "norm" in name else 0.0, 0.02, generator=generator)


def _targets(model: Decoder) -> dict[str, Tensor]:
    """Map each Hugging Face name to the part of a parameter that it fills."""
    targets: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():  # a tied head is listed once, as the embedding
        if name == "embed_tokens":
            targets[_EMBEDDING] = parameter.detach()
        elif name == _HEAD:
            targets[_HEAD] = parameter.detach()
        else:
            targets.update(_parts(f"model.{name}", parameter.detach(), model.config))
    return targets


def _parts(name: str, parameter: Tensor, config: ModelConfig) -> dict[str, Tensor]:
    """Split a fused parameter along its rows into the tensors that checkpoints hold."""
    if ".qkv_proj." in name:
        query, key_value = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        fused, rows = "qkv_proj", {"q_proj": query, "k_proj": key_value, "v_proj": key_value}
    elif ".gate_up_proj." in name:
        fused, rows = "gate_up_proj", dict.fromkeys(("gate_proj", "up_proj"), config.intermediate_size)
    else:
        return {name: parameter}
    pieces = torch.split(parameter, list(rows.values()))
    return {name.replace(fused, part): piece for part, piece in zip(rows, pieces, strict=True)}
