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
