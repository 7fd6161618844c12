import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_server.tool_calls.brackets import Brackets

from .reading import JSON_OBJECTS, cut


@given(
    st.data(),
    JSON_OBJECTS,
    st.booleans(),
    st.sampled_from([None, 2]),
    st.sampled_from(["", "}", '"', "<", " x"]),
)
def test_an_object_ends_where_a_json_parser_says(data, value, is_ascii, indent, rest):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    brackets = Brackets()
    num_read = 0
    for piece in data.draw(cut(text + rest)):
        end = brackets.advance(piece, 0)
        if end is not None:
            assert num_read + end == len(text)
            assert not brackets.is_broken
            return
        num_read += len(piece)
    raise AssertionError("the end was missed")


def test_an_inner_end_can_be_asked_for():
    text = '[1, {"x": [2]}], 3]'
    brackets = Brackets(depth=1)
    assert text[brackets.advance(text, 1) :] == ", 3]"


@pytest.mark.parametrize("pieces", [['{"a": "<"', ", <b"], ['{"a": "\\', '"<"<']], ids=repr)
def test_a_tag_outside_strings_breaks_off(pieces):
    brackets = Brackets()
    *begin, last = pieces
    for piece in begin:
        assert brackets.advance(piece, 0) is None
    assert last[brackets.advance(last, 0) :].startswith("<")
    assert brackets.is_broken
