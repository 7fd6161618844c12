import pytest

from minivllm_scheduler.simulation import InvalidCost, TokenCurve

CURVE = TokenCurve((2, 4, 8), (1.0, 2.0, 10.0))


@pytest.mark.parametrize(
    ("num_tokens", "seconds"),
    [(1, 1.0), (2, 1.0), (3, 1.5), (4, 2.0), (5, 4.0), (7, 8.0), (8, 10.0), (16, 20.0)],
)
def test_it_is_straight_between_knots_flat_before_and_in_proportion_behind(num_tokens, seconds):
    assert CURVE.at(num_tokens) == pytest.approx(seconds)


def test_one_knot_is_a_constant_up_to_it():
    assert [TokenCurve((4,), (2.0,)).at(count) for count in (1, 4, 8)] == [2.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("knots", "seconds", "named"),
    [
        ((), (), "0 knots"),
        ((1, 2), (1.0,), "2 knots and 1 times"),
        ((0, 2), (1.0, 1.0), "ascend from at least 1"),
        ((2, 2), (1.0, 1.0), "ascend from at least 1"),
        ((1, 2), (1.0, -1.0), "the time at 2 tokens is -1"),
        ((1, 2), (1.0, float("nan")), "the time at 2 tokens is nan"),
    ],
)
def test_what_is_no_curve_is_refused(knots, seconds, named):
    with pytest.raises(InvalidCost, match=named):
        TokenCurve(knots, seconds)
