"""The tokenizer of a Hugging Face folder.

`tokenizer.json` holds a whole tokenizer, and `transformers` takes seconds to import; so the file is used
directly where `transformers` would use it as it is. Some of its tokenizer classes build parts anew instead;
unless the file has the very same parts, they are left to do so.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.config_fields import ConfigFields
from minivllm_runtime.loader.word_patterns import QWEN2_WORDS
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer

_GENERIC_CLASSES = ("TokenizersBackend", "PreTrainedTokenizer")
_QWEN2_PARTS: tuple[Any, Any] = (
    {"type": "NFC"},
    {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": QWEN2_WORDS},
                "behavior": "Isolated",
                "invert": False,
            },
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ],
    },
)
_GPT2_PARTS: tuple[Any, Any] = (None, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True})
"""Normalizer and pre-tokenizer that the class of this name builds; `trim_offsets` does not matter to ids."""


def load_hf_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """The tokenizer in `folder`, whose ids are those of `transformers.AutoTokenizer`.

    Args:
        folder: Has `config.json` and the files of a tokenizer.
        config: The model's; its end-of-sequence ids are added to the tokenizer's own.

    Raises:
        ModelLoadError: there is no tokenizer, or it is damaged or of an unknown kind.
    """
    settings = _settings(folder)
    backend = _backend_as_it_is(folder, settings)
    if backend is None:
        return _load_with_transformers(folder, config)
    for token in _added_tokens(settings):
        (backend.add_special_tokens if token.special else backend.add_tokens)([token])
    return Tokenizer(
        backend,
        special_tokens=_named_tokens(settings.values),
        eos_token_ids=config.eos_token_ids,
        chat_template=_chat_template(folder, settings.get("chat_template")),
    )


def _settings(folder: Path) -> ConfigFields:
    path = folder / "tokenizer_config.json"
    return ConfigFields.from_file(path) if path.is_file() else ConfigFields(str(path), {})


def _backend_as_it_is(folder: Path, settings: ConfigFields) -> Backend | None:
    """`tokenizer.json`, or None where it is missing or `transformers` would not use all of it."""
    path = folder / "tokenizer.json"
    old_layout = (
        "added_tokens_decoder" not in settings.values and (folder / "special_tokens_map.json").is_file()
    )
    if not path.is_file() or old_layout or "auto_map" in settings.values:
        return None
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise ModelLoadError(f"{path} is damaged: {error}") from error
    model_type = ConfigFields.from_file(folder / "config.json").get("model_type")
    return backend if _is_used_as_it_is(backend, model_type, settings.get("tokenizer_class")) else None


def _is_used_as_it_is(backend: Backend, model_type: object, class_name: object) -> bool:
    parts = (_ids_relevant(backend.normalizer), _ids_relevant(backend.pre_tokenizer))
    name = str(class_name).removesuffix("Fast")
    if model_type in ("qwen2", "qwen3"):
        return class_name is not None and parts == _QWEN2_PARTS
    if model_type != "llama":
        return False
    if name == "LlamaTokenizer":  # SentencePiece is built anew, byte-level BPE is not
        return '"ByteLevel"' in json.dumps(parts)
    return name in _GENERIC_CLASSES or (name == "GPT2Tokenizer" and parts == _GPT2_PARTS)


def _ids_relevant(component: Any) -> Any:
    """What a normalizer or pre-tokenizer consists of, as JSON."""
    if component is None:
        return None
    return json.loads(component.__getstate__(), object_hook=_without_trim_offsets)


def _without_trim_offsets(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != "trim_offsets"}


def _added_tokens(settings: ConfigFields) -> list[AddedToken]:
    """Tokens that the settings add to those of `tokenizer.json`, or whose flags they change."""
    added = settings.get("added_tokens_decoder") or {}
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    try:
        tokens = [AddedToken(**added[key]) for key in sorted(added, key=int)]
        known = {token.content for token in tokens}
        names = [_text(token) for token in (extra.values() if isinstance(extra, dict) else extra)]
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelLoadError(f"{settings.source} is damaged: {error}") from error
    return tokens + [
        AddedToken(n, special=True, normalized=False) for n in names if n is not None and n not in known
    ]


def _named_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """The values of "bos_token", "eos_token" and the like."""
    names = {key: _text(value) for key, value in settings.items() if key.endswith("_token")}
    return {key: text for key, text in names.items() if text is not None}


def _text(token: object) -> str | None:
    """A token is written as its text or as an object with flags."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _chat_template(folder: Path, setting: object) -> str | None:
    """`chat_template.jinja` if it exists, else the setting: a template or a list of named ones."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"cannot read {path}: {error}") from error
    if isinstance(setting, list):
        setting = {entry.get("name"): entry.get("template") for entry in setting if isinstance(entry, dict)}
    if isinstance(setting, dict):
        setting = setting.get("default")
    return setting if isinstance(setting, str) else None


def _load_with_transformers(folder: Path, config: ModelConfig) -> Tokenizer:
    # Imported here: it takes seconds, and most models do not need it.
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        backend = loaded.backend_tokenizer
    except Exception as error:  # whatever a damaged or exotic tokenizer leads to
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelLoadError(f"cannot load a tokenizer from {folder}: {reason[0]}") from error
    return Tokenizer(
        backend,
        special_tokens=_named_tokens(loaded.special_tokens_map),
        eos_token_ids=config.eos_token_ids,
        chat_template=_chat_template(folder, loaded.chat_template),
    )
