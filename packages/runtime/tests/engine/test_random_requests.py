"""Thousands of random requests, aborted at random moments: each ends once, and nothing of them stays behind."""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache

import pytest

from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.messages import AbortRequest, Accepted, AddRequests, EngineRequest, TokenOutput
from minivllm_scheduler import FinishReason
from minivllm_scheduler.request import RequestStatus

from ..reference.devices import on_cuda
from ..reference.tiny_transformers import VOCAB_SIZE, engine_of, greedy_reference, reference_model

KINDS = {
    "greedy": {"temperature": 0.0},
    "sampled": {},
    "limited": {"top_k": 20, "top_p": 0.8, "min_p": 0.01},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "logit_bias": ((5, 4.0),)},
    "stopped": {"stop_token_ids": frozenset(range(0, VOCAB_SIZE, 9)), "min_tokens": 2},
    "scored": {"logprobs": 2},
    "prompt scored": {"prompt_logprobs": 1},
}
LARGEST_ABORT_DELAY = (
    40  # passes of the loop: long enough to meet requests in every state, and some that have ended
)
BLOCKS_PER_UNFINISHED = (
    4  # fewer than most requests need in the end, so that some wait and some are preempted
)
NUM_SOLO = 50

on_each_device = pytest.mark.parametrize(
    ("device", "num_requests", "settings"),
    [
        ("cpu", 500, {"max_num_seqs": 16, "num_blocks": 64, "max_num_batched_tokens": 64}),
        on_cuda("cuda", 10_000, {"max_num_seqs": 64, "num_blocks": 192, "max_num_batched_tokens": 256}),
    ],
    ids=["500 on a CPU", "10,000 on a GPU"],
)


@cache
def model():
    return reference_model("llama 4/2 heads")


def random_batches(num_requests: int, rng: random.Random) -> list[tuple[EngineRequest, ...]]:
    """Requests of all kinds; half of the prompts begin as others do, and some prompts have three choices."""

    def ids(shortest: int, longest: int) -> tuple[int, ...]:
        return tuple(rng.choices(range(VOCAB_SIZE), k=rng.randint(shortest, longest)))

    prefixes = [ids(4, 24) for _ in range(8)]
    batches: list[tuple[EngineRequest, ...]] = []
    while (index := sum(map(len, batches))) < num_requests:
        kind = rng.choice(sorted(KINDS))
        num_choices = 3 if rng.random() < 0.1 else 1
        prompt = ids(1, 40) if rng.random() < 0.5 else rng.choice(prefixes) + ids(1, 8)
        batches.append(
            tuple(
                EngineRequest(
                    request_id=f"{index + choice} {kind}",
                    prompt_token_ids=prompt,
                    max_tokens=rng.randint(1, 36),
                    seed=index,
                    choice=choice,
                    group=str(index) if num_choices > 1 else None,
                    **KINDS[kind],
                )
                for choice in range(num_choices)
            )
        )
    return batches


@dataclass(slots=True)
class Progress:
    """What a client has seen of one request."""

    request: EngineRequest
    token_ids: tuple[int, ...] = ()
    end: FinishReason | None = None
    was_aborted: bool = False

    @property
    def is_over(self) -> bool:
        return self.was_aborted or self.end is not None

    def take(self, output: TokenOutput) -> None:
        assert output.error is None
        assert not self.is_over, f"{output} came after the end"
        self.token_ids += output.token_ids
        self.end = output.finish_reason
        assert len(self.token_ids) <= self.request.max_tokens
        if self.end is FinishReason.LENGTH:
            assert len(self.token_ids) == self.request.max_tokens
        elif self.end is FinishReason.STOP:
            assert self.token_ids[-1] in self.request.stop_token_ids


class Client:
    """Adds requests a few at a time, and aborts a third of them some passes later, whether they have ended or not."""

    def __init__(
        self,
        core: EngineCore,
        batches: list[tuple[EngineRequest, ...]],
        rng: random.Random,
        max_unfinished: int,
    ) -> None:
        self.core = core
        self.max_unfinished = max_unfinished
        self.progress: dict[str, Progress] = {}
        self.aborted_when: Counter[RequestStatus] = Counter()
        self._rng = rng
        self._to_add = batches[::-1]
        self._to_abort: defaultdict[int, list[str]] = defaultdict(list)
        self._num_unfinished = 0
        self._num_passes = 0

    def run(self) -> None:
        """Until everything has ended."""
        while self._to_add or self.core.has_work:
            answers = self.core.execute([*self._aborts(), *self._adds()])
            assert all(isinstance(answer, Accepted) for answer in answers)
            for output in self.core.step():
                progress = self.progress[output.request_id]
                progress.take(output)
                self._num_unfinished -= progress.is_over
            self._num_passes += 1
            if self._num_passes % 100 == 0:
                assert_whole(self.core)

    def _adds(self) -> list[AddRequests]:
        commands = []
        while self._to_add and self._num_unfinished < self.max_unfinished and self._rng.random() < 0.9:
            batch = self._to_add.pop()
            commands.append(AddRequests(batch[0].request_id, batch))
            self._num_unfinished += len(batch)
            for request in batch:
                self.progress[request.request_id] = Progress(request)
                if self._rng.random() < 1 / 3:
                    moment = self._num_passes + self._rng.randint(1, LARGEST_ABORT_DELAY)
                    self._to_abort[moment].append(request.request_id)
        return commands

    def _aborts(self) -> list[AbortRequest]:
        request_ids = self._to_abort.pop(self._num_passes, [])
        for request_id in request_ids:
            progress = self.progress[request_id]
            if not progress.is_over:
                progress.was_aborted = True
                self._num_unfinished -= 1
                self.aborted_when[self.core._scheduler._requests[request_id].status] += 1
        return [AbortRequest(request_id) for request_id in request_ids]


def assert_whole(core: EngineCore) -> None:
    core._scheduler.check_invariants()
    core._kv_manager.check_invariants()


@on_each_device
@pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])
def test_every_request_ends_once_and_the_pool_is_whole(device, num_requests, settings, run_ahead):
    rng = random.Random(num_requests)
    core = engine_of(model(), device=device, run_ahead=run_ahead, **settings).core
    client = Client(
        core, random_batches(num_requests, rng), rng, settings["num_blocks"] // BLOCKS_PER_UNFINISHED
    )
    client.run()

    assert len(client.progress) >= num_requests
    assert all(progress.is_over for progress in client.progress.values())
    assert_whole(core)
    stats = core.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)
    assert stats.num_blocks_allocatable == stats.num_blocks
    assert core._runner._requests == {}

    # Else nothing was shown.
    assert stats.num_preemptions > num_requests / 50
    assert stats.prefix_hits_tokens > num_requests
    assert set(client.aborted_when) == {*RequestStatus} - {RequestStatus.FINISHED}
    assert {progress.end for progress in client.progress.values()} == {
        None,
        FinishReason.LENGTH,
        FinishReason.STOP,
    }

    finished = [
        progress
        for progress in client.progress.values()
        if progress.request.temperature == 0 and not progress.was_aborted
    ]
    for progress in rng.sample(finished, min(NUM_SOLO, len(finished))):
        prompt, num_tokens = [*progress.request.prompt_token_ids], progress.request.max_tokens
        assert progress.token_ids == greedy_reference(model(), prompt, num_tokens)
