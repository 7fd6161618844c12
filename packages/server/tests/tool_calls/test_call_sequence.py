import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_server.tool_calls.call_sequence import CallSequenceParser

from .reading import JSON_OBJECTS, cut, read

CALL = '{"name": "f", "parameters": {"x": 1}}'
F = ("f", '{"x": 1}')


def make():
    return CallSequenceParser(" ;", tag="<tag>")


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (CALL, "", [F]),
        (f" ;{CALL} ; {CALL}; ", "", [F, F]),
        (f" <tag> {CALL}", "", [F]),
        (f"{CALL}<tag>{CALL}", f"<tag>{CALL}", [F]),
        (f"{CALL} and {CALL}", f" and {CALL}", [F]),
        (f'{CALL}; {{"a": 1}} {CALL}', f'; {{"a": 1}} {CALL}', [F]),
        (f'{{"a": 1}}; {CALL}', f'{{"a": 1}}; {CALL}', []),
        (f"<tag><tag>{CALL}", f"<tag><tag>{CALL}", []),
        (f"{CALL}; {CALL[:10]}", f"; {CALL[:10]}", [F]),
        (CALL[:-1], "", [F]),
        (CALL[:-3], "", [("f", '{"x": ')]),
        ("", "", []),
        (" ;", " ;", []),
        ("<ta", "<ta", []),
        ("<tag> ", "<tag> ", []),
        ("<table>", "<table>", []),
    ],
)
def test_text_is_calls_as_long_as_there_is_nothing_else(text, content, calls, size):
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert read(make, *pieces) == (content, calls)


def test_text_is_shown_at_once():
    assert make().push("hello").content == "hello"


@given(
    st.data(),
    st.lists(
        JSON_OBJECTS.map(lambda value: json.dumps({"name": "f", "parameters": value}))
        | JSON_OBJECTS.map(json.dumps)
        | st.sampled_from([CALL, "<tag>", ";", " ", "{", "}", "text"]),
        max_size=5,
    ),
)
def test_the_cut_into_pieces_does_not_matter(data, parts):
    text = "".join(parts)[: data.draw(st.none() | st.integers(0, 200))]
    whole = read(make, text)
    assert read(make, *data.draw(cut(text))) == whole
    if not whole[1]:
        assert whole[0] == text
