"""Builds a tokenizer from the metadata of a GGUF file.

`tokenizer.ggml.model` says how text becomes tokens: "gpt2" is byte-level BPE, with the merges and the name of
a rule that cuts text into words; "llama" is SentencePiece BPE, with scores instead of merges.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from tokenizers import AddedToken, Regex, decoders, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.config_fields import ConfigFields
from minivllm_runtime.loader.gguf_reader import GGUFFile
from minivllm_runtime.loader.word_patterns import LLAMA3_WORDS, QWEN2_WORDS
from minivllm_runtime.tokenizer import Tokenizer

_PREFIX = "tokenizer.ggml."
_NAMED_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}

_WORDS: Mapping[str, str | None] = {
    "gpt-2": None,  # the rule that ByteLevel has built in
    "smollm": None,
    "llama3": LLAMA3_WORDS,
    "llama-v3": LLAMA3_WORDS,
    "llama-bpe": LLAMA3_WORDS,
    "qwen2": QWEN2_WORDS,
    "deepseek-r1-qwen": QWEN2_WORDS,
}
"""How each `tokenizer.ggml.pre` cuts text into words; what `transformers` makes of it is the reference."""


class _TokenType(IntEnum):
    NORMAL = 1
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5


def load_gguf_tokenizer(file: GGUFFile) -> Tokenizer:
    """The tokenizer that the file describes.

    Raises:
        ModelLoadError: the metadata is damaged, lacks a part or names an unknown kind.
    """
    fields = _tokenizer_fields(file)
    tokens, types = _vocabulary(fields)
    kind = fields.get("model")
    if kind == "gpt2":
        backend, adds_bos = (
            _byte_level_bpe(fields, tokens),
            fields.get("pre") in ("llama3", "llama-v3", "llama-bpe"),
        )
    elif kind == "llama":
        backend, adds_bos = _sentencepiece_bpe(fields, tokens), True
    else:
        raise ModelLoadError(f"{fields.source}: unsupported tokenizer {kind!r}; supported: gpt2, llama")
    _add_special_tokens(backend, tokens, types)
    named = _named_tokens(fields, tokens)
    backend.post_processor = _post_processor(fields, backend, named, adds_bos)
    end_of_turn = fields.optional_int("eot_token_id")
    template = file.metadata.get("tokenizer.chat_template")
    return Tokenizer(
        backend,
        special_tokens=named,
        eos_token_ids=() if end_of_turn is None else (end_of_turn,),
        chat_template=template if isinstance(template, str) else None,
    )


def _tokenizer_fields(file: GGUFFile) -> ConfigFields:
    values = {
        key.removeprefix(_PREFIX): value for key, value in file.metadata.items() if key.startswith(_PREFIX)
    }
    return ConfigFields(f"{file.path}, {_PREFIX.rstrip('.')}", values)


def _vocabulary(fields: ConfigFields) -> tuple[Sequence[str], Sequence[int]]:
    """Spelling and type of every token; unused ones at the end only pad the embedding and are left out."""
    tokens = fields.array("tokens", str)
    types = fields.array("token_type", int) or [int(_TokenType.NORMAL)] * len(tokens)
    if not tokens or len(types) != len(tokens):
        raise ModelLoadError(f"{fields.source}: {len(tokens)} tokens with {len(types)} types")
    size = len(tokens)
    while size > 0 and types[size - 1] == _TokenType.UNUSED:
        size -= 1
    if len(set(tokens[:size])) != size:
        raise ModelLoadError(f"{fields.source}: two tokens are spelled alike")
    return tokens[:size], types[:size]


def _byte_level_bpe(fields: ConfigFields, tokens: Sequence[str]) -> Backend:
    rule = fields.get("pre", "gpt-2")
    if rule not in _WORDS:
        raise ModelLoadError(f"{fields.source}: unsupported pre {rule!r}; supported: {', '.join(_WORDS)}")
    merges = [_pair(fields, merge) for merge in fields.array("merges", str)]
    backend = Backend(_bpe(fields, tokens, merges, byte_fallback=False))
    words = _WORDS[rule]
    if words is None:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece_bpe(fields: ConfigFields, tokens: Sequence[str]) -> Backend:
    scores = fields.array("scores", float)
    if len(scores) != len(tokens):
        raise ModelLoadError(f"{fields.source}: {len(tokens)} tokens with {len(scores)} scores")
    backend = Backend(_bpe(fields, tokens, _merges_from_scores(tokens, scores), byte_fallback=True))
    adds_space = fields.get("add_space_prefix", True)
    scheme = "first" if adds_space else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(
        [*steps, decoders.Strip(" ", left=1, right=0)] if adds_space else steps
    )
    return backend


def _bpe(
    fields: ConfigFields, tokens: Sequence[str], merges: Sequence[tuple[str, str]], *, byte_fallback: bool
) -> BPE:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    try:
        return BPE(vocab=vocab, merges=merges, byte_fallback=byte_fallback, fuse_unk=byte_fallback)
    except Exception as error:  # the library raises nothing more precise
        raise ModelLoadError(f"{fields.source}: vocabulary and merges disagree: {error}") from error


def _pair(fields: ConfigFields, merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise ModelLoadError(f"{fields.source}: the merge {merge!r} does not name two tokens")
    return left, right


def _merges_from_scores(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merges that a SentencePiece vocabulary implies: two tokens whose join is a token, best score first.

    Ties are put in the order of `transformers`: longer left part, longer right part, then as tokens stand.
    """
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    found = []
    for token, score in zip(tokens, scores, strict=True):
        parts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = [pair for pair in parts if pair[0] in ids and pair[1] in ids]
        found += [(score, pair) for pair in sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    found.sort(key=lambda entry: (entry[0], len(entry[1][0]), len(entry[1][1])), reverse=True)
    return [pair for _, pair in found]


def _add_special_tokens(backend: Backend, tokens: Sequence[str], types: Sequence[int]) -> None:
    """Control tokens are special; user-defined ones are matched whole in a text, but are text."""
    marked = list(zip(tokens, types, strict=True))
    backend.add_special_tokens(
        [AddedToken(t, normalized=False, special=True) for t, kind in marked if kind == _TokenType.CONTROL]
    )
    backend.add_tokens(
        [
            AddedToken(t, normalized=False, special=False)
            for t, kind in marked
            if kind == _TokenType.USER_DEFINED
        ]
    )


def _named_tokens(fields: ConfigFields, tokens: Sequence[str]) -> dict[str, str]:
    named = {}
    for name, key in _NAMED_TOKENS.items():
        token_id = fields.optional_int(key)
        if token_id is None:
            continue
        if token_id >= len(tokens):
            raise ModelLoadError(f"{fields.source}: {key} is {token_id}, and there are {len(tokens)} tokens")
        named[name] = tokens[token_id]
    return named


def _post_processor(
    fields: ConfigFields, backend: Backend, named: Mapping[str, str], adds_bos: bool
) -> processors.TemplateProcessing:
    """Puts BOS before a prompt and EOS behind it, where the file says so."""
    wanted = {
        "bos_token": fields.get("add_bos_token", adds_bos),
        "eos_token": fields.get("add_eos_token", False),
    }
    added = {name: named[name] for name, is_wanted in wanted.items() if is_wanted and name in named}
    template = [added.get("bos_token"), "$A", added.get("eos_token")]
    return processors.TemplateProcessing(
        single=[part for part in template if part is not None],
        special_tokens=[(token, backend.token_to_id(token)) for token in added.values()],
    )
