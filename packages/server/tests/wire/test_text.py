"""Characters, stop strings and special tokens: C18, C19, C21. A stream joins to the text of the whole answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .byte_tokens import EOS, IM_END, ids_of

SERVER = {"context": 512}

over_the_wire = settings(max_examples=25)


def both_ways(server, **body):
    """The choice, after checking that the stream says the same, without half a character."""
    choice = server.choice(**body)
    stream = server.stream(**body).read_all()
    assert stream.is_done
    assert stream.text() == choice["text"]
    assert stream.finish_reasons()[-1] == choice["finish_reason"]
    return choice


@pytest.mark.parametrize(
    ("script", "max_tokens", "text"),
    [
        (ids_of("😀"), 4, "😀"),
        (ids_of("😀"), 3, "\ufffd"),
        (ids_of("😀"), 1, "\ufffd"),
        (ids_of("é中😀"), 9, "é中😀"),
        (ids_of("é中😀"), 4, "é\ufffd"),
        (ids_of("👩\u200d🔬"), 11, "👩\u200d🔬"),
        (ids_of("\ufffd", "x"), 2, "\ufffdx"),
        (ids_of(0xE4, 0xB8, "a"), 3, "\ufffda"),
        (ids_of(0x80, "a", 0xFF, "b"), 4, "\ufffda\ufffdb"),
        (ids_of("a\u2028b\u2029c\x85"), 11, "a\u2028b\u2029c\x85"),
        (ids_of("\r\n\r\ndata: [DONE]\n\n"), 18, "\r\n\r\ndata: [DONE]\n\n"),
        (ids_of('"\\\x00\x1f</script>'), 13, '"\\\x00\x1f</script>'),
    ],
)
def test_characters_of_several_tokens(server, script, max_tokens, text):
    server.play(script)
    assert both_ways(server, max_tokens=max_tokens)["text"] == text


@over_the_wire
@given(script=st.one_of(st.binary(min_size=1, max_size=24), st.text(min_size=1, max_size=8).map(str.encode)))
def test_any_bytes_give_the_text_of_all_at_once(module_server, script):
    module_server.play(list(script))
    choice = both_ways(module_server, max_tokens=len(script))
    assert choice["text"] == script.decode(errors="replace")


def test_no_half_character_is_sent(server):
    server.play(ids_of("😀é"))
    server.model.pace.hold()
    server.model.pace.allow(4)
    with server.stream(max_tokens=6) as stream:
        stream.read_until("😀")
        server.model.pace.release()
        list(stream)
    assert all("\ufffd" not in choice["text"] for choice in stream.choices(0))
    assert stream.text() == "😀é"


def test_a_replacement_character_of_its_own_stalls_nothing(server):
    server.play(ids_of("\ufffd", "x", "y"))
    server.model.pace.hold()
    server.model.pace.allow(2)
    with server.stream(max_tokens=3) as stream:
        stream.read_until("\ufffdx")
        server.model.pace.release()
        list(stream)
    assert stream.text() == "\ufffdxy"


def test_a_prompt_that_ends_inside_a_character_is_not_part_of_the_text(server):
    prompt = [*b"Hi ", 0xF0, 0x9F]
    server.play(ids_of(0x8C, 0xB6, "!"), prompt_len=len(prompt))
    choice = both_ways(server, prompt=prompt, max_tokens=3)
    assert "Hi" not in choice["text"]
    assert choice["text"].endswith("!")


@pytest.mark.parametrize(
    ("script", "stop", "text"),
    [
        (ids_of("one t", "wo th", "ree"), ["two three"], "one "),
        (ids_of("MN", "O", "PQ", "R"), ["MNOPQR"], ""),
        (ids_of("a", "\n", "\n", "b"), "\n\n", "a"),
        (ids_of("the end"), "the", ""),
        (ids_of("ab", "cdef"), ["cde"], "ab"),
        (ids_of("ab", "cdef"), ["bc", "ef"], "a"),
        (ids_of("xaab"), ["aab"], "x"),
        (ids_of("1é😀2"), ["😀"], "1é"),
        (ids_of("wxyz"), ["z", "yz", "q", "qq"], "wx"),
    ],
)
def test_a_stop_string_ends_the_text_before_it(server, script, stop, text):
    server.play([*script, *ids_of(" tail", EOS)])
    choice = both_ways(server, stop=stop, max_tokens=40)
    assert choice["text"] == text
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("stop", [["MNOPQZ"], ["Rx"], ["MNOPQRR"]])
def test_text_that_is_no_stop_string_after_all_is_there_in_the_end(server, stop):
    server.play(ids_of("MN", "O", "PQ", "R"))
    choice = both_ways(server, stop=stop, max_tokens=4)
    assert choice["text"] == "MNOPQR"
    assert choice["finish_reason"] == "length"


def test_only_a_tail_that_may_become_a_stop_string_is_held_back(server):
    server.play(ids_of("one t", "wo th", "ree", "!"))
    server.model.pace.hold()
    server.model.pace.allow(1)
    with server.stream(stop="two thrEE", max_tokens=4) as stream:
        stream.read_until("one ")
        server.model.pace.allow(2)
        stream.read_until("one two three")
        server.model.pace.release()
        list(stream)
    assert stream.text() == "one two three!"


@over_the_wire
@given(
    text=st.text("ab", min_size=1, max_size=12),
    stop=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_the_first_stop_string_to_be_complete_ends_the_text(module_server, text, stop):
    module_server.play(ids_of(*text))
    ends = [end for end in range(1, len(text) + 1) if any(text[:end].endswith(each) for each in stop)]
    expected = text
    if ends:
        expected = text[: min(text[: ends[0]].find(each) for each in stop if each in text[: ends[0]])]
    choice = both_ways(module_server, stop=stop, max_tokens=len(text))
    assert choice["text"] == expected
    assert choice["finish_reason"] == ("stop" if ends else "length")


def test_a_stop_string_is_searched_in_generated_text_only(server):
    server.play(ids_of("o three stop"), prompt_len=7)
    choice = both_ways(server, prompt="stop tw", stop=["two", "stop"], max_tokens=20)
    assert choice["text"] == "o three "


def test_the_stop_string_is_kept_on_request(server):
    server.play(ids_of("one t", "wo th", "ree", "x"))
    body = {"stop": ["wo thr"], "include_stop_str_in_output": True, "max_tokens": 9}
    assert both_ways(server, **body)["text"] == "one two thr"


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(
    "by", [{"stop": ["<|im_end|>"]}, {"stop": "<|im_end|>"}, {"stop_token_ids": [IM_END]}]
)
@pytest.mark.parametrize(("include", "text"), [(False, "hi"), (True, "hi<|im_end|>")])
def test_a_special_token_stops(server, skip, by, include, text):
    server.play(ids_of("hi", IM_END, "more"))
    fields = {"skip_special_tokens": skip, "include_stop_str_in_output": include}
    choice = both_ways(server, **by, **fields, max_tokens=7)
    assert choice["text"] == text
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(("skip", "text"), [(True, "himore"), (False, "hi<|im_end|>more"), (None, "himore")])
def test_special_tokens_are_shown_on_request_only(server, skip, text):
    server.play(ids_of("hi", IM_END, "more"))
    assert both_ways(server, skip_special_tokens=skip, max_tokens=7)["text"] == text


def test_a_special_token_spelled_in_plain_bytes_stops_too(server):
    server.play(ids_of("hi", "<|im_end|>", "more"))
    assert both_ways(server, stop="<|im_end|>", max_tokens=20)["text"] == "hi"


def test_a_stop_token_id_may_be_any_token(server):
    server.play(ids_of("one t", "wo th", "ree"))
    choice = both_ways(server, stop_token_ids=ids_of("wo th"), max_tokens=3)
    assert (choice["text"], choice["finish_reason"]) == ("one t", "stop")


@pytest.mark.parametrize(
    "fields",
    [{}, {"stop_token_ids": [IM_END], "ignore_eos": True}, {"stop": "<|im_end|>", "ignore_eos": True}],
)
def test_nothing_stops_before_min_tokens(server, fields):
    end = EOS if not fields else IM_END
    server.play([{end: 50.0, ord("a"): 40.0}])
    choice = both_ways(server, **fields, min_tokens=3, max_tokens=9)
    assert (choice["text"], choice["finish_reason"]) == ("aaa", "stop")


def test_stop_strings_are_ignored_before_min_tokens(server):
    server.play(ids_of("abcabc"))
    choice = both_ways(server, stop="b", min_tokens=3, max_tokens=6)
    assert (choice["text"], choice["finish_reason"]) == ("abca", "stop")
