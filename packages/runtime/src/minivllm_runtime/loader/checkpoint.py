"""What every kind of checkpoint offers, and how the name of a model leads to one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from torch import Tensor

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.bundled import BUNDLED_MODEL, bundled_file
from minivllm_runtime.loader.gguf_checkpoint import GGUFCheckpoint
from minivllm_runtime.loader.hub import cached, download
from minivllm_runtime.loader.safetensors_checkpoint import SafetensorsCheckpoint
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer


class Checkpoint(Protocol):
    """Weights, config and tokenizer of one model, whatever the files look like."""

    @property
    def config(self) -> ModelConfig:
        """Shape and features of the model."""

    @property
    def num_tensors(self) -> int:
        """How many tensors `tensors` yields."""

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face's names and tensors, one at a time.

        "model.layers.0.self_attn.q_proj.weight", for example: [num_heads * head_dim, hidden_size]. Rows of q
        and k are in the half-split order of rotary pairs (i, i + head_dim / 2).
        """

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer that belongs to the weights."""


def open_checkpoint(model: str) -> Checkpoint:
    """Finds a model and reads its config; weights are read later.

    Args:
        model: "smollm2" for the model that comes as a Python package, a local folder, a `.gguf` file, or a
            hub id. A local path wins over a hub id of the same name.

    Raises:
        ModelLoadError: with one line that says what is missing, damaged or not supported.
    """
    return _open_path(model) or SafetensorsCheckpoint(download(model))


def open_local_checkpoint(model: str) -> Checkpoint | None:
    """As `open_checkpoint`, without asking a hub; None: only a hub may have the model."""
    if (checkpoint := _open_path(model)) is not None:
        return checkpoint
    folder = cached(model)
    return None if folder is None else SafetensorsCheckpoint(folder)


def _open_path(model: str) -> Checkpoint | None:
    """None if it is no path."""
    if model == BUNDLED_MODEL:
        return GGUFCheckpoint(bundled_file())
    try:
        path = Path(model).expanduser()
        is_folder, is_file, exists = path.is_dir(), path.is_file(), path.exists()
    except (OSError, RuntimeError) as error:  # too long, not ours to look at, the home of nobody
        raise ModelLoadError(f"no such file or folder: {model} ({error})") from error
    if is_folder:
        return SafetensorsCheckpoint(path)
    if exists and not is_file:
        raise ModelLoadError(f"{model} is neither a file nor a folder")
    if is_file or path.suffix == ".gguf":
        return GGUFCheckpoint(path)
    return None
