"""Fetches a model from the Hugging Face hub into the hub client's own cache."""

import re
from pathlib import Path

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.bundled import BUNDLED_MODEL

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_WANTED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt")


def download(model: str) -> Path:
    """The local folder of a hub model, downloaded where the cache lacks it.

    Args:
        model: What is neither the bundled model nor a path.

    Raises:
        ModelLoadError: `model` is no hub id, the hub does not have it, or the hub cannot be reached.
    """
    _check_id(model)
    # Imported here: the client takes half a second, and local models do not need it.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(_WANTED)))
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"no model {model!r}: it is not the bundled one ({BUNDLED_MODEL}), nor a folder or .gguf file; "
            f"{_describe(error)}"
        ) from error


def cached(model: str) -> Path | None:
    """The local folder of a hub model as far as it was downloaded before, None if it was not. The hub is not asked.

    Raises:
        ModelLoadError: `model` is no hub id.
    """
    _check_id(model)
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except errors.LocalEntryNotFoundError:
        return None


def _check_id(model: str) -> None:
    if not _HUB_ID.fullmatch(model):
        raise ModelLoadError(f"no such file or folder: {model}")


def _describe(error: Exception) -> str:
    """Why the hub gave nothing, and what can be done."""
    from huggingface_hub import errors

    match error:
        case errors.LocalEntryNotFoundError(__cause__=errors.OfflineModeIsEnabled()):
            return "the hub is not asked (HF_HUB_OFFLINE is set) and its local cache lacks it: check the name"
        case errors.LocalEntryNotFoundError():
            reason = _first_line(error.__cause__ or error)
            return f"the hub could not be asked ({reason}) and its local cache lacks it: check the name or the network"
        case errors.GatedRepoError():
            return "the hub wants consent to its terms: give it on the model's page, then run `hf auth login`"
        case errors.RepositoryNotFoundError():
            return "the hub has no such model, or a private one: check the name, or run `hf auth login`"
    return f"the hub could not provide it: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
