"""A folder in Hugging Face's layout: `config.json`, safetensors files and the files of a tokenizer."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.config_fields import ConfigFields
from minivllm_runtime.loader.hf_config import read_hf_config
from minivllm_runtime.loader.hf_tokenizer import load_hf_tokenizer
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_COMPUTED_SUFFIX = ".rotary_emb.inv_freq"
"""Old checkpoints carry these buffers; they follow from the config."""


class SafetensorsCheckpoint:
    """A model folder. Files that neither the index nor the layout names are not looked at.

    Attributes:
        config: Shape and features of the model.
        num_tensors: How many tensors `tensors` yields.

    Raises:
        ModelLoadError: a file is missing, damaged or cut short, or the model is of an unsupported kind.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config: ModelConfig = read_hf_config(folder)
        self._names = _tensor_names(folder)
        self.num_tensors = sum(len(names) for names in self._names.values())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor, one at a time, in the dtype they are stored in.

        Raises:
            ModelLoadError: a file lacks a tensor that the index puts there, or cannot be read.
        """
        for path, names in self._names.items():
            try:
                with safe_open(path, framework="pt") as file:
                    for name in names:
                        yield name, file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise ModelLoadError(f"cannot read {path}: {error}") from error

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer beside the weights.

        Raises:
            ModelLoadError: there is none, or it is damaged.
        """
        return load_hf_tokenizer(self._folder, self.config)


def _tensor_names(folder: Path) -> Mapping[Path, tuple[str, ...]]:
    """Which tensors to read from which file; every file has been opened once, so that damage shows early."""
    index = folder / INDEX_FILE
    single = folder / SINGLE_FILE
    if index.is_file():
        wanted = _indexed_names(index)
        for path, names in wanted.items():
            missing = set(names).difference(_names_in(path))
            if missing:
                raise ModelLoadError(f"{path} lacks {min(missing)}, which {INDEX_FILE} puts there")
    elif single.is_file():
        wanted = {single: _names_in(single)}
    else:
        raise ModelLoadError(f"{folder} has neither {SINGLE_FILE} nor {INDEX_FILE}")
    return {
        path: tuple(n for n in names if not n.endswith(_COMPUTED_SUFFIX)) for path, names in wanted.items()
    }


def _indexed_names(index: Path) -> Mapping[Path, tuple[str, ...]]:
    weight_map = ConfigFields.from_file(index).nested("weight_map")
    if weight_map is None or not weight_map.values:
        raise ModelLoadError(f"{index} is damaged: it names no tensors")
    names: dict[Path, list[str]] = {}
    for name, file_name in weight_map.values.items():
        # A name that leaves the folder would read files that are no part of the model.
        path = Path(str(file_name))
        if path.name != file_name or path.suffix != ".safetensors":
            raise ModelLoadError(f"{index} is damaged: {name} is in {file_name!r}, no safetensors file")
        names.setdefault(index.parent / file_name, []).append(name)
    return {path: tuple(names) for path, names in names.items()}


def _names_in(path: Path) -> tuple[str, ...]:
    try:
        with safe_open(path, framework="pt") as file:
            return tuple(file.keys())
    except FileNotFoundError:
        raise ModelLoadError(f"no such file: {path}") from None
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path} is damaged: {error}") from error
