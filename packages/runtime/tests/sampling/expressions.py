"""Regular expressions, each as ECMA-262 and as Python write it."""

from hypothesis import strategies as st

CHARACTERS = "abz09_- ./,:~!#}]é€😀한\x7f\x85\u2028\ud7ff\ue000\U0010ffff" + '"\\\n\x00'
SYNTAX = "\\^$.*+?()[]{}|/-"
SPACES = "\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
NAMED = {"d": "0-9", "w": "0-9A-Za-z_", "s": SPACES}
NO_MEMBER = "(?!)"


def written(character: str) -> st.SearchStrategy[str]:
    code = ord(character)
    halves = character.encode("utf-16-be").hex()
    ways = [rf"\u{{{code:x}}}", "".join(rf"\u{halves[at : at + 4]}" for at in range(0, len(halves), 4))]
    ways += [rf"\x{code:02x}"] * (code < 256) + [rf"\{character}"] * (character in SYNTAX)
    ways += [character] * 3 * (character not in SYNTAX)
    return st.sampled_from(ways)


@st.composite
def literals(draw: st.DrawFn) -> tuple[str, str]:
    character = draw(st.sampled_from(CHARACTERS))
    return draw(written(character)), f"\\U{ord(character):08x}"


@st.composite
def class_ranges(draw: st.DrawFn) -> tuple[str, str]:
    first, last = sorted(draw(st.tuples(*[st.sampled_from(CHARACTERS)] * 2)))
    return f"{draw(written(first))}-{draw(written(last))}", f"\\U{ord(first):08x}-\\U{ord(last):08x}"


members = literals() | class_ranges() | st.sampled_from([(rf"\{name}", NAMED[name]) for name in NAMED])
classes = st.builds(
    lambda sign, inside: tuple(f"[{sign}{''.join(side)}]" for side in zip(*inside, strict=True)),
    st.sampled_from(["", "^"]),
    st.lists(members, min_size=1, max_size=3),
)
atoms = (
    literals()
    | classes
    | st.sampled_from(
        [
            (".", "[^\\n\\r\\u2028\\u2029]"),
            ("[^]", "[\\s\\S]"),
            ("[[:alpha:]", "[\\[:alph]"),
            ("[]", NO_MEMBER),
            *((rf"\{name}", f"[{NAMED[name]}]") for name in NAMED),
            *((rf"\{name.upper()}", f"[^{NAMED[name]}]") for name in NAMED),
        ]
    )
)
times = st.sampled_from(
    ["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "{1,2}", "{0}", "??", "+?", "{2}?"]
)


def in_a_row(parts: list[tuple[str, str]], repeated: list[str], begin: str, end: str) -> tuple[str, str]:
    both = list(zip(parts, repeated, strict=False))
    ecma = "".join(part[0] + often for part, often in both)
    python = "".join(f"(?:{part[1]}){often}" for part, often in both)
    return begin + ecma + end, begin + python + end.replace("$", "\\Z")


def expressions_of(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    """Alternatives of some parts in a row; anchors may stand where they cannot be followed."""
    rows = st.builds(
        in_a_row,
        st.lists(inner, max_size=3),
        st.lists(times, min_size=3, max_size=3),
        st.sampled_from(["", "", "", "^"]),
        st.sampled_from(["", "", "", "$"]),
    )
    options = st.lists(rows, min_size=1, max_size=3)
    groups = st.sampled_from(["(", "(?:", "(?<name>"])
    return st.builds(
        lambda begin, parts: (
            begin + "|".join(part[0] for part in parts) + ")",
            "(?:" + "|".join(part[1] for part in parts) + ")",
        ),
        groups,
        options,
    )


expressions = expressions_of(st.recursive(atoms, expressions_of, max_leaves=6))
