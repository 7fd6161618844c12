"""Compiling JSON schemas to grammars over the model's tokens, with xgrammar (Dong et al. 2024)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.sampling.grammar_masks import Grammar, GrammarState, allowed_words
from minivllm_runtime.sampling.utf8_masks import Utf8Masks
from minivllm_runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    import xgrammar

_MOST_WHITESPACE = 20
"""Characters between two JSON tokens: enough for deep indentation, and a model that loops over spaces gets on."""
_THREADS_PER_GRAMMAR = 2
_CACHE_BYTES = 64 * 2**20


class _Backend(NamedTuple):
    compiler: xgrammar.GrammarCompiler
    utf8: Utf8Masks


class GrammarCompiler:
    """Compiles schemas and keeps the last ones. Any thread may use it.

    The library is imported with the first schema: it is an extra.

    Args:
        tokenizer: Gives the bytes of tokens. Special tokens are no part of any output that follows a schema.
        num_ids: Number of ids that may be sampled.
    """

    def __init__(self, tokenizer: Tokenizer, num_ids: int) -> None:
        self._tokenizer = tokenizer
        self._num_ids = num_ids
        self._lock = threading.Lock()  # held for moments only: the engine asks between two steps
        self._backend_lock = threading.Lock()
        self._backend: _Backend | None = None
        self._compiled: OrderedDict[str, Grammar] = OrderedDict()

    def get(self, json_schema: str) -> Grammar | None:
        """The grammar of a schema that was compiled lately."""
        with self._lock:
            if json_schema in self._compiled:
                self._compiled.move_to_end(json_schema)
            return self._compiled.get(json_schema)

    def compile(self, json_schema: str) -> Grammar:
        """The grammar of the JSON texts that a schema allows.

        Takes from a millisecond to several seconds: see `MAX_STRING_COST`.

        Raises:
            InvalidParameter: the schema is wrong or uses what is not supported, nothing satisfies it, the model
                cannot end its output, or the extra is not installed.
        """
        known = self.get(json_schema)
        if known is not None:
            return known
        try:
            grammar = self._compile(json_schema)
        except RuntimeError as error:  # the library's only kind; its first line names a source file
            reason = str(error).strip().split(": ", 1)[-1]
            raise InvalidParameter("json_schema", f"json_schema cannot be followed: {reason}") from error
        if not allowed_words([GrammarState(grammar)], self._num_ids).any():
            raise InvalidParameter("json_schema", "json_schema cannot be followed: nothing satisfies it")
        with self._lock:
            self._compiled[json_schema] = grammar
            while len(self._compiled) > 1 and self._cached_bytes() > _CACHE_BYTES:
                self._compiled.popitem(last=False)
        return grammar

    def _compile(self, json_schema: str) -> Grammar:
        compiler, utf8 = self._get_backend()
        compiled = compiler.compile_json_schema(json_schema, max_whitespace_cnt=_MOST_WHITESPACE)
        return Grammar(compiled, utf8)

    def _cached_bytes(self) -> int:
        return sum(grammar.compiled.memory_size_bytes for grammar in self._compiled.values())

    def _get_backend(self) -> _Backend:
        with self._backend_lock:
            if self._backend is None:
                self._backend = self._make_backend()
            return self._backend

    def _make_backend(self) -> _Backend:
        try:
            import xgrammar
        except ImportError as error:
            raise InvalidParameter(
                "json_schema", "json_schema needs the package xgrammar: install minivllm-runtime[grammar]"
            ) from error
        tokenizer = self._tokenizer
        stop_ids = sorted(i for i in tokenizer.eos_token_ids if i < self._num_ids)
        if not stop_ids:
            raise InvalidParameter(
                "json_schema", "json_schema needs an end-of-sequence token, which this model has none of"
            )
        vocabulary = [self._bytes_in_json(token_id) for token_id in range(self._num_ids)]
        info = xgrammar.TokenizerInfo(
            vocabulary, xgrammar.VocabType.RAW, vocab_size=self._num_ids, stop_token_ids=stop_ids
        )
        compiler = xgrammar.GrammarCompiler(info, max_threads=_THREADS_PER_GRAMMAR, cache_enabled=False)
        return _Backend(compiler, Utf8Masks(vocabulary))

    def _bytes_in_json(self, token_id: int) -> bytes:
        """The bytes of a token that JSON may hold; a token without bytes is never allowed.

        Line ends may separate JSON tokens. Other control characters need not, and the library's grammar of strings of
        limited length would let them in, where JSON wants them escaped.
        """
        if token_id in self._tokenizer.special_token_ids:
            return b""
        data = self._tokenizer.token_bytes(token_id)
        return b"" if any(byte < 0x20 and byte != ord("\n") for byte in data) else data
