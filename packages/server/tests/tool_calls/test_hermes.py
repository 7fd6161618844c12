import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_server.tool_calls.hermes import HermesParser

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "\u00e9"}}\n</tool_call>'
OTHER = '<tool_call>{"name": "g", "arguments": {}}</tool_call>'


def parse(*pieces):
    """Content, and name and arguments of each call."""
    parser = HermesParser()
    parsed = [*(parser.push(piece) for piece in pieces), parser.finish()]
    content = "".join(each.content for each in parsed)
    return content, [(call.name, json.loads(call.arguments)) for each in parsed for call in each.calls]


@pytest.mark.parametrize(
    ("text", "content", "names"),
    [
        ("", "", []),
        ("no call\n", "no call\n", []),
        (CALL, "", ["f"]),
        (f"Let me see.\n\n{CALL}\n", "Let me see.", ["f"]),
        (f"{CALL}\n{OTHER}", "", ["f", "g"]),
        (CALL.removesuffix("</tool_call>"), "", ["f"]),
        ("a <tool_ca", "a <tool_ca", []),
        ("a < b <tool_box> c", "a < b <tool_box> c", []),
        ("<tool_call>not json</tool_call>!", "<tool_call>not json</tool_call>!", []),
        ('<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>', []),
        ('<tool_call>{"name": "f", "argu', '<tool_call>{"name": "f", "argu', []),
        ("<tool_call>" + "[" * 100_000, "<tool_call>" + "[" * 100_000, []),
    ],
    ids=lambda value: str(value)[:20],
)
def test_calls_are_told_from_text(text, content, names):
    found, calls = parse(text)
    assert (found, [name for name, _ in calls]) == (content, names)


def test_arguments_keep_their_characters():
    parser = HermesParser()
    (call,) = parser.push(CALL).calls
    assert call.arguments == '{"x": "\u00e9"}'


@given(
    st.data(), st.lists(st.sampled_from([CALL, OTHER, "text ", "\n", "<", "<tool_call>", "{}"]), max_size=6)
)
def test_the_cut_into_pieces_does_not_matter(data, parts):
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parse(*pieces) == parse(text)


def test_what_can_be_no_call_is_shown_at_once():
    parser = HermesParser()
    assert parser.push("hello").content == "hello"
    assert parser.push(" <tool").content == ""
    assert parser.push("box>").content == " <toolbox>"
