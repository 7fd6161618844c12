"""What is asked in a soak: a fixed set of requests of all kinds, whose answers are known from a solo run."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from minivllm_bench.serve.client import COMPLETIONS

CHAT: Final = "/v1/chat/completions"


class Kind(StrEnum):
    """What is special about a request."""

    GREEDY = "greedy"
    SAMPLED = "sampled"
    PENALIZED = "penalized"
    LOGPROBS = "logprobs"
    CHAT = "chat"
    SCHEMA = "schema"


_SCHEMA: Final = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "word": {"enum": ["red", "green"]}},
    "required": ["number", "word"],
    "additionalProperties": False,
}
_FIELDS: Final[Mapping[Kind, Mapping[str, Any]]] = {
    Kind.GREEDY: {"temperature": 0},
    Kind.SAMPLED: {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "seed": 7},
    Kind.PENALIZED: {"temperature": 0, "frequency_penalty": 0.5, "presence_penalty": 0.5},
    Kind.LOGPROBS: {"temperature": 0, "logprobs": 3},
    Kind.CHAT: {"temperature": 0},
    Kind.SCHEMA: {
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "pair", "schema": _SCHEMA}},
    },
}
_IDS_PER_WORD: Final = 8
"""A written id takes up to this many tokens."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request that is answered the same every time, whatever else the server does meanwhile.

    Attributes:
        prompt_token_ids: The prompt; in a chat, a word of the user's message for every few of them.
        max_tokens: Most tokens to generate.
        ignore_eos: Whether exactly that many are generated.
        num_choices: Answers asked for at once.
        kind: What is special about it.
    """

    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool
    num_choices: int
    kind: Kind = Kind.GREEDY

    @property
    def path(self) -> str:
        """Where it is asked."""
        return CHAT if self.kind in {Kind.CHAT, Kind.SCHEMA} else COMPLETIONS

    @property
    def num_prompt_tokens(self) -> int | None:
        """What the server must count; None: its chat template decides."""
        return len(self.prompt_token_ids) if self.path == COMPLETIONS else None

    @property
    def has_equal_choices(self) -> bool:
        """Whether all choices must be the same."""
        return self.kind is not Kind.SAMPLED

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
            **self._prompt(),
            "max_tokens": self.max_tokens,
            "ignore_eos": self.ignore_eos,
            "n": self.num_choices,
            "cache_salt": cache_salt,
            **_FIELDS[self.kind],
            **options,
        }

    def _prompt(self) -> dict[str, Any]:
        if self.path == COMPLETIONS:
            return {"prompt": self.prompt_token_ids}
        words = map(str, self.prompt_token_ids[::_IDS_PER_WORD])
        return {"messages": [{"role": "user", "content": " ".join(words)}]}


@dataclass(frozen=True, slots=True)
class CaseLimits:
    """How large cases are.

    Attributes:
        num_cases: How many there are.
        vocab_size: Prompts are drawn from the ids below it.
        input_len: Longest prompt, in tokens.
        output_len: Longest answer, in tokens.
        kinds: Of the requests, in turn.
    """

    num_cases: int
    vocab_size: int
    input_len: int
    output_len: int
    kinds: tuple[Kind, ...] = tuple(Kind)


def draw_cases(limits: CaseLimits, seed: int) -> tuple[Case, ...]:
    """Cases of mixed lengths, short ones as likely as long ones; every other prompt begins like the one before it."""
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    cases: list[Case] = []
    for index in range(limits.num_cases):
        kind = limits.kinds[index // 2 % len(limits.kinds)]
        length = _log_uniform(limits.input_len, rng)
        shared = cases[-1].prompt_token_ids[: length - 1] if index % 2 else ()
        fresh = (rng.randrange(limits.vocab_size) for _ in range(length - len(shared)))
        cases.append(
            Case(
                prompt_token_ids=(*shared, *fresh),
                max_tokens=_log_uniform(limits.output_len, rng),
                ignore_eos=rng.random() < 0.75 and kind is not Kind.SCHEMA,
                num_choices=2 if rng.random() < 0.2 else 1,
                kind=kind,
            )
        )
    return tuple(cases)


def _log_uniform(high: int, rng: random.Random) -> int:
    """An integer from 1 to `high`; each doubling is equally likely."""
    return min(int((high + 1) ** rng.random()), high)
