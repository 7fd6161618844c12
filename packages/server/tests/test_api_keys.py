import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_server.api_keys import KeyLimits, KeyRing, parse_key, read_key_file

LIMITS = KeyLimits(requests_per_minute=5)


@pytest.mark.parametrize(
    ("text", "name", "secret"),
    [("ann:s3cret", "ann", b"s3cret"), ("s3cret", "key7", b"s3cret"), ("ann:a:b", "ann", b"a:b")],
)
def test_a_key_has_a_name_or_is_called_by_its_place(text, name, secret):
    key = parse_key(text, "key7", LIMITS)
    assert (key.name, key.limits) == (name, LIMITS)
    assert KeyRing([key]).find(secret) is key


def test_only_the_whole_secret_opens():
    ring = KeyRing([parse_key("ann:abc", "key1", LIMITS), parse_key("bob:abcd", "key2", LIMITS)])
    assert ring.find(b"abcd").name == "bob"
    for other in (b"", b"ab", b"abcde", b"ABC", b"ann:abc", b"\xff"):
        assert ring.find(other) is None


def test_no_secret_is_kept():
    assert "s3cret" not in repr(parse_key("ann:s3cret", "key1", LIMITS))


@pytest.mark.parametrize("text", ["", "ann:", "a b", "ann:s3cr\u00e9t", "ann: s3cret"])
def test_what_is_no_key_is_refused_unquoted(text):
    with pytest.raises(InvalidParameter, match="API key 'key3'") as caught:
        parse_key(text, "key3", LIMITS)
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize(("texts", "reason"), [(("a:x", "a:y"), "called 'a'"), (("a:x", "b:x"), "are equal")])
def test_keys_differ(texts, reason):
    with pytest.raises(InvalidParameter, match=reason):
        KeyRing([parse_key(text, text, LIMITS) for text in texts])


def test_a_file_has_a_key_per_line_and_limits_of_its_own(tmp_path):
    path = tmp_path / "keys"
    path.write_text(
        "# of the team\n\nann:x\n  # old:one\nbob:y tokens_per_minute=100 max_concurrent_requests=2\nz\n"
    )
    ann, bob, unnamed = read_key_file(path, LIMITS)
    assert (ann.name, ann.limits) == ("ann", LIMITS)
    assert (bob.name, bob.limits) == ("bob", KeyLimits(5, 100, 2))
    assert unnamed.name == "line6"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds no API key"),
        (b"# nothing\n", "holds no API key"),
        (b"\xff\xfe", "not UTF-8"),
        (b"ann:x rpm=5", "line 1"),
        (b"ann:x\nbob:y requests_per_minute=0", "line 2"),
        (b"ann:x requests_per_minute=many", "line 1"),
        (b"\nann:", "line2"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, content, reason):
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(InvalidParameter, match=reason):
        read_key_file(path, LIMITS)


def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path):
    path = tmp_path / "keys"
    path.write_bytes(b"\xef\xbb\xbfann:x\n")
    assert [key.name for key in read_key_file(path, LIMITS)] == ["ann"]


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidParameter, match="No such file"):
        read_key_file(tmp_path / "keys", LIMITS)
