"""Text to token ids and back, as the Hugging Face tokenizer of the same model does it."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from minivllm_runtime.byte_level import spelled_bytes
from minivllm_runtime.chat_template import ChatTemplate
from minivllm_runtime.errors import InvalidParameter

_SPACE_MARK = "▁"


class TokenizerParts(NamedTuple):
    """Everything a Tokenizer is made of, as strings and numbers.

    Attributes:
        backend: JSON of the tokenizers library.
        special_tokens, eos_token_ids, chat_template: As in Tokenizer.
    """

    backend: str
    special_tokens: dict[str, str]
    eos_token_ids: tuple[int, ...]
    chat_template: str | None


_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_MAX_NFC_SHRINKAGE = 3
"""Composing takes no text to less than a third of its UTF-8 bytes: three Hangul jamo to one syllable."""


class Tokenizer:
    """A tokenizer and what belongs to it; after construction only caches change, so threads may share it.

    Args:
        backend: Taken over: truncation and padding are switched off, missing special tokens are added.
        special_tokens: Named special tokens, for example {"bos_token": "<s>", "eos_token": "</s>"}.
        eos_token_ids: Ids that end a sequence beside the tokenizer's own "eos_token".
        chat_template: Jinja source, None for a model without one.

    Attributes:
        backend: The wrapped object.
        special_tokens: As given.
        special_token_ids: Ids that `skip_special_tokens` leaves out.
        bos_token_id: Begin of sequence, if the tokenizer has one.
        eos_token_ids: Every id that ends a sequence.
        vocab_size: Ids from 0 to vocab_size - 1 mean something; embedding rows from there on are padding.

    Raises:
        ModelLoadError: the chat template is damaged.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        special_tokens: Mapping[str, str] | None = None,
        eos_token_ids: Collection[int] = (),
        chat_template: str | None = None,
    ) -> None:
        self.backend = backend
        self.special_tokens = dict(special_tokens or {})
        backend.no_truncation()
        backend.no_padding()
        _mark_special(backend, self.special_tokens.values())
        self._added = backend.get_added_tokens_decoder()
        self._special_ids = {token.content: i for i, token in self._added.items() if token.special}
        self.special_token_ids = frozenset(self._special_ids.values())
        self.bos_token_id = self._named_id("bos_token")
        eos_token_id = self._named_id("eos_token")
        self.eos_token_ids = frozenset(eos_token_ids) | (
            {eos_token_id} if eos_token_id is not None else set()
        )
        self.vocab_size = max(
            backend.get_vocab_size(with_added_tokens=False), max(self._added, default=-1) + 1
        )
        self._template_source = chat_template
        self._chat_template = (
            None if chat_template is None else ChatTemplate(chat_template, self.special_tokens)
        )
        self._token_bytes: dict[int, bytes] = {}
        self._is_byte_level = _uses(backend.decoder, "ByteLevel")
        self._is_sentencepiece = not self._is_byte_level and _uses(backend.decoder, "ByteFallback")

    def parts(self) -> TokenizerParts:
        """What another process needs to make an equal tokenizer; see `from_parts`."""
        return TokenizerParts(
            self.backend.to_str(),
            self.special_tokens,
            tuple(sorted(self.eos_token_ids)),
            self._template_source,
        )

    @classmethod
    def from_parts(cls, parts: TokenizerParts) -> "Tokenizer":
        """The tokenizer that `parts` was taken from."""
        return cls(
            Backend.from_str(parts.backend),
            special_tokens=parts.special_tokens,
            eos_token_ids=parts.eos_token_ids,
            chat_template=parts.chat_template,
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a raw prompt, with BOS only where this tokenizer adds one.

        Raises:
            InvalidParameter: the text has a lone surrogate, which no encoding can hold.
        """
        try:
            # Unlike `encode`, the batch form gives up the interpreter lock while it works.
            encoding = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
            return list(encoding.ids)
        except TypeError as error:  # what the library makes of a string that has no UTF-8 form
            raise InvalidParameter(
                "prompt", "the text has a lone surrogate, which is no character"
            ) from error

    @property
    def chat_template(self) -> str | None:
        """Jinja source of the chat template, None without one."""
        return self._template_source

    @property
    def supports_tools(self) -> bool:
        """Whether there is a chat template and it shows tools to the model."""
        return self._chat_template is not None and self._chat_template.supports_tools

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a conversation, ending where the assistant's answer begins. It has all its special tokens.

        Args:
            messages: Each with "role" and "content", oldest first.
            tools: Functions that the assistant may call, as OpenAI describes them.
            variables: What else the template may ask for; see `ChatTemplate.render`.

        Raises:
            InvalidParameter: no messages, no chat template, or the template refuses the messages.
        """
        if not messages:
            raise InvalidParameter("messages", "messages must hold at least one message")
        if self._chat_template is None:
            raise InvalidParameter("messages", "this model has no chat template; use a plain prompt")
        if tools is not None and not self._chat_template.supports_tools:
            raise InvalidParameter("tools", "the chat template of this model does not know tools")
        return self._chat_template.render(messages, tools, variables)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of all ids at once; bytes that are no UTF-8 become U+FFFD, unknown ids nothing."""
        return str(self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, whole characters or not; none for an unknown id."""
        data = self._token_bytes.get(token_id)
        if data is None:
            data = self._token_bytes[token_id] = self._find_token_bytes(token_id)
        return data

    def special_token_id(self, text: str) -> int | None:
        """The id of the special token spelled exactly `text`."""
        return self._special_ids.get(text)

    @cached_property
    def longest_token_bytes(self) -> int | None:
        """No token stands for more bytes of UTF-8 text than this; None if one may stand for any number.

        A text of more than n times as many bytes has more than n tokens, which is known without encoding it.
        A character that a byte-level vocabulary has no token for counts too, although encoding drops it.
        """
        shrinkage = _normalizer_shrinkage(self.backend)
        if shrinkage is None or any(token.lstrip or token.rstrip for token in self._added.values()):
            return None
        if not self._is_byte_level and not (self._is_sentencepiece and _covers_all_bytes(self.backend)):
            return None  # a run of unknown characters may become one token
        # Spellings are at least as long as what they stand for: a byte is a character, and so is a space.
        longest = max(
            len(token if self._is_byte_level else token.encode()) for token in self.backend.get_vocab()
        )
        longest_added = max((len(token.content.encode()) for token in self._added.values()), default=0)
        return max(longest, longest_added) * shrinkage

    def _find_token_bytes(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        if added is not None:
            return str(added.content).encode()
        token = self.backend.id_to_token(token_id)
        if token is None:
            return b""
        if self._is_byte_level:
            data = spelled_bytes(token)
            # A spelling that no text can lead to, a place holder for instance, stands for itself.
            return token.encode() if data is None else data
        if self._is_sentencepiece:
            return _sentencepiece_bytes(token)
        return self.decode([token_id], skip_special_tokens=False).encode()

    def _named_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.backend.token_to_id(token)


def _mark_special(backend: Backend, tokens: Collection[str]) -> None:
    """Makes every named token a special one; tokens that are already added keep how they match."""
    added = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    for text in tokens:
        token = added.get(text) or AddedToken(text, special=True, normalized=False)
        if not token.special or text not in added:
            token.special = True
            backend.add_special_tokens([token])


def _uses(component: Any, name: str) -> bool:
    """Whether a decoder is, or contains, one of this name; its pickled form is the only place that tells."""
    return component is not None and f'"{name}"'.encode() in component.__getstate__()


def _normalizer_shrinkage(backend: Backend) -> int | None:
    """How many times shorter, in UTF-8, normalizing can make a text; None if there is no bound."""
    if backend.normalizer is None:
        return 1
    state = json.loads(backend.normalizer.__getstate__())
    parts = state.get("normalizers", [state])
    if not all(part["type"] in ("NFC", "Prepend") or _replaces_by_no_less(part) for part in parts):
        return None
    return _MAX_NFC_SHRINKAGE if any(part["type"] == "NFC" for part in parts) else 1


def _replaces_by_no_less(part: Mapping[str, Any]) -> bool:
    pattern = part.get("pattern", {}).get("String")
    return part["type"] == "Replace" and pattern is not None and len(part["content"]) >= len(pattern)


def _covers_all_bytes(backend: Backend) -> bool:
    return all(backend.token_to_id(f"<0x{byte:02X}>") is not None for byte in range(256))


def _sentencepiece_bytes(token: str) -> bytes:
    if byte := _BYTE_TOKEN.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace(_SPACE_MARK, " ").encode()
