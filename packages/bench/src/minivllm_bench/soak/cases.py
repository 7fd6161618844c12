"""What is asked in a soak: a fixed set of greedy requests, whose answers are known from a solo run."""

import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """A greedy completion; equal cases have equal answers, whatever else the server does meanwhile.

    Attributes:
        prompt_token_ids: The prompt.
        max_tokens: Most tokens to generate.
        ignore_eos: Whether exactly that many are generated.
        num_choices: Answers asked for at once, all equal.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool
    num_choices: int

    def body(self, model: str, *, stream: bool, cache_salt: str | None) -> dict[str, Any]:
        """The request's JSON.

        Args:
            model: The name that the server knows.
            stream: Whether the answer is streamed, with usage.
            cache_salt: Keeps the prefix cache from knowing the prompt; None: it may.
        """
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        return {
            "model": model,
            "prompt": self.prompt_token_ids,
            "max_tokens": self.max_tokens,
            "ignore_eos": self.ignore_eos,
            "n": self.num_choices,
            "temperature": 0,
            "cache_salt": cache_salt,
            **options,
        }


@dataclass(frozen=True, slots=True)
class CaseLimits:
    """How large cases are.

    Attributes:
        num_cases: How many there are.
        vocab_size: Prompts are drawn from the ids below it.
        input_len: Longest prompt, in tokens.
        output_len: Longest answer, in tokens.
    """

    num_cases: int
    vocab_size: int
    input_len: int
    output_len: int


def draw_cases(limits: CaseLimits, seed: int) -> tuple[Case, ...]:
    """Cases of mixed lengths, short ones as likely as long ones; every other prompt begins like the one before it."""
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    cases: list[Case] = []
    for index in range(limits.num_cases):
        length = _log_uniform(limits.input_len, rng)
        shared = cases[-1].prompt_token_ids[: length - 1] if index % 2 else ()
        fresh = (rng.randrange(limits.vocab_size) for _ in range(length - len(shared)))
        cases.append(
            Case(
                prompt_token_ids=(*shared, *fresh),
                max_tokens=_log_uniform(limits.output_len, rng),
                ignore_eos=rng.random() < 0.75,
                num_choices=2 if rng.random() < 0.2 else 1,
            )
        )
    return tuple(cases)


def _log_uniform(high: int, rng: random.Random) -> int:
    """An integer from 1 to `high`; each doubling is equally likely."""
    return min(int((high + 1) ** rng.random()), high)
