import math

import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.schema_pattern import SchemaPattern


@pytest.mark.parametrize(
    ("text", "explicit"),
    [
        ("", ""),
        ("^a1$", "a1"),
        ("^(?:a|(?<name>b))$", "(a|(b))"),
        ("(^a|^b)c|(d|e$)", "(a|b)c|(d|e)"),
        ("a-\\.]}", "a\\u{2d}\\u{2e}\\u{5d}\\u{7d}"),
        ("{a", "\\u{7b}a"),
        ("é\\é😀", "\\u{e9}\\u{e9}\\u{1f600}"),
        ("\\ud83d\\ude00", "\\u{1f600}"),
        ("[a]", "a"),
        ('[a-c"\\n\\ud800]', "[a-c]"),
        ("\\d", "[0-9]"),
        ("[^]", "[\\u{20}-\\u{21}\\u{23}-\\u{5b}\\u{5d}-\\u{d7ff}\\u{e000}-\\u{10ffff}]"),
        ("a*?b+c??", "a*()b+()c{0,1}()"),
        ("a{2}?b{2,}c{0,3}", "a{2}()b{2,}()c{0,3}()"),
        ("((a+)*)?", "((a+())*()){0,1}()"),
    ],
)
def test_atoms_become_code_points_that_json_strings_may_have(text, explicit):
    assert SchemaPattern(text).explicit == explicit
    assert SchemaPattern(explicit.replace("()", "")).explicit == explicit


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a(?=b)", "lookahead and lookbehind, here '(?=', are"),
        ("(?!b)", "lookahead and lookbehind, here '(?!', are"),
        ("(?<=b)(?=c)", "lookahead and lookbehind, here '(?<=', are"),
        ("(?<!b)", "lookahead and lookbehind, here '(?<!', are"),
        ("(?i:a)", "groups that begin with '(?'"),
        ("(?P<x>a)", "groups that begin with '(?'"),
        ("a\\bc", "escape '\\\\b' is not supported"),
        ("\\p{L}", "escape '\\\\p' is not supported"),
        ("(a)\\1", "escape '\\\\1' is not supported"),
        ("\\e", "escape '\\\\e' is not supported"),
        ("(a", "leaves a group open"),
        ("a)(", "closes a group that is not open"),
        ("[a", "class [...] has no end"),
        ("[a\\]", "class [...] has no end"),
        ("[" * 65536 + "\\", "class [...] has no end"),
        ("*a", "'*' repeats nothing"),
        ("(|?)", "'?' repeats nothing"),
        ("a{2}{3}", "'{3}' repeats nothing"),
        ("a+*", "'*' repeats nothing"),
        ("^*a", "'*' repeats an anchor"),
        ("(^a)+", "'+' repeats an anchor"),
        ("((a$))?", "'?' repeats an anchor"),
        ("a{10,9}", "'{10,9}' are out of order"),
        ("[b-a]", "'b-a' are out of order"),
        ("a^b", "'^' is supported where"),
        ("a$b", "'^' is supported where"),
        ("(a|$)b", "'^' is supported where"),
        ("a(b|^c)", "'^' is supported where"),
        ("$^", "'^' is supported where"),
        ("[^ -\\u{10ffff}]", "allows no character"),
        ("[]", "allows no character"),
        ('a|"', "allows no character"),
        ("\ud800", "allows no character"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_reason(text, reason):
    with pytest.raises(InvalidParameter) as refusal:
        SchemaPattern(text)
    assert f"json_schema has the pattern {text[:100]!r}: " in str(refusal.value)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("", 0),
        ("abc", 3),
        ("\\.", 1),
        ("[a-z]", 16),
        (".", 16),
        ("\\d", 16),
        ("\\d{4}", 64),
        ("a{1,500}", 500),
        ("a{3,}", 3),
        ("a{0}", 1),
        ("a+b*c?", 3 * 3),
        ("(ab){10}", 30),
        ("((a{1,10}){1,10}){1,10}", (1000 + 100 + 10) * (100 + 10 + 1)),
        ("(a|b)", 4),
        ("(a|b)c*", 5 * 2),
        ("\\}a{", 3),
        ("[a]", 1),
    ],
)
def test_a_cost_counts_what_is_repeated_as_often_as_it_may_stand_there(text, cost):
    assert SchemaPattern(text).cost(10**6) == cost


@pytest.mark.parametrize(
    "text", ["a" * 101, "a{101}", "a{" + "9" * 5000 + "}", ".*" * 10, "(((a" + "{99})" * 3]
)
def test_a_cost_above_the_most_is_one_more_than_it(text):
    assert SchemaPattern(text).cost(100) == 101


@pytest.mark.parametrize(
    ("pattern", "lengths"),
    [
        ("", (0, 0)),
        ("^abc$", (3, 3)),
        ("a|bcd|", (0, 3)),
        ("a?b*", (0, math.inf)),
        ("(ab|c)+", (1, math.inf)),
        ("(ab|c){2,3}d", (3, 7)),
        ("a{2,}", (2, math.inf)),
        ("(a+){0}b", (1, 1)),
        ("(|a){3}[bc]", (1, 4)),
        ("(?:a(?<n>b|cd)??)\\u{1f600}", (2, 4)),
        ("(a{1000}){1000}", (10**6, 10**6)),
        ("a{5000000000}", (10**9, math.inf)),
        ("(a{0,5000000000}){0}", (0, 0)),
    ],
)
def test_the_fewest_and_the_most_characters(pattern, lengths):
    assert SchemaPattern(pattern).lengths == lengths
