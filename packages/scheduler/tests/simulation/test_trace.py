import pytest

from minivllm_scheduler.simulation import InvalidTrace, Trace, TraceRow


def prompts(trace):
    return [tuple(arrival.request.prompt_token_ids) for arrival in trace.start().arrivals()]


def test_each_row_is_a_request():
    trace = Trace([TraceRow(0.0, 5, 2), TraceRow(0.0, 3, 1), TraceRow(1.5, 4, 7)])
    arrivals = list(trace.start().arrivals())
    assert trace.num_requests == len(arrivals) == 3
    assert [arrival.time_s for arrival in arrivals] == [0.0, 0.0, 1.5]
    assert [len(arrival.request.prompt_token_ids) for arrival in arrivals] == [5, 3, 4]
    assert [arrival.request.max_tokens for arrival in arrivals] == [2, 1, 7]
    assert len({token_id for prompt in prompts(trace) for token_id in prompt}) == 12
    assert trace.start().follow_up(arrivals[0].request, 9.0) is None


def test_rows_of_a_group_share_as_many_tokens_as_both_have_of_it():
    rows = [
        TraceRow(0, 8, 1, "a", 6),
        TraceRow(0, 9, 1, "b", 6),
        TraceRow(0, 7, 1, "a", 3),
        TraceRow(0, 4, 1, "a", 4),
    ]
    first, other, short, whole = prompts(Trace(rows))
    assert first[:3] == short[:3]
    assert first[3] != short[3]
    assert first[:4] == whole
    assert not {*first, *short} & {*other}


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        (TraceRow(0.5, 1, 1), "arrival_time_s", 0.5),
        (TraceRow(float("nan"), 1, 1), "arrival_time_s", "nan"),
        (TraceRow(float("inf"), 1, 1), "arrival_time_s", "inf"),
        (TraceRow(1.0, 0, 1), "prompt_tokens", 0),
        (TraceRow(1.0, 1, -3), "output_tokens", -3),
        (TraceRow(1.0, 2**40, 1), "prompt_tokens", 2**40),
        (TraceRow(1.0, 4, 1, None, 2), "prefix_tokens", 2),
        (TraceRow(1.0, 4, 1, "a", 5), "prefix_tokens", 5),
        (TraceRow(1.0, 4, 1, "a", 0), "prefix_tokens", 0),
        (TraceRow(1.0, 4, 1, "", 1), "prefix_group", "''"),
        (TraceRow(1.0, 4, 1, "a\r", 1), "prefix_group", r"'a\\r'"),
    ],
)
def test_a_bad_row_is_refused_with_its_place_field_and_value(row, field, value):
    with pytest.raises(InvalidTrace, match=rf"^row 2: {field} is {value}, it must be") as caught:
        Trace([TraceRow(1.0, 1, 1), row])
    assert (caught.value.where, caught.value.field) == ("row 2", field)


def test_time_does_not_start_before_0():
    with pytest.raises(InvalidTrace, match=r"row 1: arrival_time_s is -1\.0"):
        Trace([TraceRow(-1.0, 1, 1)])
