"""What the core does when things go wrong: cases C11 (abort), C05 (never and not now) and C31 (faults)."""

import pytest
import torch

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.engine.builder import assemble_engine
from minivllm_runtime.messages import AbortRequest, Accepted, AddRequests, EngineRequest, Refused
from minivllm_scheduler import FinishReason

from ..reference.tiny_transformers import engine_of, greedy_reference, reference_model
from ..scripted.byte_level import byte_level_tokenizer
from ..scripted.model import ScriptedModel, scripted_config

MODEL = reference_model("llama 4/2 heads")
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]

both_modes = pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one step ahead"])


def request(name, prompt=PROMPT, max_tokens=6, **changes):
    return EngineRequest(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        max_tokens=max_tokens,
        **{"temperature": 0.0, **changes},
    )


def add(*requests):
    return AddRequests(requests[0].request_id, requests)


def drain(core, commands=()):
    """Step until nothing is left: ids and finish reason per request."""
    ids, reasons = {}, {}
    while True:
        core.execute(commands)
        for output in core.step():
            ids[output.request_id] = ids.get(output.request_id, ()) + output.token_ids
            if output.finish_reason is not None:
                assert output.request_id not in reasons, "a request ends once"
                reasons[output.request_id] = output.finish_reason
        commands = ()
        if not core.has_work:
            return ids, reasons


def assert_at_rest(core):
    stats = core.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)
    assert stats.num_blocks_allocatable == stats.num_blocks


class Faulty:
    """A model that raises in the forward passes it is told to."""

    def __init__(self, model):
        self.model = model
        self.num_calls = 0
        self.raises_at = set()
        self.always = False

    def __call__(self, *step):
        self.num_calls += 1
        if self.always or self.num_calls in self.raises_at:
            raise RuntimeError("no such luck")
        return self.model(*step)

    def compute_logits(self, hidden):
        return self.model.compute_logits(hidden)


