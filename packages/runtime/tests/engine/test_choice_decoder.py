import pytest

from minivllm_runtime.engine.choice_decoder import ChoiceDecoder
from minivllm_runtime.outputs import ChoiceDelta
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_scheduler import FinishReason

IM_END = 256
IM_START = 257
FIRST_EXTRA = 258


def run(tokenizer, token_ids, finish_reason, **params):
    """The deltas of ids that arrive one by one, as far as the choice goes on."""
    decoder = ChoiceDecoder(0, SamplingParams(max_tokens=None, **params), tokenizer)
    deltas = []
    for place, token_id in enumerate(token_ids, start=1):
        ends = finish_reason if place == len(token_ids) else None
        deltas.append(decoder.push((token_id,), ends, 0))
        if deltas[-1].finish_reason is not None:
            break
    return deltas


def summary(deltas):
    return (
        "".join(delta.text for delta in deltas),
        tuple(token_id for delta in deltas for token_id in delta.token_ids),
        deltas[-1].finish_reason,
        deltas[-1].stop_reason,
    )


class TestFinishReason:
    def test_length(self, byte_tokenizer):
        assert summary(run(byte_tokenizer, b"abc", FinishReason.LENGTH)) == (
            "abc",
            tuple(b"abc"),
            "length",
            None,
        )

    def test_end_of_sequence_counts_but_has_no_text(self, byte_tokenizer):
        ids = (*b"ab", IM_END)
        assert summary(run(byte_tokenizer, ids, FinishReason.STOP)) == ("ab", ids, "stop", None)

    def test_a_stop_string_that_completes_at_the_last_token_is_a_stop(self, byte_tokenizer):
        deltas = run(byte_tokenizer, b"abc", FinishReason.LENGTH, stop="bc")
        assert summary(deltas) == ("a", tuple(b"abc"), "stop", "bc")

    def test_it_is_on_the_last_delta_only(self, byte_tokenizer):
        deltas = run(byte_tokenizer, b"abc", FinishReason.LENGTH)
        assert [delta.finish_reason for delta in deltas] == [None, None, "length"]

    def test_an_engine_that_ends_without_a_token(self, byte_tokenizer):
        decoder = ChoiceDecoder(0, SamplingParams(stop="bc"), byte_tokenizer)
        decoder.push(tuple(b"ab"), None, 0)
        assert decoder.push((), FinishReason.LENGTH, 0) == ChoiceDelta(0, "b", (), "length")


class TestStopString:
    @pytest.fixture
    def tokenizer(self, make_byte_tokenizer):
        return make_byte_tokenizer(["one t", "wo th", "ree", "MN", "PQ"])

    def test_it_may_span_tokens(self, tokenizer):
        ids = (FIRST_EXTRA, FIRST_EXTRA + 1, FIRST_EXTRA + 2)
        deltas = run(tokenizer, ids, None, stop=["two three"])
        assert [delta.text for delta in deltas] == ["one ", "", ""]
        assert summary(deltas) == ("one ", ids, "stop", "two three")

    @pytest.mark.parametrize(("stop", "text"), [("MNOPQR", ""), ("MNOPQZ", "MNOPQR")])
    def test_held_text_is_released_only_if_it_was_no_match(self, tokenizer, stop, text):
        ids = (FIRST_EXTRA + 3, ord("O"), FIRST_EXTRA + 4, ord("R"))
        deltas = run(tokenizer, ids, FinishReason.LENGTH, stop=[stop])
        assert [delta.text for delta in deltas] == ["", "", "", text]

    def test_ids_and_text_after_the_completing_token_are_left_out(self, byte_tokenizer):
        decoder = ChoiceDecoder(0, SamplingParams(stop="\n\n"), byte_tokenizer)
        delta = decoder.push(tuple(b"hi\n\nmore"), None, 3)
        assert delta == ChoiceDelta(0, "hi", tuple(b"hi\n\n"), "stop", "\n\n", 3)

    def test_it_is_part_of_the_text_only_when_asked_for(self, tokenizer):
        ids = (FIRST_EXTRA, FIRST_EXTRA + 1)
        assert summary(run(tokenizer, ids, None, stop="two", include_stop_str_in_output=True))[0] == "one two"

    def test_held_text_is_released_at_the_end(self, byte_tokenizer):
        assert summary(run(byte_tokenizer, b"ab", FinishReason.LENGTH, stop="bc"))[0] == "ab"
        assert summary(run(byte_tokenizer, (*b"ab", IM_END), FinishReason.STOP, stop="bc"))[0] == "ab"

    def test_a_character_that_only_the_end_decides_can_complete_it(self, byte_tokenizer):
        deltas = run(byte_tokenizer, (ord("a"), 0xF0), FinishReason.LENGTH, stop="\ufffd")
        assert summary(deltas) == ("a", (ord("a"), 0xF0), "stop", "\ufffd")


