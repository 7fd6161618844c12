import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_server.tool_calls.hermes import HermesParser

from .reading import JSON_OBJECTS, cut, read

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "\u00e9"}}\n</tool_call>'
OTHER = '<tool_call>{"name": "g", "arguments": {}}</tool_call>'
F = ("f", '{"x": "\u00e9"}')
G = ("g", "{}")


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("", "", []),
        ("no call\n", "no call\n", []),
        (CALL, "", [F]),
        (f"Let me see.\n\n{CALL}\n", "Let me see.", [F]),
        (f"{CALL}\n{OTHER}", "", [F, G]),
        (f"{OTHER}{OTHER}", "", [G, G]),
        (f"One.\n{CALL}\nTwo.\n{OTHER}\nThree.", "One.\nTwo.\nThree.", [F, G]),
        ("a <tool_ca", "a <tool_ca", []),
        ("a < b <tool_box> c", "a < b <tool_box> c", []),
        (f"{CALL} <tool_ca", " <tool_ca", [F]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_calls_are_told_from_text(text, content, calls):
    assert read(HermesParser, text) == (content, calls)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>not json</tool_call>!",
        "<tool_call>",
        "<tool_call></tool_call>",
        "\n<tool_call>\n \n",
        '<tool_call>{"name": 5}</tool_call>',
        '<tool_call>{"name": "f", "argu',
        '<tool_call>{"name": "f", </tool_call> \n',
        "a\n<tool_call>\n{\n</tool_call>",
        "<tool_call>" + "[" * 10_000,
        "<tool_call>" + "{" * 10_000,
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_call_is_text_to_the_letter(text):
    assert read(HermesParser, text) == (text, [])
    assert read(HermesParser, *text) == (text, [])


@pytest.mark.parametrize(
    "broken", ["<tool_call>no json</tool_call>", "<tool_call>", '<tool_call>{"name": 5}', "<tool_call>{"]
)
def test_a_call_after_what_is_none_is_one(broken):
    content, calls = read(HermesParser, f"{broken}\n{OTHER}")
    assert (content.rstrip(), calls) == (broken, [G])


@pytest.mark.parametrize(
    ("end", "content"),
    [
        ("", ""),
        ("\n", ""),
        ("</tool", ""),
        (" </tool_call>", ""),
        ("\n<tool_call>", "\n<tool_call>"),
        (" words", " words"),
        ("</tool_call", ""),
        ("</tool_call></tool_call>", "</tool_call>"),
    ],
)
@pytest.mark.parametrize("call", [CALL, CALL.replace("}}", "}")])
def test_a_call_needs_neither_end_tag_nor_last_brace(call, end, content):
    text = call.removesuffix("\n</tool_call>") + end
    found, calls = read(HermesParser, text)
    assert (found.strip(), calls) == (content.strip(), [F])


@pytest.mark.parametrize("num_chars", range(1, 12))
def test_a_call_that_is_cut_short_keeps_what_was_written(num_chars):
    head, arguments = '<tool_call>{"name": "f", "arguments": ', '{"x": [1, 2'
    assert read(HermesParser, "Hi. ", head + arguments[:num_chars]) == ("Hi.", [("f", arguments[:num_chars])])


def test_a_call_that_turns_out_to_be_broken_keeps_what_was_written():
    text = f'<tool_call>{{"name": "f", "arguments": {{"x": oops</tool_call>{OTHER} end'
    assert read(HermesParser, *text) == (" end", [("f", '{"x": oops'), G])


def test_tags_in_strings_are_data():
    arguments = json.dumps({"code": "</tool_call><tool_call>{"})
    text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>ok'
    assert read(HermesParser, *text) == ("ok", [("f", arguments)])


BROKEN = [
    "<tool_call>",
    "</tool_call>",
    "{",
    "}",
    '"',
    "<",
    " text ",
    "\n",
    '{"name": "f", "arguments": {',
    "\\",
]


@st.composite
def calls(draw):
    members = {"name": draw(st.sampled_from(["f", "g"])), "arguments": draw(JSON_OBJECTS)}
    if draw(st.booleans()):
        members = dict(reversed(members.items()))
    return f"<tool_call>\n{json.dumps(members, ensure_ascii=draw(st.booleans()))}\n</tool_call>"


@given(st.data(), st.lists(calls() | st.sampled_from([CALL, OTHER, *BROKEN]), max_size=6))
def test_the_cut_into_pieces_does_not_matter(data, parts):
    text = "".join(parts)[: data.draw(st.none() | st.integers(0, 200))]
    whole = read(HermesParser, text)
    assert read(HermesParser, *data.draw(cut(text))) == whole
    if not whole[1]:
        assert whole[0] == text


@given(st.lists(st.tuples(st.text("ab.<\n "), calls()), min_size=1, max_size=4))
def test_calls_between_texts_are_all_found(parts):
    text = "".join(part for pair in parts for part in pair)
    content, found = read(HermesParser, text)
    assert content == "".join(before.rstrip() for before, _ in parts)
    written = [json.loads(call[len("<tool_call>") : -len("</tool_call>")]) for _, call in parts]
    assert [(name, json.loads(arguments)) for name, arguments in found] == [
        (call["name"], call["arguments"]) for call in written
    ]


def test_what_can_be_no_call_is_shown_at_once():
    parser = HermesParser()
    assert parser.push("hello").content == "hello"
    assert parser.push(" <tool").content == ""
    assert parser.push("box>").content == " <toolbox>"
    assert parser.push("<tool_call> ").content == ""
    assert parser.push("?").content == "<tool_call> ?"
