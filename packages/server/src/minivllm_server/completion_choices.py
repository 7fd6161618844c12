"""From deltas to the entries of `choices` in answers to prompts, whole or in pieces."""

from collections.abc import Iterator, Sequence
from typing import Any

from minivllm_runtime.outputs import ChoiceDelta, TokenLogprob
from minivllm_server.protocol.logprobs import completion_logprobs


class CompletionChoices:
    """Makes the entries of one answer; a choice begins with its prompt where that is echoed.

    Args:
        n: Choices per prompt.
        echoed: Text of each prompt, None: nothing is echoed.
        has_logprobs: Whether log-probabilities are shown.
    """

    def __init__(self, n: int, echoed: Sequence[str] | None, *, has_logprobs: bool) -> None:
        self._n = n
        self._echoed = echoed
        self._has_logprobs = has_logprobs
        self._begun: set[int] = set()
        self._prompt_logprobs: dict[int, tuple[TokenLogprob, ...]] = {}

    def of_delta(self, delta: ChoiceDelta) -> Iterator[dict[str, Any]]:
        """Yields the entry of one delta, in the shape of `CompletionChoice`."""
        prompt_index = delta.index // self._n
        if delta.prompt_logprobs is not None:  # comes with the first of its n choices, and with no other
            self._prompt_logprobs[prompt_index] = delta.prompt_logprobs
        prompt = "" if self._echoed is None else self._echoed[prompt_index]
        is_first = delta.index not in self._begun
        self._begun.add(delta.index)
        logprobs = None
        if self._has_logprobs:
            of_prompt = self._prompt_logprobs.get(prompt_index, ()) if is_first else ()
            logprobs = completion_logprobs(of_prompt, delta.logprobs or (), len(prompt))
        yield {
            "index": delta.index,
            "text": prompt + delta.text if is_first else delta.text,
            "logprobs": logprobs,
            "finish_reason": delta.finish_reason,
        }
