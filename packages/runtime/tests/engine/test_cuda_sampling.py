"""Sampling on a CUDA device: what it gives on a CPU, and no step waits for the device."""

import json

import pytest
from msgspec.structs import replace

from minivllm_runtime.messages import EngineRequest

from ..reference.devices import NEEDS_CUDA
from ..reference.sync_debug import waiting_is_an_error
from ..reference.tiny_transformers import engine_of
from ..scripted.byte_level import IM_END
from .test_logprobs_equal_transformers import assert_scores, model, reference, requests, run

pytestmark = NEEDS_CUDA

both_modes = pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])
settings_that_mix = pytest.mark.parametrize(
    "settings",
    [{}, {"num_blocks": 18}, {"max_num_batched_tokens": 6, "max_num_seqs": 4}],
    ids=["together", "preempted", "chunked"],
)


@both_modes
@settings_that_mix
@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.0},
        {"top_k": 20, "top_p": 0.8, "min_p": 0.01},
        {
            "repetition_penalty": 1.3,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.2,
            "logit_bias": ((5, 4.0),),
        },
        {"min_tokens": 12, "stop_token_ids": frozenset(range(128))},
    ],
    ids=["greedy", "limited", "penalties", "banned"],
)
def test_tokens_and_log_probabilities(run_ahead, settings, changes):
    plain = EngineRequest(request_id="plain", prompt_token_ids=(5,) * 9, max_tokens=14, temperature=0.0)
    asked = [*requests(**changes), plain]
    expected, _, _ = run(engine_of(model()).core, asked)
    core = engine_of(model(), device="cuda", run_ahead=run_ahead, **settings).core
    ids, logprobs, prompts = run(core, asked)
    assert ids == expected
    for request in requests():
        name, prompt = request.request_id, request.prompt_token_ids
        rows = reference([*prompt, *ids[name]])
        assert_scores(prompts[name], prompt[1:], rows[: len(prompt) - 1])
        assert_scores(logprobs[name], ids[name], rows[len(prompt) - 1 : -1])


@both_modes
@settings_that_mix
def test_output_follows_a_schema_beside_other_requests_in_captured_steps(run_ahead, settings):
    pytest.importorskip("xgrammar")
    schema = {"enum": ["a long value", [1, 2, 3], {"x": None}]}
    shaped = EngineRequest(
        request_id="",
        prompt_token_ids=(1, 2, 3),
        max_tokens=40,
        stop_token_ids=frozenset({IM_END}),
        json_schema=json.dumps(schema),
    )
    asked = [replace(shaped, request_id=f"sampled {seed}", seed=seed) for seed in range(4)]
    asked.append(replace(shaped, request_id="greedy", temperature=0.0))
    free = EngineRequest(request_id="free", prompt_token_ids=(1, 2), max_tokens=30, seed=5)
    asked += [free, replace(free, request_id="free greedy", temperature=0.0)]
    expected, _, _ = run(engine_of(model()).core, asked)

    core = engine_of(model(), device="cuda", run_ahead=run_ahead, **settings).core
    replays = count_replays(core)
    ids, _, _ = run(core, asked)
    assert ids == expected
    for request in asked[:5]:
        *text, end = ids[request.request_id]
        assert end == IM_END
        assert json.loads(bytes(text)) in schema["enum"]
    assert replays == [True] * core.stats().num_steps


def count_replays(core):
    """Whether each step from now on was replayed as a graph."""
    replays, replay = [], core._runner._graphs.replay

    def replay_and_count(columns):
        output = replay(columns)
        replays.append(output is not None)
        return output

    core._runner._graphs.replay = replay_and_count
    return replays


@settings_that_mix
def test_no_step_waits_for_the_device(settings):
    """Results are waited for by their events; launching must not."""
    core = engine_of(model(), device="cuda", run_ahead=True, **settings).core
    changes = {"presence_penalty": 0.5, "top_k": 20, "top_p": 0.8, "min_p": 0.01, "logit_bias": ((5, 4.0),)}
    asked = [
        *requests(**changes),
        EngineRequest(request_id="greedy", prompt_token_ids=(5,) * 9, max_tokens=14),
    ]
    expected, _, _ = run(core, asked)  # whatever is compiled once is compiled now
    with waiting_is_an_error():
        ids, _, _ = run(core, asked)
    assert ids == expected
