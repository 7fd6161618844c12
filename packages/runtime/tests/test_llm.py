"""The offline facade with a scripted model: order, choices, refusals, failures that leave nothing behind."""

import pytest
import torch

from minivllm_runtime import LLM, EngineConfig, EngineDead, InvalidParameter, RequestFailed, SamplingParams
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.messages import AddRequests, EngineRequest
from minivllm_runtime.tokenizer import Tokenizer
from minivllm_scheduler.recording import Added, Scheduled

from .scripted.byte_level import byte_level_tokenizer
from .scripted.model import ScriptedModel, scripted_config

TEXT = "one two three"
PROMPT = "prompt: "


class FaultyTokenizer(Tokenizer):
    """Cannot decode "w"."""

    def token_bytes(self, token_id):
        if token_id == ord("w"):
            raise ValueError("no such token")
        return super().token_bytes(token_id)


class Interrupted(ScriptedModel):
    """As by Ctrl-C, in its third pass."""

    num_passes = 0

    def __call__(self, *step):
        self.num_passes += 1
        if self.num_passes == 3:
            raise KeyboardInterrupt
        return super().__call__(*step)


class Broken(ScriptedModel):
    def __call__(self, *step):
        raise RuntimeError("for ever")


def built_engine(*, model_class=ScriptedModel, tokenizer=None, record=None, **settings):
    return assemble_engine(
        EngineConfig(**{"num_blocks": 64, "block_size": 4, "max_num_seqs": 4, **settings}),
        model_class(list(TEXT.encode()), prompt_length=len(PROMPT)),
        tokenizer or byte_level_tokenizer(),
        scripted_config(),
        dtype=torch.float32,
        device=torch.device("cpu"),
        record=record,
    )


def greedy(**changes):
    return SamplingParams(**{"temperature": 0.0, "max_tokens": len(TEXT), **changes})


def assert_at_rest(llm):
    stats = llm.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)


both_modes = pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])


@both_modes
def test_outputs_come_in_the_order_of_the_prompts_each_with_its_choices(run_ahead):
    llm = LLM.from_engine(built_engine(run_ahead=run_ahead, max_num_waiting=3))
    prompts = [PROMPT, tuple(b"another:"), PROMPT, PROMPT]
    params = [greedy(), greedy(n=3, stop="two"), greedy(max_tokens=3), greedy(max_tokens=100, stop="wo t")]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [output.prompt for output in outputs] == [PROMPT, None, PROMPT, PROMPT]
    assert [output.prompt_token_ids for output in outputs[:2]] == [tuple(PROMPT.encode()), prompts[1]]
    assert [[choice.text for choice in output.outputs] for output in outputs] == [
        [TEXT],
        ["one "] * 3,
        ["one"],
        ["one t"],
    ]
    assert [choice.index for choice in outputs[1].outputs] == [0, 1, 2]
    assert_at_rest(llm)


@both_modes
def test_log_probabilities_stand_beside_ids_and_are_cut_with_them(run_ahead):
    llm = LLM.from_engine(built_engine(run_ahead=run_ahead))
    params = greedy(n=2, stop="two", logprobs=3, prompt_logprobs=1)
    (output,) = llm.generate([PROMPT], params, use_tqdm=False)
    for choice in output.outputs:
        assert choice.text == "one "
        assert "".join(logprob.text for logprob in choice.logprobs) == "one two"
        assert [logprob.token_id for logprob in choice.logprobs] == list(choice.token_ids)
        assert {logprob.rank for logprob in choice.logprobs} == {1}
        assert {len(logprob.top) for logprob in choice.logprobs} == {3}
    assert "".join(logprob.text for logprob in output.prompt_logprobs) == PROMPT
    assert [logprob.logprob is None for logprob in output.prompt_logprobs] == [True] + [False] * 7


@both_modes
def test_a_prompt_can_be_scored_alone(run_ahead):
    llm = LLM.from_engine(built_engine(run_ahead=run_ahead))
    params = SamplingParams(max_tokens=0, prompt_logprobs=0, logprobs=0)
    (output,) = llm.generate([PROMPT], params, use_tqdm=False)
    (choice,) = output.outputs
    assert (choice.text, choice.token_ids, choice.finish_reason, choice.logprobs) == ("", (), "length", ())
    assert len(output.prompt_logprobs) == len(PROMPT)
    assert_at_rest(llm)


