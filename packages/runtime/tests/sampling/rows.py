"""Steps whose rows sample, built from requests and the ids they have generated."""

from collections.abc import Sequence

import torch

from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.messages import EngineRequest
from minivllm_runtime.sampling.request_sampling import RequestSampling
from minivllm_runtime.sampling.sampling_batch import SamplingBatch

CPU = torch.device("cpu")


def request(**changes: object) -> EngineRequest:
    """A request with one prompt token."""
    return EngineRequest(**{"request_id": "r", "prompt_token_ids": (0,), "max_tokens": 9, **changes})


def batch_of(
    requests: Sequence[EngineRequest], outputs: Sequence[Sequence[int]], vocab_size: int
) -> SamplingBatch:
    """The batch of a step in which every request samples the id behind its output so far."""
    return step_of(requests, outputs, vocab_size, CPU)[0]


def step_of(
    requests: Sequence[EngineRequest],
    outputs: Sequence[Sequence[int]],
    vocab_size: int,
    device: torch.device,
) -> tuple[SamplingBatch, RequestStates]:
    """The same, and the states of its requests, whose slots are in the order of the requests."""
    named = [
        EngineRequest(**{name: getattr(each, name) for name in each.__slots__} | {"request_id": str(index)})
        for index, each in enumerate(requests)
    ]
    ids = [[*each.prompt_token_ids, *output] for each, output in zip(named, outputs, strict=True)]
    states = RequestStates(len(named), max(map(len, ids)) + 1, 4, device)
    for each, known in zip(named, ids, strict=True):
        states.admit(each.request_id, known, len(each.prompt_token_ids), [0])
        states.set_sampling(each)
    states.flush()
    rows = [RequestSampling.prepare(each, vocab_size, device) for each in named]
    return SamplingBatch.build(rows, [len(known) for known in ids], states, vocab_size), states
