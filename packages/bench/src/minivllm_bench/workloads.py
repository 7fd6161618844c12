"""Named workloads: how many requests, how long their prompts and how long their answers.

Prompts are random token ids, so that no engine gains from text it has seen, and fresh ones are drawn for
every run, so that none gains from a cache. The same (seed, workload, run) always gives the same requests.
"""

import dataclasses
import random
import re
from dataclasses import dataclass

from minivllm_bench.errors import InvalidSetting
from minivllm_scheduler.simulation import UniformLength

DECODE_NAME = re.compile(r"decode_b([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One request of a run.

    Attributes:
        prompt_token_ids: The prompt, as token ids.
        output_len: Tokens to generate, exactly; the end-of-sequence token is ignored.
    """

    prompt_token_ids: tuple[int, ...]
    output_len: int


@dataclass(frozen=True, slots=True)
class Workload:
    """A batch of requests that all arrive at once.

    Attributes:
        name: As on the command line and in reports.
        num_requests: Requests per run.
        input_len: Prompt length of each request.
        output_len: Generated tokens of each request.
    """

    name: str
    num_requests: int
    input_len: UniformLength
    output_len: UniformLength

    def resized(self, *, input_len: int | None = None, output_len: int | None = None) -> "Workload":
        """The same workload with fixed lengths in place of its own; None keeps its own.

        Raises:
            InvalidWorkload: a length is below 1 or above `MAX_LENGTH_TOKENS`.
        """
        return dataclasses.replace(
            self,
            input_len=self.input_len if input_len is None else fixed(input_len),
            output_len=self.output_len if output_len is None else fixed(output_len),
        )

    def draw(self, vocab_size: int, *, seed: int, run: int) -> tuple[BenchRequest, ...]:
        """The requests of one run.

        Args:
            vocab_size: Ids are uniform over [0, vocab_size).
            seed: Of the whole benchmark.
            run: Which run of this workload; runs have nothing in common.

        Raises:
            InvalidSetting: the vocabulary is empty.
        """
        if vocab_size < 1:
            raise InvalidSetting(f"the vocabulary must have at least 1 token, got {vocab_size}")
        rng = random.Random(f"{seed}/{self.name}/{run}")  # noqa: S311 - reproducible on purpose
        return tuple(self._draw_request(vocab_size, rng) for _ in range(self.num_requests))

    def _draw_request(self, vocab_size: int, rng: random.Random) -> BenchRequest:
        prompt = tuple(rng.randrange(vocab_size) for _ in range(self.input_len.draw(rng)))
        return BenchRequest(prompt, self.output_len.draw(rng))


def fixed(num_tokens: int) -> UniformLength:
    """A length that is always the same, but drawn: with a `FixedLength` all published prompts would be others."""
    return UniformLength(num_tokens, num_tokens)


FIXED_WORKLOADS = (
    Workload("seed_8x32", 8, fixed(8), fixed(32)),
    Workload("prefill_64x1024", 64, fixed(1024), fixed(1)),
    Workload("offline_256", 256, UniformLength(100, 1024), UniformLength(100, 1024)),
)
"""Workloads of one size; `decode_bN` exists for every N."""


def find_workload(name: str) -> Workload:
    """The workload called `name`: one of `FIXED_WORKLOADS`, or `decode_bN`: N requests, 128 in, 128 out.

    Raises:
        InvalidSetting: there is no such workload; the message lists those that exist.
    """
    for workload in FIXED_WORKLOADS:
        if workload.name == name:
            return workload
    num_requests = decode_batch_size(name)
    if num_requests is None:
        known = ", ".join(workload.name for workload in FIXED_WORKLOADS)
        raise InvalidSetting(f"no workload is called {name!r}; there are decode_bN for every N >= 1, {known}")
    return Workload(name, num_requests, fixed(128), fixed(128))


def decode_batch_size(name: str) -> int | None:
    """N of `decode_bN`; None if the workload has another name."""
    match = DECODE_NAME.fullmatch(name)
    return None if match is None else int(match[1])
