"""Which ids the grammars of requests allow next."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from minivllm_runtime.errors import InvalidParameter, RequestFailed
from minivllm_runtime.sampling.utf8_masks import BETWEEN_CHARACTERS, BITS_PER_WORD, Utf8Masks

if TYPE_CHECKING:
    import xgrammar

_log = logging.getLogger(__name__)


class Grammar(NamedTuple):
    """What an output must follow.

    Attributes:
        compiled: Its characters; it may let in bytes that are none.
        utf8: Its bytes.
    """

    compiled: xgrammar.CompiledGrammar
    utf8: Utf8Masks


class GrammarState:
    """How far the output of one request has come in its grammar.

    Attributes:
        error: What went wrong with it, InvalidParameter if the schema is to blame; its request must end then, alone.
    """

    def __init__(self, grammar: Grammar) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(grammar.compiled)
        self._utf8 = grammar.utf8
        self._awaited = BETWEEN_CHARACTERS
        self.error: InvalidParameter | RequestFailed | None = None

    def fill(self, words: Tensor, row: int) -> None:
        """Set the bits of the ids allowed next in words[row]; all bits are set before.

        A part of a schema that nothing satisfies allows none, which shows only once the output has come to it.
        """
        allowed = words[row]
        try:
            self._matcher.fill_next_token_bitmask(words, row)
            allowed &= self._utf8.words(self._awaited)
        except Exception as error:  # whatever it is, other requests are not concerned
            self._fail(f"{type(error).__name__}: {error}")
            return
        if not allowed.any():
            self.error = InvalidParameter(
                "json_schema",
                "json_schema cannot be followed: nothing satisfies it where the output has come to",
            )

    def advance(self, token_id: int) -> None:
        """Take the id that was sampled."""
        if self.error is not None:
            return
        awaited = self._utf8.after(self._awaited, token_id)
        try:
            is_accepted = awaited is not None and self._matcher.accept_token(token_id)
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            return
        if awaited is None or not is_accepted:
            self._fail(f"the sampled id {token_id} does not follow it")
        else:
            self._awaited = awaited

    def _fail(self, message: str) -> None:
        _log.error("a grammar failed: %s", message)
        self.error = RequestFailed(f"the grammar of the output failed: {message}")


def allowed_words(states: Sequence[GrammarState], num_ids: int) -> Tensor:
    """The ids that each state allows next: [G, ceil(num_ids / 32)] int32, bit i of word w is id 32w + i."""
    words = torch.full((len(states), -(-num_ids // BITS_PER_WORD)), -1, dtype=torch.int32)
    for row, state in enumerate(states):
        state.fill(words, row)
    return words


def forbid_others(logits: Tensor, rows: Tensor, words: Tensor) -> None:
    """Set the logits of ids that are not allowed to -inf, in place.

    Args:
        logits: [S, V].
        rows: [G] int64, the rows of `logits` that have a grammar.
        words: As `allowed_words` returns them, on the device of `logits`.
    """
    bits = torch.arange(BITS_PER_WORD, device=words.device, dtype=torch.int32)
    allowed = ((words[:, :, None] >> bits) & 1).flatten(1)[:, : logits.shape[1]]
    logits[rows] = logits[rows].masked_fill(allowed == 0, float("-inf"))
