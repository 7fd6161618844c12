"""Half precision: how far logits may be from those of float32, and where tokens may differ.

Kernels differ with the batch and the chunk, so outputs cannot be compared bit by bit. Held against `transformers` in
float32, the logits err at most 1.5 times as much as its own do in the same dtype; and where greedy tokens first differ,
the reference itself is undecided between the two: their logits are at most twice that error apart.
"""

import copy
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device.choose_ops import choose_ops
from minivllm_runtime.device.torch_ops import TorchOps
from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.messages import AddRequests, EngineRequest
from minivllm_runtime.models.decoder import Decoder
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_scheduler import ScheduledRequest

from ..reference.devices import on_cuda
from ..reference.smollm2 import smollm2_checkpoint, smollm2_decoder, smollm2_reference
from ..reference.tiny_transformers import decoder_of, greedy_reference, reference_model
from ..scripted.byte_level import byte_level_tokenizer

BLOCK_SIZE = 16
ALLOWED = 1.5
NUM_PROMPTS = {"cpu": 2, "cuda": 8}
NUM_TOKENS = {"cpu": 12, "cuda": 64}
NUM_PROMPT_TOKENS = 16

pytestmark = pytest.mark.slow


class Weights(NamedTuple):
    """One set of weights: the reference in float32 on a device, our decoder of it, and the tokenizer."""

    reference: Callable[[str], PreTrainedModel]
    decoder: Callable[[], Decoder]
    tokenizer: Callable[[], Tokenizer]


def random_weights(variant: str) -> Weights:
    return Weights(
        cache(lambda device: reference_model(variant).to(device)),
        lambda: decoder_of(reference_model(variant))[0],
        byte_level_tokenizer,
    )


WEIGHTS = {
    "smollm2": Weights(smollm2_reference, smollm2_decoder, lambda: smollm2_checkpoint().load_tokenizer()),
    "random llama": random_weights("llama head_dim != hidden/heads"),
    "random qwen3": random_weights("qwen3"),
}

of_all_weights = pytest.mark.parametrize("name", WEIGHTS)
with_own_kernels = [
    pytest.param("cpu", torch.bfloat16, "the device's", id="cpu bfloat16"),
    on_cuda("cuda", torch.bfloat16, "the device's", id="cuda bfloat16"),
    on_cuda("cuda", torch.float16, "the device's", id="cuda float16"),
]
with_torch = pytest.param("cpu", torch.bfloat16, "torch", id="cpu bfloat16 torch")


def packed(decoder: Decoder, device: str, dtype: torch.dtype, kernels: str):
    """The decoder in half precision on the device, and its operations."""
    ops = TorchOps() if kernels == "torch" else choose_ops(torch.device(device), dtype, decoder.config)
    if kernels != "torch" and isinstance(ops, TorchOps):
        pytest.skip("this machine has no kernels of its own for this shape")
    for parameter in decoder.parameters():
        if parameter.ndim > 1:
            parameter.data = parameter.to(dtype)
    decoder.to(device).pack(ops)
    return decoder, ops


@cache
def half_of(name: str, device: str, dtype: torch.dtype) -> PreTrainedModel:
    """The model of `transformers` in half precision."""
    return copy.deepcopy(WEIGHTS[name].reference(device)).to(dtype)


@cache
@torch.inference_mode()
def reference_logits(
    name: str, device: str, dtype: torch.dtype, num_rows: int, num_tokens: int
) -> tuple[list[list[int]], Tensor, Tensor]:
    """Random ids, and the logits that `transformers` makes of them in float32 and in `dtype`, as float32."""
    reference = WEIGHTS[name].reference(device)
    rows = random_rows(num_rows, num_tokens, reference.config.vocab_size)
    ids = torch.tensor(rows, device=device)
    return rows, reference(ids).logits, half_of(name, device, dtype)(ids).logits.float()


