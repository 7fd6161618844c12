"""A model folder without weights: the shape and the tokenizer are real, random numbers stand in for the rest."""

from pathlib import Path

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.loader.hf_config import read_hf_config
from minivllm_runtime.loader.hf_tokenizer import load_hf_tokenizer
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer


class DummyCheckpoint:
    """A folder with `config.json` and a tokenizer, to measure shapes that have no weights at hand.

    Attributes:
        config: Shape and features of the model.

    Raises:
        InvalidParameter: there is no such folder.
        ModelLoadError: the model is of an unsupported kind.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InvalidParameter(
                "load_format", f"load_format dummy needs a local folder, and there is no folder {folder}"
            )
        self._folder = folder
        self.config: ModelConfig = read_hf_config(folder)

    def load_tokenizer(self) -> Tokenizer:
        """The folder's tokenizer.

        Raises:
            ModelLoadError: there is none, or it is damaged.
        """
        return load_hf_tokenizer(self._folder, self.config)
