import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from minivllm_scheduler.errors import InvalidRecording
from minivllm_scheduler.recording.typed_json import decode, encode


class Point(NamedTuple):
    x: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Thing:
    points: tuple[Point, ...]
    ids: frozenset[int]
    weight: float = 1.0
    label: str | None = None
    flags: dict[str, bool] | None = None

    def __post_init__(self):
        if self.weight < 0:
            raise ValueError(f"weight is {self.weight}")


THING = Thing((Point(1, ("a", "\ud800")), Point(2, ())), frozenset({30, 4}), 0.1, "t", {"x": True})


def test_what_was_encoded_is_decoded_to_an_equal_value():
    assert decode(Thing, json.loads(encode(THING)), "here") == THING


def test_the_text_does_not_depend_on_the_order_of_a_set():
    assert '"ids":[4,30]' in encode(THING)
    assert encode(frozenset({64, 0, 8})) == encode(frozenset({8, 64, 0})) == "[0,8,64]"


def test_a_range_becomes_an_array():
    assert encode(range(3)) == "[0,1,2]"
    assert decode(Sequence[int], [0, 1, 2], "here") == (0, 1, 2)


def test_a_field_with_a_default_may_be_missing():
    assert decode(Thing, {"points": [], "ids": []}, "here") == Thing((), frozenset())


def test_what_has_no_json_form_is_refused():
    with pytest.raises(TypeError, match="complex"):
        encode(1j)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, True, "here is True, it must be of type int"),
        (int, 1.0, r"here is 1\.0, it must be of type int"),
        (str, 1, "here is 1, it must be of type str"),
        (bool, 1, "here is 1, it must be of type bool"),
        (float, "1", "here is '1', it must be a number"),
        (float, True, "here is True, it must be a number"),
        (str | None, 1, "here is 1, it must be of type str"),
        (tuple[int, ...], {}, "here is {}, it must be an array"),
        (tuple[int, ...], [1, "2"], r"here\[1\] is '2'"),
        (frozenset[int], 5, "here is 5, it must be an array"),
        (dict[str, int], [], r"here is \[\], it must be an object"),
        (dict[str, int], {"a": "b"}, r"here\.a is 'b'"),
        (Point, [1], r"here is \[1\], it must be an array of 2: x, names"),
        (Point, [1, [2]], r"here\.names\[0\] is 2"),
        (Thing, 7, "here is 7, it must be an object"),
        (Thing, {"ids": []}, "here lacks 'points'"),
        (Thing, {"points": [], "ids": [], "size": 1}, "here has a field 'size', it may have points, ids"),
        (Thing, {"points": [], "ids": [], "weight": -1}, "here: weight is -1"),
        (Thing, {"points": [], "ids": "x" * 100}, r"here\.ids is 'x{76}\.\.\., it"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_place(hint, value, message):
    with pytest.raises(InvalidRecording, match=message):
        decode(hint, value, "here")
