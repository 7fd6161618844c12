import pytest

from minivllm_runtime.schema_pattern import SchemaPattern


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("a[bc]d", "ad"),
        ("a[b\\]c]d", "ad"),
        ("a\\[bc]", "a\\[bc]"),
        ("a[bc", "a"),
        ("a[bc\\", "a"),
        ("[", ""),
        ("", ""),
    ],
)
def test_character_classes_are_left_out(text, outside):
    assert SchemaPattern(text).outside_classes == outside


def test_character_classes_are_found():
    assert SchemaPattern("a[bc]\\[d\\][\\]e][f").classes == ["[bc]", "[\\]e]", "[f"]


@pytest.mark.parametrize(
    ("text", "in_ascii"),
    [
        ("^a\\d[^b]$", "^a\\d[^b]$"),
        ("é+", "\\u{e9}+"),
        ("[^é-😀]", "[^\\u{e9}-\\u{1f600}]"),
        ("\\é", "\\u{e9}"),
        ("\\\\é", "\\\\\\u{e9}"),
        ("\\\ud800\\", "\\\ud800\\"),
    ],
)
def test_characters_past_ascii_become_escapes(text, in_ascii):
    assert SchemaPattern(text).in_ascii == in_ascii


@pytest.mark.parametrize(
    ("text", "assertion"),
    [
        ("a(?=b)", "(?="),
        ("(?!b)", "(?!"),
        ("(?<=b)(?=c)", "(?<="),
        ("(?<!b)", "(?<!"),
        ("(?:b)(?<n>c)", None),
        ("\\(?=b", None),
        ("[(?=b)]", None),
    ],
)
def test_the_first_assertion_is_found(text, assertion):
    assert SchemaPattern(text).assertion == assertion


def test_classes_without_an_end_are_read_once():
    assert SchemaPattern("[" * 65536 + "\\").outside_classes == ""


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
        (")a{", 3),
        ("(a", 2),
    ],
)
def test_a_cost_counts_what_is_repeated_as_often_as_it_may_stand_there(text, cost):
    assert SchemaPattern(text).cost(10**6) == cost


@pytest.mark.parametrize(
    "text", ["a" * 101, "a{101}", "a{" + "9" * 5000 + "}", ".*" * 10, "(((a" + "{99})" * 3]
)
def test_a_cost_above_the_most_is_one_more_than_it(text):
    assert SchemaPattern(text).cost(100) == 101
