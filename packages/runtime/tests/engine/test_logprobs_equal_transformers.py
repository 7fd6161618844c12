"""Log-probabilities of prompts and outputs are log-softmax of `transformers`' logits, however requests are mixed."""

from functools import cache

import pytest
import torch
from msgspec.structs import replace

from minivllm_runtime.messages import AbortRequest, AddRequests, EngineRequest
from minivllm_scheduler import FinishReason

from ..reference.tiny_transformers import VOCAB_SIZE, engine_of, reference_model

PROMPTS = ((3, 1, 4, 1, 5, 9, 2, 6), (7,), tuple(range(20, 60)), (8, 8))
NUM_TOP = 4

both_modes = pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])
settings_that_mix = pytest.mark.parametrize(
    "settings",
    [{}, {"num_blocks": 18}, {"max_num_batched_tokens": 6, "max_num_seqs": 4}],
    ids=["together", "preempted", "chunked"],
)


@cache
def model():
    return reference_model("llama 4/2 heads")


@torch.inference_mode()
def reference(token_ids):
    """[T, V]: row t is the distribution of the token behind token t."""
    return torch.log_softmax(model()(torch.tensor([token_ids])).logits[0].float(), dim=-1)


def requests(**changes):
    return [
        EngineRequest(
            **{
                "request_id": f"r{index}",
                "prompt_token_ids": prompt,
                "max_tokens": 12,
                "seed": index,
                "logprobs": NUM_TOP,
                "prompt_logprobs": NUM_TOP,
                **changes,
            }
        )
        for index, prompt in enumerate(PROMPTS)
    ]


def run(core, requests):
    """Per request: ids, their log-probabilities, those of the prompt."""
    core.execute([AddRequests(each.request_id, (each,)) for each in requests])
    ids, logprobs, prompts = {}, {}, {}
    while core.has_work:
        for output in core.step():
            assert output.error is None
            if output.request_id not in ids:
                prompts[output.request_id] = output.prompt_logprobs
            else:
                assert output.prompt_logprobs is None, "a prompt is reported once"
            ids[output.request_id] = ids.get(output.request_id, ()) + output.token_ids
            if output.logprobs is not None:
                logprobs[output.request_id] = logprobs.get(output.request_id, ()) + output.logprobs
    return ids, logprobs, prompts


def assert_scores(scores, token_ids, expected):
    """`scores` are those of `token_ids` under the rows of `expected`."""
    assert len(scores) == len(token_ids) == len(expected)
    for score, token_id, row in zip(scores, token_ids, expected, strict=True):
        assert score.logprob == pytest.approx(row[token_id].item(), abs=2e-5)
        assert [logprob for _, logprob in score.top] == pytest.approx(
            row.topk(NUM_TOP).values.tolist(), abs=2e-5
        )
        assert [row[top_id].item() for top_id, _ in score.top] == pytest.approx(
            [logprob for _, logprob in score.top], abs=2e-5
        )
        more_probable = (row > row[token_id] + 1e-4).sum(), (row > row[token_id] - 1e-4).sum()
        assert more_probable[0] < score.rank <= more_probable[1] + 1


@both_modes
@settings_that_mix
@pytest.mark.parametrize(
    "changes",
    [{}, {"temperature": 0.0}, {"temperature": 1.9, "top_k": 3, "presence_penalty": 2.0}],
    ids=["random", "greedy", "changed logits"],
)
def test_prompts_and_outputs(run_ahead, settings, changes):
    core = engine_of(model(), run_ahead=run_ahead, **settings).core
    plain = EngineRequest(request_id="plain", prompt_token_ids=(5,) * 9, max_tokens=14)
    ids, logprobs, prompts = run(core, [*requests(**changes), plain])
    assert "plain" not in logprobs
    assert prompts["plain"] is None
    for request in requests():
        name, prompt = request.request_id, request.prompt_token_ids
        expected = reference([*prompt, *ids[name]])
        assert_scores(prompts[name], prompt[1:], expected[: len(prompt) - 1])
        assert_scores(logprobs[name], ids[name], expected[len(prompt) - 1 : -1])
    assert (core.stats().num_preemptions > 0) == ("num_blocks" in settings)


@both_modes
@settings_that_mix
def test_a_prompt_alone_is_scored_without_a_token_of_output(run_ahead, settings):
    core = engine_of(model(), run_ahead=run_ahead, **settings).core
    stops = frozenset(range(VOCAB_SIZE))
    ids, logprobs, prompts = run(core, requests(max_tokens=0, stop_token_ids=stops))
    assert set(ids.values()) == {()}
    assert logprobs == {}
    for request in requests():
        prompt = request.prompt_token_ids
        assert_scores(prompts[request.request_id], prompt[1:], reference(prompt)[:-1])


@pytest.mark.parametrize("num_tokens", [1, 63, 64])
def test_a_prompt_that_fills_the_context_is_scored(num_tokens):
    core = engine_of(model(), max_model_len=64).core
    prompt = tuple(range(num_tokens))
    request = EngineRequest(request_id="r", prompt_token_ids=prompt, max_tokens=0, prompt_logprobs=NUM_TOP)
    core.execute([AddRequests("r", (request,))])
    outputs = [output for _ in range(3) for output in core.step()]
    assert [(output.token_ids, output.finish_reason) for output in outputs] == [((), FinishReason.LENGTH)]
    assert_scores(outputs[0].prompt_logprobs, prompt[1:], reference(prompt)[:-1])


def test_a_cached_prompt_is_scored_whole():
    core = engine_of(model()).core
    _, _, first = run(core, requests())
    assert core.stats().prefix_hits_tokens == 0
    _, _, second = run(core, requests())
    assert second == first
    assert core.stats().prefix_hits_tokens == 0


@both_modes
def test_siblings_read_the_prompt_that_their_leader_scored(run_ahead):
    leader = replace(requests()[2], group="g")
    siblings = [
        replace(leader, request_id=f"s{choice}", choice=choice, prompt_logprobs=None) for choice in (1, 2)
    ]
    core = engine_of(model(), run_ahead=run_ahead).core
    core.execute([AddRequests("g", (leader, *siblings))])
    ids, logprobs, prompts = run(core, [])
    assert [prompts[each.request_id] for each in siblings] == [None, None]
    assert core.stats().prefix_hits_tokens == 2 * 36
    for each in (leader, *siblings):
        expected = reference([*leader.prompt_token_ids, *ids[each.request_id]])
        assert_scores(logprobs[each.request_id], ids[each.request_id], expected[39:-1])


@both_modes
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_an_aborted_request_s_name_can_be_used_again_at_once(run_ahead, steps):
    core = engine_of(model(), run_ahead=run_ahead, max_num_batched_tokens=6, max_num_seqs=4).core
    old, new = requests()[2], replace(requests()[0], request_id="r2")
    core.execute([AddRequests("old", (old,))])
    for _ in range(steps):
        core.step()
    core.execute([AbortRequest("r2")])
    ids, logprobs, prompts = run(core, [new])
    expected = reference([*new.prompt_token_ids, *ids["r2"]])
    assert_scores(prompts["r2"], new.prompt_token_ids[1:], expected[:7])
    assert_scores(logprobs["r2"], ids["r2"], expected[7:-1])
