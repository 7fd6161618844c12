"""Token counts of a request."""

from collections.abc import Iterable

from pydantic import BaseModel

from minivllm_runtime.outputs import ChoiceDelta


class PromptTokensDetails(BaseModel):
    """Where prompt tokens came from.

    Attributes:
        cached_tokens: Prompt tokens whose KV was in the prefix cache.
    """

    cached_tokens: int


class Usage(BaseModel):
    """What a request cost: every prompt once, completions of all choices, end-of-sequence tokens too."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class UsageCounter:
    """Sums the usage of one submission from its deltas.

    Args:
        num_prompt_tokens: Over all prompts, each once.
        n: Choices per prompt; cached tokens are those of the first choice of each.
    """

    def __init__(self, num_prompt_tokens: int, n: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._n = n
        self._num_completion_tokens = 0
        self._cached_by_prompt: dict[int, int] = {}

    def add(self, deltas: Iterable[ChoiceDelta]) -> None:
        """Counts the tokens of some deltas."""
        for delta in deltas:
            self._num_completion_tokens += len(delta.token_ids)
            prompt_index, choice = divmod(delta.index, self._n)
            if choice == 0:
                self._cached_by_prompt[prompt_index] = delta.num_cached_tokens

    def usage(self) -> Usage:
        """Returns the usage so far."""
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=self._num_completion_tokens,
            total_tokens=self._num_prompt_tokens + self._num_completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=sum(self._cached_by_prompt.values())),
        )
