"""Sampling on a CUDA device: what it gives on a CPU, and no step waits for the device."""

import json
from dataclasses import replace

import pytest
import torch

from minivllm_runtime.engine.messages import AddRequests, EngineRequest
from minivllm_scheduler import FinishReason

from ..reference.sync_debug import waiting_is_an_error
from ..reference.tiny_transformers import engine_of
from ..scripted.byte_level import IM_END
from .test_logprobs_equal_transformers import assert_scores, model, reference, requests, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

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
def test_output_follows_a_schema(run_ahead):
    schema = {"enum": ["a long value", [1, 2, 3], {"x": None}]}
    request = EngineRequest(
        request_id="",
        prompt_token_ids=(1, 2, 3),
        max_tokens=100,
        stop_token_ids=frozenset({IM_END}),
        json_schema=json.dumps(schema),
    )
    core = engine_of(model(), device="cuda", run_ahead=run_ahead).core
    asked = [replace(request, request_id=f"r{seed}", seed=seed) for seed in range(6)]
    asked.append(EngineRequest(request_id="free", prompt_token_ids=(1, 2), max_tokens=30))
    core.execute([AddRequests("all", tuple(asked))])
    texts, ends = {}, {}
    while core.has_work:
        for output in core.step():
            texts[output.request_id] = texts.get(output.request_id, ()) + output.token_ids
            ends[output.request_id] = output.finish_reason
    for each in asked[:-1]:
        assert ends[each.request_id] is FinishReason.STOP
        assert json.loads(bytes(texts[each.request_id][:-1])) in schema["enum"]


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
