"""The same engine on a CUDA device: the Triton backend, greedy in float32, against `transformers` on the CPU."""

import pytest

from ..reference.devices import NEEDS_CUDA
from ..reference.sync_debug import waiting_is_an_error
from ..reference.tiny_transformers import VARIANTS, engine_of
from .test_greedy_equals_transformers import PROMPTS, both_modes, expected, model_of, run

pytestmark = NEEDS_CUDA


@both_modes
@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize(
    "settings",
    [{}, {"max_num_batched_tokens": 4, "max_num_seqs": 4}, {"num_blocks": 12}],
    ids=["together", "chunks of four", "preempted"],
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_equals_transformers(variant, settings, block_size, run_ahead):
    if "num_blocks" in settings:
        settings = {"num_blocks": settings["num_blocks"] * 4 // block_size}
    built = engine_of(
        model_of(variant), device="cuda", run_ahead=run_ahead, block_size=block_size, **settings
    )
    ids, _ = run(built, PROMPTS)
    assert ids == expected(variant)
    assert (built.core.stats().num_preemptions > 0) == ("num_blocks" in settings)


@both_modes
def test_prefix_hits(run_ahead):
    built = engine_of(model_of("llama 9/3 heads"), device="cuda", run_ahead=run_ahead)
    ids, _ = run(built, PROMPTS)
    assert run(built, PROMPTS) == (ids, [(len(prompt) - 1) // 4 * 4 for prompt in PROMPTS])
    assert ids == expected("llama 9/3 heads")


@both_modes
def test_captured_steps_give_what_steps_launched_kernel_by_kernel_give(run_ahead):
    captured = engine_of(model_of("qwen3"), device="cuda", run_ahead=run_ahead)
    launched = engine_of(model_of("qwen3"), device="cuda", run_ahead=run_ahead)
    launched.core._runner._graphs.replay = lambda columns: None
    assert run(captured, PROMPTS, steps_between=1) == run(launched, PROMPTS, steps_between=1)


@both_modes
def test_a_run_never_waits_for_the_device_but_for_its_ids(run_ahead):
    built = engine_of(model_of("llama 9/3 heads"), device="cuda", run_ahead=run_ahead)
    run(built, PROMPTS)  # what is allocated and compiled but once
    with waiting_is_an_error():
        ids, _ = run(built, PROMPTS)
    assert ids == expected("llama 9/3 heads")
