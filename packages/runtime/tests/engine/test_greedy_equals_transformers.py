"""In float32 the engine's greedy output is `transformers.generate`'s, token for token, however requests are mixed."""

import random
from collections.abc import Sequence
from functools import cache

import pytest
from transformers import PreTrainedModel

from minivllm_runtime.engine.builder import BuiltEngine
from minivllm_runtime.messages import AddRequests, EngineRequest

from ..reference.tiny_transformers import VARIANTS, VOCAB_SIZE, engine_of, greedy_reference, reference_model

NUM_TOKENS = 14
_random = random.Random(3)
PROMPTS = [[_random.randrange(VOCAB_SIZE) for _ in range(length)] for length in (5, 9, 1, 17, 8, 8, 3, 30)]

both_modes = pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])


@cache
def model_of(variant: str) -> PreTrainedModel:
    return reference_model(variant)


@cache
def expected(variant: str) -> list[tuple[int, ...]]:
    return [greedy_reference(model_of(variant), prompt, NUM_TOKENS) for prompt in PROMPTS]


def run(
    built: BuiltEngine, prompts: Sequence[Sequence[int]], *, steps_between: int = 0
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Ids and cached prompt tokens per prompt; each prompt joins `steps_between` steps after the one before it."""
    ids: dict[str, list[int]] = {}
    cached: dict[str, int] = {}
    to_add = [
        EngineRequest(
            request_id=str(index), prompt_token_ids=tuple(prompt), max_tokens=NUM_TOKENS, temperature=0.0
        )
        for index, prompt in enumerate(prompts)
    ]
    num_steps = 0
    while to_add or built.core.has_work:
        commands = []
        while to_add and len(ids) * steps_between <= num_steps:
            request = to_add.pop(0)
            ids[request.request_id] = []
            commands.append(AddRequests(request.request_id, (request,)))
        built.core.execute(commands)
        for output in built.core.step():
            assert output.error is None
            ids[output.request_id] += output.token_ids
            cached[output.request_id] = output.num_cached_tokens
        num_steps += 1
    stats = built.core.stats()
    assert (stats.num_blocks_in_use, stats.num_running, stats.num_waiting) == (0, 0, 0)
    return [tuple(each) for each in ids.values()], list(cached.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_alone(variant):
    built = engine_of(model_of(variant))
    assert [run(built, [prompt])[0][0] for prompt in PROMPTS] == expected(variant)


@both_modes
@pytest.mark.parametrize("variant", VARIANTS)
def test_in_a_batch_of_unequal_prompts(variant, run_ahead):
    ids, _ = run(engine_of(model_of(variant), run_ahead=run_ahead), PROMPTS)
    assert ids == expected(variant)


@both_modes
@pytest.mark.parametrize("steps_between", [1, 3])
def test_joined_late(run_ahead, steps_between):
    built = engine_of(model_of("llama 4/2 heads"), run_ahead=run_ahead)
    ids, _ = run(built, PROMPTS, steps_between=steps_between)
    assert ids == expected("llama 4/2 heads")


@both_modes
@pytest.mark.parametrize("variant", VARIANTS)
def test_chunked_with_a_budget_of_four(variant, run_ahead):
    built = engine_of(model_of(variant), run_ahead=run_ahead, max_num_batched_tokens=4, max_num_seqs=4)
    ids, _ = run(built, PROMPTS)
    assert ids == expected(variant)
    assert built.core.stats().num_steps > sum(map(len, PROMPTS)) / 4


@both_modes
def test_with_prefix_hits(run_ahead):
    """Also case C01: a prompt that is cached whole still computes its last block."""
    model = model_of("llama 9/3 heads")
    built = engine_of(model, run_ahead=run_ahead)
    ids, cached = run(built, PROMPTS)
    assert cached == [0] * len(PROMPTS)
    assert run(built, PROMPTS) == (ids, [(len(prompt) - 1) // 4 * 4 for prompt in PROMPTS])
    longer = [*PROMPTS[4], 7]
    assert run(built, [longer]) == ([greedy_reference(model, longer, NUM_TOKENS)], [8])


@both_modes
@pytest.mark.parametrize(
    "settings", [{"max_num_batched_tokens": 64}, {"max_num_batched_tokens": 8, "max_num_seqs": 8}]
)
def test_prompts_that_share_a_prefix_in_one_step(run_ahead, settings):
    """Case C03: nothing counts as cached before the step that wrote it is over."""
    model = model_of("llama 4/2 heads")
    prompts = [[*range(1, 9), 20], [*range(1, 9), 30], [*range(1, 9), 20]]
    ids, _ = run(engine_of(model, run_ahead=run_ahead, **settings), prompts)
    assert ids == [greedy_reference(model, prompt, NUM_TOKENS) for prompt in prompts]


@both_modes
@pytest.mark.parametrize("variant", VARIANTS)
def test_preempted(variant, run_ahead):
    """Case C08, greedy: recomputing after a preemption changes nothing."""
    built = engine_of(model_of(variant), run_ahead=run_ahead, num_blocks=12)
    ids, _ = run(built, PROMPTS)
    assert ids == expected(variant)
    assert built.core.stats().num_preemptions > 0, "the pool was large enough: nothing was shown"


@both_modes
def test_preempted_chunked_and_joined_late_at_once(run_ahead):
    built = engine_of(
        model_of("qwen3"), run_ahead=run_ahead, num_blocks=12, max_num_batched_tokens=6, max_num_seqs=4
    )
    ids, _ = run(built, PROMPTS, steps_between=2)
    assert ids == expected("qwen3")
    assert built.core.stats().num_preemptions > 0, "the pool was large enough: nothing was shown"