def events_of(params, **settings):
    """What the scheduler did for 8 prompts, of which a step computes two."""
    events = []
    llm = LLM.from_engine(
        built_engine(record=events.append, max_num_batched_tokens=2 * len(PROMPT), max_num_seqs=8, **settings)
    )
    outputs = llm.generate([PROMPT] * 8, params, use_tqdm=False)
    assert [output.outputs[0].text for output in outputs] == [TEXT] * 8
    assert_at_rest(llm)
    return events


@pytest.mark.parametrize("run_ahead", [False, True])
def test_the_first_step_waits_for_no_more_prompts_than_it_takes(run_ahead):
    events = events_of(greedy(), run_ahead=run_ahead)
    kinds = [type(event) for event in events if isinstance(event, Added | Scheduled)]
    assert kinds[:2] == [Added, Added]
    assert kinds[2] is Scheduled
    assert kinds[3:9] == [Added] * 6


@pytest.mark.parametrize("run_ahead", [False, True])
def test_the_first_step_waits_for_all_prompts_if_one_goes_before_others(run_ahead):
    params = [greedy(priority=-index) for index in range(8)]
    events = events_of(params, run_ahead=run_ahead, scheduling_policy="priority")
    kinds = [type(event) for event in events if isinstance(event, Added | Scheduled)]
    assert kinds[:9] == [*[Added] * 8, Scheduled]
    admitted = [
        each.request_id for event in events if isinstance(event, Scheduled) for each in event.output.admitted
    ]
    assert admitted == [f"{index}-0-0" for index in reversed(range(8))]


def test_one_prompt_is_a_list_of_one():
    llm = LLM.from_engine(built_engine())
    for prompt in (PROMPT, list(PROMPT.encode())):
        assert [output.outputs[0].text for output in llm.generate(prompt, greedy(), use_tqdm=False)] == [TEXT]
    assert llm.generate([], use_tqdm=False) == []


def test_misuse_is_refused_before_anything_runs():
    llm = LLM.from_engine(built_engine(max_num_waiting=3))
    with pytest.raises(InvalidParameter, match="2 sampling parameters for 1 prompts"):
        llm.generate([PROMPT], [greedy(), greedy()])
    with pytest.raises(InvalidParameter, match=r"n \(8\).*limit of 7"):
        llm.generate([PROMPT], greedy(n=8))
    with pytest.raises(InvalidParameter, match=r"128 tokens.*8 tokens.*121"):
        llm.generate([PROMPT, PROMPT], [greedy(), greedy(max_tokens=121)])
    assert llm.stats().num_steps == 0
    assert len(llm.generate(PROMPT, greedy(n=7, max_tokens=1), use_tqdm=False)[0].outputs) == 7
    with pytest.raises(InvalidParameter, match="'colour'"):
        LLM(colour="red")


@both_modes
def test_a_failed_choice_takes_its_siblings_and_the_other_prompts_with_it(run_ahead):
    tokenizer = FaultyTokenizer(byte_level_tokenizer().backend)
    llm = LLM.from_engine(built_engine(run_ahead=run_ahead, tokenizer=tokenizer, max_num_seqs=2))
    with pytest.raises(RequestFailed, match="no such token"):
        llm.generate([PROMPT, PROMPT], greedy(n=3), use_tqdm=False)
    assert_at_rest(llm)
    assert llm.generate(PROMPT, greedy(max_tokens=3), use_tqdm=False)[0].outputs[0].text == "one"


@both_modes
def test_an_interrupt_leaves_nothing_behind(run_ahead):
    llm = LLM.from_engine(built_engine(model_class=Interrupted, run_ahead=run_ahead, max_num_seqs=2))
    with pytest.raises(KeyboardInterrupt):
        llm.generate([PROMPT] * 3, greedy(), use_tqdm=False)
    assert_at_rest(llm)
    assert llm.generate(PROMPT, greedy(), use_tqdm=False)[0].outputs[0].text == TEXT


def test_a_request_that_the_engine_refuses_fails():
    built = built_engine()
    built.core.execute(
        [AddRequests("x", (EngineRequest(request_id="0-0-0", prompt_token_ids=(1,), max_tokens=1),))]
    )
    with pytest.raises(RequestFailed, match="'0-0-0' is already in use"):
        LLM.from_engine(built).generate(PROMPT, greedy(), use_tqdm=False)


def test_a_dead_engine_says_so_every_time():
    llm = LLM.from_engine(built_engine(model_class=Broken))
    for _ in range(2):
        with pytest.raises(EngineDead, match="for ever"):
            llm.generate(PROMPT, greedy(), use_tqdm=False)