def random_rows(num_rows: int, num_tokens: int, vocab_size: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(
        vocab_size // 50, vocab_size * 4 // 5, (num_rows, num_tokens), generator=generator
    ).tolist()


def paged_logits(decoder: Decoder, ops, rows: list[list[int]], chunks: list[int], device: str) -> Tensor:
    """Teacher-forced logits [rows, tokens, V] of equally long id lists, computed in the given chunk lengths."""
    place, config = torch.device(device), decoder.config
    num_rows, blocks_per_row = len(rows), -(-len(rows[0]) // BLOCK_SIZE)
    kv_cache = KVCacheTensors(
        config, num_rows * blocks_per_row, BLOCK_SIZE, decoder.embed_tokens.dtype, place
    )
    kv_cache.clear(range(num_rows * blocks_per_row))
    states = RequestStates(num_rows, len(rows[0]) + 1, BLOCK_SIZE, place)
    for index, ids in enumerate(rows):
        states.admit(str(index), ids, 1, range(index * blocks_per_row, (index + 1) * blocks_per_row))
    states.flush()
    backend = ops.attention(kv_cache.layers, config.num_heads, config.head_dim**-0.5)
    logits, start = [], 0
    for length in chunks:
        step = [ScheduledRequest(str(index), start, length, (), samples=True) for index in range(num_rows)]
        batch = InputBatch.build(step, states, BLOCK_SIZE)
        hidden = decoder(batch.input_ids, batch.positions, backend.plan(batch.layout))
        logits.append(decoder.compute_logits(hidden).view(num_rows, length, -1))
        start += length
    return torch.cat(logits, dim=1).float()


@pytest.mark.parametrize(
    ("num_rows", "chunks"),
    [(2, [48]), (6, [16] + [1] * 32), (2, [16] + [1] * 32), (2, [13, 20, 15])],
    ids=["one prefill", "many decodes", "few decodes", "chunks"],
)
@pytest.mark.parametrize(("device", "dtype", "kernels"), [*with_own_kernels, with_torch])
@of_all_weights
@torch.inference_mode()
def test_logits_err_at_most_half_more_than_those_of_transformers(
    name, device, dtype, kernels, num_rows, chunks
):
    decoder, ops = packed(WEIGHTS[name].decoder(), device, dtype, kernels)
    rows, exact, theirs = reference_logits(name, device, dtype, num_rows, sum(chunks))
    ours = paged_logits(decoder, ops, rows, chunks, device)
    assert (ours - exact).norm() <= ALLOWED * (theirs - exact).norm()


@pytest.mark.parametrize(("device", "dtype", "kernels"), with_own_kernels)
@of_all_weights
@torch.inference_mode()
def test_where_tokens_first_differ_the_reference_is_undecided(name, device, dtype, kernels):
    weights = WEIGHTS[name]
    reference, half = weights.reference(device), half_of(name, device, dtype)
    decoder, _ = packed(weights.decoder(), device, dtype, kernels)
    prompts = random_rows(NUM_PROMPTS[device], NUM_PROMPT_TOKENS, decoder.config.vocab_size)
    outputs = greedy(decoder, weights.tokenizer(), prompts, device, dtype)
    for prompt, ids in zip(prompts, outputs, strict=True):
        expected = greedy_reference(reference, prompt, NUM_TOKENS[device])
        place = first_difference(ids, expected)
        if place is None:
            continue
        context = torch.tensor([[*prompt, *expected[:place]]], device=device)
        exact = reference(context).logits[0, -1]
        error = (half(context).logits[0].float() - reference(context).logits[0]).abs().max()
        assert exact[expected[place]] - exact[ids[place]] <= 2 * ALLOWED * error


def greedy(
    decoder: Decoder, tokenizer: Tokenizer, prompts: list[list[int]], device: str, dtype: torch.dtype
) -> list[tuple[int, ...]]:
    """What our engine makes of the prompts, all at once."""
    config = EngineConfig(num_blocks=100, block_size=BLOCK_SIZE, max_num_seqs=len(prompts))
    core = assemble_engine(
        config, decoder, tokenizer, decoder.config, dtype=dtype, device=torch.device(device)
    ).core
    ids = {str(index): () for index in range(len(prompts))}
    requests = [
        EngineRequest(
            request_id=name,
            prompt_token_ids=tuple(prompt),
            max_tokens=NUM_TOKENS[device],
            temperature=0.0,
        )
        for name, prompt in zip(ids, prompts, strict=True)
    ]
    core.execute([AddRequests("all", tuple(requests))])
    while core.has_work:
        for output in core.step():
            assert output.error is None
            ids[output.request_id] += output.token_ids
    return [*ids.values()]


def first_difference(ids: tuple[int, ...], expected: tuple[int, ...]) -> int | None:
    """Index of the first id that is another one; None if all are equal."""
    return next(
        (index for index, pair in enumerate(zip(ids, expected, strict=True)) if pair[0] != pair[1]), None
    )