class TestStopToken:
    @pytest.mark.parametrize("skip_special_tokens", [True, False])
    @pytest.mark.parametrize("include", [True, False])
    @pytest.mark.parametrize("named", [{"stop": "<|im_end|>"}, {"stop_token_ids": [IM_END]}], ids=str)
    def test_a_special_token_is_in_the_text_only_when_asked_for(
        self, byte_tokenizer, named, include, skip_special_tokens
    ):
        ids = (*b"hi", IM_END)
        deltas = run(
            byte_tokenizer,
            ids,
            FinishReason.STOP,
            include_stop_str_in_output=include,
            skip_special_tokens=skip_special_tokens,
            **named,
        )
        reason = "<|im_end|>" if "stop" in named else IM_END
        assert summary(deltas) == ("hi<|im_end|>" if include else "hi", ids, "stop", reason)

    @pytest.mark.parametrize(("include", "text"), [(True, "hix"), (False, "hi")])
    def test_so_is_an_ordinary_one(self, byte_tokenizer, include, text):
        deltas = run(
            byte_tokenizer,
            b"hix",
            FinishReason.STOP,
            stop_token_ids=[ord("x")],
            include_stop_str_in_output=include,
        )
        assert summary(deltas) == (text, tuple(b"hix"), "stop", ord("x"))

    @pytest.mark.parametrize(("skip_special_tokens", "text"), [(True, "hi"), (False, "hi<|im_end|>")])
    def test_an_unnamed_end_of_sequence_stays_hidden_where_special_tokens_are(
        self, byte_tokenizer, skip_special_tokens, text
    ):
        deltas = run(
            byte_tokenizer,
            (*b"hi", IM_END),
            FinishReason.STOP,
            include_stop_str_in_output=True,
            skip_special_tokens=skip_special_tokens,
        )
        assert summary(deltas) == (text, (*b"hi", IM_END), "stop", None)

    def test_special_tokens_inside_the_text_follow_skip_special_tokens(self, byte_tokenizer):
        ids = (*b"a", IM_START, *b"b", IM_END)
        assert summary(run(byte_tokenizer, ids, FinishReason.STOP))[0] == "ab"
        shown = run(byte_tokenizer, ids, FinishReason.STOP, skip_special_tokens=False)
        assert summary(shown)[0] == "a<|im_start|>b"

    def test_an_ignored_end_of_sequence_is_an_ordinary_special_token(self, byte_tokenizer):
        ids = (*b"a", IM_END, *b"b")
        deltas = run(byte_tokenizer, ids, FinishReason.LENGTH, ignore_eos=True)
        assert summary(deltas) == ("ab", ids, "length", None)


class TestMinTokens:
    def test_stop_strings_are_ignored_until_it_is_reached(self, byte_tokenizer):
        deltas = run(byte_tokenizer, b"x.y.z.", FinishReason.LENGTH, stop=".", min_tokens=3)
        assert summary(deltas) == ("x.y", tuple(b"x.y."), "stop", ".")

    def test_the_token_that_reaches_it_may_stop(self, byte_tokenizer):
        deltas = run(byte_tokenizer, b"x.y.z", FinishReason.LENGTH, stop=".", min_tokens=2)
        assert summary(deltas) == ("x", tuple(b"x."), "stop", ".")


def test_characters_and_their_ids_arrive_as_they_become_known(byte_tokenizer):
    ids = tuple("😀".encode())
    deltas = run(byte_tokenizer, ids, FinishReason.LENGTH)
    assert [delta.text for delta in deltas] == ["", "", "", "😀"]
    assert summary(deltas) == ("😀", ids, "length", None)
    assert summary(run(byte_tokenizer, ids[:3], FinishReason.LENGTH)) == ("\ufffd", ids[:3], "length", None)
