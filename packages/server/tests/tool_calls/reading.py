"""What parsers make of a text, and every way of cutting it into pieces."""

from collections.abc import Iterable

from hypothesis import strategies as st

from minivllm_server.tool_calls.parser import CallPiece, MakeParser


def joined(pieces: Iterable[CallPiece]) -> list[tuple[str, str]]:
    """Name and arguments of each call; checks that its name comes alone and first."""
    calls: list[tuple[str, str]] = []
    for piece in pieces:
        if piece.name is None:
            assert piece.arguments
            name, arguments = calls[-1]
            calls[-1] = (name, arguments + piece.arguments)
        else:
            assert piece.arguments == ""
            calls.append((piece.name, ""))
    return calls


def read(make_parser: MakeParser, *pieces: str) -> tuple[str, list[tuple[str, str]]]:
    """Content, and name and arguments of each call."""
    parser = make_parser()
    parsed = [*(parser.push(piece) for piece in pieces), parser.finish()]
    return "".join(each.content for each in parsed), joined(call for each in parsed for call in each.calls)


@st.composite
def cut(draw, text: str) -> list[str]:
    """The pieces of a text: some of it, or single characters, possibly with empty ones."""
    if draw(st.booleans()):
        return list(text)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


TRICKY_TEXT = st.text(st.sampled_from('ab "\\{}[]<>/é\u2028\U0001f600\n')) | st.sampled_from(
    ["</tool_call>", "<tool_call>", '{"name": "f", "arguments": {}}', "<|python_tag|>", "}}", "\\", ";"]
)
JSON_OBJECTS = st.dictionaries(
    TRICKY_TEXT,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | TRICKY_TEXT,
        lambda values: st.lists(values, max_size=3) | st.dictionaries(TRICKY_TEXT, values, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)
"""Arguments with everything that could be taken for the end of them."""
