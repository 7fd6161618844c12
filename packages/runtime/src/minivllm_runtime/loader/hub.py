"""Fetches a model from the Hugging Face hub into the hub client's own cache."""

import re
from pathlib import Path

from minivllm_runtime.errors import ModelLoadError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_WANTED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt")


def download(model: str) -> Path:
    """The local folder of a hub model, downloaded where the cache lacks it.

    Raises:
        ModelLoadError: `model` is no hub id, the hub does not have it, or the hub cannot be reached.
    """
    if not _HUB_ID.fullmatch(model):
        raise ModelLoadError(f"no such file or folder: {model}")
    # Imported here: the client takes half a second, and local models do not need it.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(_WANTED)))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelLoadError(
            f"{model!r} is no local path, and the hub could not provide it: {reason[0]}"
        ) from error