def faulty_engine(run_ahead):
    model = Faulty(ScriptedModel([7] * 40, prompt_length=len(PROMPT)))
    config = EngineConfig(num_blocks=50, block_size=4, max_num_seqs=8, run_ahead=run_ahead)
    built = assemble_engine(
        config,
        model,
        byte_level_tokenizer(),
        scripted_config(),
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return built.core, model


@both_modes
@pytest.mark.parametrize("call", [1, 2, 4])
def test_c31_an_exception_ends_the_requests_of_that_step_and_the_next_one_is_served(run_ahead, call):
    core, model = faulty_engine(run_ahead)
    model.raises_at = {call}
    _, reasons = drain(core, [add(request("a"), request("b"))])
    assert reasons == {"a": FinishReason.ERROR, "b": FinishReason.ERROR}
    assert_at_rest(core)
    ids, reasons = drain(core, [add(request("c"))])
    assert (ids, reasons) == ({"c": (7,) * 6}, {"c": FinishReason.LENGTH})
    assert core.fatal_error is None
    assert_at_rest(core)


@both_modes
def test_c31_a_request_that_waited_when_a_step_failed_is_served(run_ahead):
    core, model = faulty_engine(run_ahead)
    model.raises_at = {2}
    core.execute([add(*(request(str(index)) for index in range(8)))])
    core.step()
    _, reasons = drain(core, [add(request("late"))])
    assert reasons.pop("late") == FinishReason.LENGTH
    assert reasons == {str(index): FinishReason.ERROR for index in range(8)}
    assert_at_rest(core)


@both_modes
def test_c31_nothing_of_a_step_that_failed_before_it_was_sent_reaches_a_later_one(run_ahead, monkeypatch):
    core, _ = faulty_engine(run_ahead)
    flush = RequestStates.flush
    sent, errors = [], [RuntimeError("no such luck")]

    def flush_once_errors_are_over(states):
        if errors:
            raise errors.pop()
        sent.append(len(states._new_token_ids._places))
        flush(states)

    monkeypatch.setattr(RequestStates, "flush", flush_once_errors_are_over)
    _, reasons = drain(core, [add(request("a"))])
    assert reasons == {"a": FinishReason.ERROR}
    sent.clear()  # the self-test's
    ids, _ = drain(core, [add(request("b"))])
    assert ids == {"b": (7,) * 6}
    assert sent[0] == len(PROMPT)
    assert_at_rest(core)


@both_modes
def test_c31_a_device_that_fails_its_self_test_stops_the_engine(run_ahead):
    core, model = faulty_engine(run_ahead)
    model.always = True
    core.execute([add(request("a"))])
    outputs = core.step() or core.step()
    assert [(o.request_id, o.finish_reason) for o in outputs] == [("a", FinishReason.ERROR)]
    assert outputs[0].error == "RuntimeError: no such luck"
    assert core.fatal_error == "RuntimeError: no such luck"
    num_calls = model.num_calls
    core.execute([add(request("b"))])
    assert core.step() == ()
    assert model.num_calls == num_calls, "a dead engine computes nothing"


def test_one_step_ahead_the_step_launched_beyond_the_last_token_is_taken_in():
    core, _ = faulty_engine(run_ahead=True)
    core.execute([add(request("a", stop_token_ids=frozenset({7})))])
    assert core.step() == ()
    assert [output.finish_reason for output in core.step()] == [FinishReason.STOP]
    assert core.has_work
    assert core.step() == ()
    assert not core.has_work
    assert_at_rest(core)


@both_modes
@pytest.mark.parametrize("steps", [0, 1, 2, 4, 9])
def test_c11_abort_at_any_time_leaves_the_other_request_alone(run_ahead, steps):
    built = engine_of(MODEL, run_ahead=run_ahead, max_num_batched_tokens=8, max_num_seqs=4)
    core = built.core
    expected = greedy_reference(MODEL, PROMPT, 6)
    ids = {"a": (), "b": ()}
    core.execute([add(request("a")), add(request("b", [*PROMPT, *PROMPT], 4))])
    for _ in range(steps):
        for output in core.step():
            ids[output.request_id] += output.token_ids
    late, _ = drain(core, [AbortRequest("b"), AbortRequest("b"), AbortRequest("nobody")])
    assert "b" not in late or len(ids["b"]) == 4, "nothing after the abort was accepted"
    if "a" in late:
        ids["a"] += late["a"]
    assert ids["a"] == expected
    assert_at_rest(core)


@both_modes
@pytest.mark.parametrize(
    ("prompt_length", "max_tokens", "fits"), [(9, 1, False), (8, 1, True), (7, 2, True), (8, 4, False)]
)
def test_c05_what_never_fits_is_refused_and_the_follower_completes(
    run_ahead, prompt_length, max_tokens, fits
):
    core = engine_of(MODEL, run_ahead=run_ahead, num_blocks=2).core
    answers = core.execute([add(request("a", [5] * prompt_length, max_tokens)), add(request("b", [5], 1))])
    assert [type(answer) for answer in answers] == [Accepted if fits else Refused, Accepted]
    if not fits:
        assert not answers[0].queue_full
        assert str(prompt_length) in answers[0].message
    drain(core)
    assert core.stats().num_steps > 0
    assert_at_rest(core)


def test_a_full_queue_says_not_now_and_a_batch_above_its_limit_never():
    core = engine_of(MODEL, max_num_waiting=3, max_num_seqs=1).core
    five = add(*(request(f"five-{index}") for index in range(5)))
    four = add(*(request(f"four-{index}") for index in range(4)))
    answers = core.execute([five, four, add(request("one"))])
    assert [type(answer) for answer in answers] == [Refused, Accepted, Refused]
    assert (answers[0].queue_full, answers[2].queue_full) == (False, True)
    drain(core)
    assert_at_rest(core)


@both_modes
@pytest.mark.parametrize("num_added", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("num_there", [0, 1, 2, 4])
def test_never_is_the_answer_to_what_an_idle_engine_would_not_take_either(run_ahead, num_there, num_added):
    core = engine_of(MODEL, max_num_waiting=3, max_num_seqs=1, run_ahead=run_ahead).core
    if num_there:
        core.execute([add(*(request(f"there-{index}") for index in range(num_there)))])
    core.step()
    room = core.queue_room
    (answer,) = core.execute([batch := add(*(request(f"new-{index}") for index in range(num_added)))])
    assert room == 4 - num_there
    assert isinstance(answer, Accepted) == (num_added <= room)
    if isinstance(answer, Refused):
        assert answer.queue_full == (num_added <= 4)
        drain(core)
        (later,) = core.execute([batch])
        assert isinstance(later, Accepted) == answer.queue_full
    drain(core)
    assert_at_rest(core)


@both_modes
def test_siblings_share_the_prompt_of_their_leader_and_draw_apart(run_ahead):
    core = engine_of(MODEL, run_ahead=run_ahead).core
    prompt = [*range(1, 14)]
    siblings = [
        request(f"s{choice}", prompt, 8, temperature=1.0, seed=5, choice=choice, group="g")
        for choice in range(4)
    ]
    cached, ids = {}, {}
    commands = [add(*siblings)]
    while True:
        core.execute(commands)
        for output in core.step():
            cached[output.request_id] = output.num_cached_tokens
            ids[output.request_id] = ids.get(output.request_id, ()) + output.token_ids
        commands = []
        if not core.has_work:
            break
    assert cached == {"s0": 0, "s1": 12, "s2": 12, "s3": 12}
    assert len(set(ids.values())) == 4


@both_modes
def test_c08_seeded_draws_do_not_depend_on_neighbours_preemption_or_mode(run_ahead):
    requests = [request(f"r{i}", [i + 1] * 6, 14, temperature=1.0, seed=7, top_p=0.9) for i in range(4)]
    alone = {}
    for each in requests:
        alone |= drain(engine_of(MODEL).core, [add(each)])[0]
    tight = engine_of(MODEL, run_ahead=run_ahead, num_blocks=8).core
    assert drain(tight, [add(each) for each in requests])[0] == alone
    assert tight.stats().num_preemptions > 0


@both_modes
@pytest.mark.parametrize(
    "settings",
    [{}, {"num_blocks": 8}, {"max_num_batched_tokens": 4, "max_num_seqs": 4}],
    ids=["together", "preempted", "chunked"],
)
def test_c08_penalties_count_the_same_tokens_however_a_request_is_scheduled(run_ahead, settings):
    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": -0.4}
    requests = [
        request(f"r{i}", [i + 1] * 6, 14, temperature=0.7, seed=i, logit_bias=((i, 3.0),), **penalties)
        for i in range(3)
    ]
    requests.append(request("neighbour", [9] * 6, 14))
    alone = {}
    for each in requests:
        alone |= drain(engine_of(MODEL).core, [add(each)])[0]
    core = engine_of(MODEL, run_ahead=run_ahead, **settings).core
    assert drain(core, [add(each) for each in requests])[0] == alone
    assert (core.stats().num_preemptions > 0) == ("num_blocks" in settings)


@both_modes
def test_greedy_with_a_repetition_penalty_is_that_of_transformers(run_ahead):
    core = engine_of(MODEL, run_ahead=run_ahead).core
    ids, _ = drain(core, [add(request("a", max_tokens=20, repetition_penalty=1.3)), add(request("b"))])
    assert ids["a"] == greedy_reference(MODEL, PROMPT, 20, repetition_penalty=1.3)
    assert ids["a"] != greedy_reference(MODEL, PROMPT, 20)
    assert ids["b"] == greedy_reference(MODEL, PROMPT, 6)


@pytest.mark.parametrize(
    ("policy", "order"),
    [("fcfs", "a1 a2 a3 b1 b2"), ("fair", "a1 b1 a2 b2 a3"), ("priority", "b2 a1 a2 a3 b1")],
)
def test_who_is_admitted_next_is_the_policy_s_choice(policy, order):
    core = engine_of(MODEL, num_blocks=50, max_num_seqs=1, scheduling_policy=policy).core
    names = ["a1", "a2", "a3", "b1", "b2"]
    core.execute([add(request(name, tenant=name[0], priority=-(name == "b2"))) for name in names])
    ended = []
    while core.has_work:
        ended += [output.request_id for output in core.step() if output.finish_reason is not None]
    assert ended == order.split()
