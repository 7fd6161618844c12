import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_bench.simulate.line_chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Line, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(document):
    """The pixels of each line, and every text."""
    root = ET.fromstring(document)
    lines = [
        [tuple(float(number) for number in point.split(",")) for point in line.get("points").split()]
        for line in root.iter(f"{SVG}polyline")
    ]
    return lines, [text.text for text in root.iter(f"{SVG}text")]


def test_points_stand_where_their_values_belong():
    (pixels,), texts = drawn(line_chart("t", "x", "y", [Line("a", [(0, 0), (5, 50), (10, 100)])]))
    assert pixels[0] == (LEFT, HEIGHT - BOTTOM)
    assert pixels[1] == ((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2)
    assert pixels[2] == (WIDTH - RIGHT, TOP)
    assert {"t", "x", "y", "a", "0", "10", "100"} <= set(texts)


def test_text_is_text():
    _, texts = drawn(line_chart("a < b & c", "x", "y", [Line("p", [(1, 1)])]))
    assert "a < b & c" in texts


values = st.floats(0, 1e9).map(lambda value: round(value, 6))


@given(st.lists(st.lists(st.tuples(values, values), min_size=1).map(sorted), min_size=1, max_size=4))
def test_every_point_lies_within_the_axes(lines):
    found, _ = drawn(line_chart("t", "x", "y", [Line("a", points) for points in lines]))
    assert [len(line) for line in found] == [len(points) for points in lines]
    for x, y in (point for line in found for point in line):
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM


@pytest.mark.parametrize("high", [0.003, 0.7, 1, 9, 123, 4096, 1e9])
def test_ticks_are_few_and_round(high):
    _, texts = drawn(line_chart("t", "x", "y", [Line("a", [(0, 0), (1, high)])]))
    ticks = [float(text.replace(",", "")) for text in texts if text not in "txya"]
    y_ticks = ticks[ticks.index(0.0, 1) :]
    assert 3 <= len(y_ticks) <= 9
    assert all(f"{tick:e}"[0] in "0123456789" for tick in y_ticks)
    assert max(y_ticks) >= high
