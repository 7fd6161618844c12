import pytest

from minivllm_scheduler import Admitted, Request, ScheduledRequest, StepResult, UnexpectedResult
from minivllm_scheduler.request import RequestState
from minivllm_scheduler.step import StepDraft


def behind(name, num_tokens):
    request = Request(request_id=name, prompt_token_ids=range(num_tokens), max_tokens=3)
    return RequestState(request, block_size=4, arrival=0, now=0.0)


@pytest.fixture
def step():
    """Request a has 5 of 9 tokens computed by a prefix hit and catches up; b stays behind; c catches up."""
    draft = StepDraft(budget=20)
    assert draft.is_empty
    a, b, c = behind("a", 9), behind("b", 9), behind("c", 1)
    a.start_running(5)
    draft.admit(a, (3, 4, 5))
    draft.add_row(a, 4, ())
    draft.add_row(b, 6, (7, 8))
    draft.add_row(c, 1, (9,))
    assert (draft.is_empty, draft.budget) == (False, 9)
    assert [state.num_placeholders for state in (a, b, c)] == [1, 0, 1]
    return draft.finish(step_id=2, released=("z",))


def test_a_row_samples_if_it_catches_up(step):
    assert step.output.rows == (
        ScheduledRequest("a", 5, 4, (), True),
        ScheduledRequest("b", 0, 6, (7, 8), False),
        ScheduledRequest("c", 0, 1, (9,), True),
    )
    assert step.output.admitted == (Admitted("a", range(9), 9, (3, 4, 5), 5),)
    assert (step.output.step_id, step.output.released, step.num_samples) == (2, ("z",), 2)


def test_a_row_starts_where_the_last_one_ended():
    state = behind("a", 2)
    for num_tokens in (2, 1):
        draft = StepDraft(budget=8)
        draft.add_row(state, num_tokens, ())
        row = draft.finish(0, ()).output.rows[0]
    assert (row.start, row.samples, state.num_placeholders) == (2, True, 2)


def test_its_result_has_one_id_per_row_that_samples(step):
    assert step.sampled_ids(StepResult(2, ((6,), (0,)))) == [6, 0]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (StepResult(3, ((6,), (0,))), "got the result of step 3, expected that of step 2"),
        (StepResult(2, ((6,),)), "returned 1 ids in 1 entries, expected one in each of 2"),
        (StepResult(2, ((6, 0), ())), "returned 2 ids in 2 entries, expected one in each of 2"),
        (StepResult(2, ((6,), (-4,))), "returned ids from -4 to 6"),
        (StepResult(2, ((6,), (2**32,))), r"to 4294967296, they must lie in \[0, 4294967296\)"),
    ],
)
def test_any_other_result_is_refused(step, result, message):
    with pytest.raises(UnexpectedResult, match=message):
        step.sampled_ids(result)
