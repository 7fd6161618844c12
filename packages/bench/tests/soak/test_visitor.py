import asyncio
import json

import pytest

from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.soak.bad_requests import BAD_REQUESTS
from minivllm_bench.soak.cases import Case, Kind
from minivllm_bench.soak.visitor import Choice, End, Visit, Visitor, WholeAnswer

CASE = Case((5, 6), 4, ignore_eos=True, num_choices=2)
BAD = {bad.name: bad for bad in BAD_REQUESTS}


def ask(visitor, case=CASE, **options):
    return asyncio.run(visitor.ask(case, **options))


@pytest.mark.parametrize(
    "options", [{}, {"stream": True}, {"stream": True, "slowly": True}, {"cache_salt": "x"}]
)
def test_a_right_answer_is_learnt_once_and_recognized_in_every_form(server, visitor, options):
    assert ask(visitor) == Visit(End.ANSWERED)
    assert visitor.expected == {CASE: WholeAnswer((Choice("<11:4>", "length"),) * 2, 2, 8)}
    assert ask(visitor, **options) == Visit(End.ANSWERED)
    body = json.loads(server.bodies[-1])
    assert body["stream"] is True if options.get("stream") else "stream" not in body
    assert body["cache_salt"] == options.get("cache_salt")


@pytest.mark.parametrize("kind", Kind)
def test_a_case_of_any_kind_is_answered_the_same_whole_and_streamed(server, visitor, kind):
    case = Case(tuple(range(20)), 4, ignore_eos=True, num_choices=2, kind=kind)
    assert ask(visitor, case) == Visit(End.ANSWERED)
    assert ask(visitor, case, stream=True) == Visit(End.ANSWERED)
    (answer,) = visitor.expected.values()
    assert answer.choices[0].num_logprobs == (4 if kind is Kind.LOGPROBS else 0)
    server.fault = "changed"
    assert ask(visitor, case).end is End.FAULT


def test_a_lost_logprob_is_a_fault(server, visitor):
    case = Case((5,), 4, ignore_eos=True, num_choices=1, kind=Kind.LOGPROBS)
    assert ask(visitor, case) == Visit(End.ANSWERED)
    server.fault = "lost logprob"
    assert ask(visitor, case, stream=True).end is End.FAULT


def test_only_sampled_choices_may_differ(server, visitor):
    server.fault = "crossed choices"
    sampled = Case((5,), 4, ignore_eos=True, num_choices=2, kind=Kind.SAMPLED)
    assert ask(visitor, sampled) == Visit(End.ANSWERED)
    assert "must be equal" in ask(visitor, CASE).fault


def test_another_answer_than_the_first_is_a_fault(server, visitor):
    ask(visitor)
    server.fault = "changed"
    visit = ask(visitor)
    assert visit.end is End.FAULT
    assert "<11:4>2" in visit.fault
    assert "<11:4>'" in visit.fault


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        "crossed choices",
        "lost choice",
        "odd reason",
        "miscounted",
        "prompt miscounted",
        "crossed ids",
        "broken",
    ],
)
def test_a_wrong_answer_is_a_fault(server, visitor, fault, stream):
    server.fault = fault
    visit = ask(visitor, stream=stream)
    assert visit.end is End.FAULT
    assert visit.fault


@pytest.mark.parametrize("fault", ["goes on", "no usage", "crossed chunks", "cut", "no done"])
def test_a_wrong_stream_is_a_fault(server, visitor, fault):
    server.fault = fault
    visit = ask(visitor, stream=True)
    assert visit.end is End.FAULT
    assert visit.fault


def test_fewer_tokens_are_right_only_where_the_answer_may_end_by_itself(server, visitor):
    server.fault = "miscounted"
    more = Case((5, 6), 4, ignore_eos=False, num_choices=1)
    assert "5 completion tokens" in ask(visitor, more).fault


def test_a_full_queue_is_no_fault_if_it_says_when_to_come_again(server, visitor):
    server.fault = "busy"
    assert ask(visitor) == Visit(End.QUEUE_FULL)
    server.fault = "busy for ever"
    assert ask(visitor) == Visit(End.FAULT, "status 503 without Retry-After")


def test_no_answer_in_time_or_at_all_is_a_fault(server):
    hasty = Visitor(Endpoint.parse(server.url), "m", timeout_s=0.2)
    server.fault = "silent"
    assert ask(hasty) == Visit(End.FAULT, "no answer in 0.2 s")
    server.fault = "hangs up"
    patient = Visitor(Endpoint.parse(server.url), "m", timeout_s=30)
    assert "closed before the end" in ask(patient).fault


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused(visitor, name):
    assert asyncio.run(visitor.misbehave(BAD[name])) == Visit(End.REFUSED)


@pytest.mark.parametrize("fault", ["bad bodies welcome", "no envelope", "no message", "crossed ids"])
def test_a_bad_request_that_is_not_refused_rightly_is_a_fault(server, visitor, fault):
    server.fault = fault
    visit = asyncio.run(visitor.misbehave(BAD["cut JSON"]))
    assert visit.end is End.FAULT
    assert visit.fault.startswith("cut JSON: ")


@pytest.mark.parametrize("after_pieces", [1, 10**9])
def test_a_visitor_leaves_in_the_middle_or_with_the_whole_answer(server, visitor, after_pieces):
    visit = asyncio.run(visitor.leave(CASE, stream=True, after_pieces=after_pieces, within_s=30))
    assert visit == Visit(End.LEFT)
    assert len(server.bodies) == 1
    assert visitor.expected == {}


def test_a_visitor_leaves_without_any_answer(server, visitor):
    server.fault = "silent"
    visit = asyncio.run(visitor.leave(CASE, stream=True, after_pieces=1, within_s=0.2))
    assert visit == Visit(End.LEFT)


def test_a_server_that_hangs_up_first_is_a_fault(server, visitor):
    server.fault = "hangs up"
    visit = asyncio.run(visitor.leave(CASE, stream=True, after_pieces=1, within_s=30))
    assert visit.end is End.FAULT


def test_nobody_to_leave_is_a_fault():
    visitor = Visitor(Endpoint("127.0.0.1", 1), "m", timeout_s=5)
    visit = asyncio.run(visitor.leave(CASE, stream=True, after_pieces=1, within_s=1))
    assert visit.end is End.FAULT
