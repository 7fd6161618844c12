import pytest

from minivllm_runtime.engine.choice_decoder import ChoiceDecoder
from minivllm_runtime.messages import TokenLogprobs, TokenOutput
from minivllm_runtime.outputs import ChoiceDelta, TokenLogprob, TopLogprob
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_scheduler import FinishReason

IM_END = 256
IM_START = 257
FIRST_EXTRA = 258


def output(token_ids, finish_reason=None, num_cached_tokens=0, logprobs=None):
    return TokenOutput("r", tuple(token_ids), finish_reason, num_cached_tokens, None, logprobs)


def decoder_of(tokenizer, **params):
    return ChoiceDecoder(0, SamplingParams(**params), (1,), tokenizer)


def run(tokenizer, token_ids, finish_reason, **params):
    """The deltas of ids that arrive one by one, as far as the choice goes on."""
    decoder = decoder_of(tokenizer, max_tokens=None, **params)
    deltas = []
    for place, token_id in enumerate(token_ids, start=1):
        ends = finish_reason if place == len(token_ids) else None
        deltas.append(decoder.push(output((token_id,), ends)))
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
        decoder = decoder_of(byte_tokenizer, stop="bc")
        decoder.push(output(b"ab"))
        assert decoder.push(output((), FinishReason.LENGTH)) == ChoiceDelta(0, "b", (), "length")


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
        decoder = decoder_of(byte_tokenizer, stop="\n\n")
        delta = decoder.push(output(b"hi\n\nmore", num_cached_tokens=3))
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


class TestLogprobs:
    SCORES = TokenLogprobs(-1.5, 2, ((ord("z"), -0.5), (0xF0, -1.5)))

    def deltas_of(self, tokenizer, pieces, finish_reason=None, **params):
        decoder = decoder_of(tokenizer, logprobs=2, **params)
        ends = [None] * (len(pieces) - 1) + [finish_reason]
        return [
            decoder.push(output(piece, end, logprobs=(self.SCORES,) * len(piece)))
            for piece, end in zip(pieces, ends, strict=True)
        ]

    def test_every_token_has_its_own_bytes_and_the_most_probable_ones_beside_it(self, byte_tokenizer):
        (delta,) = self.deltas_of(byte_tokenizer, [b"a"])
        assert delta.logprobs == (
            TokenLogprob(
                ord("a"),
                "a",
                b"a",
                -1.5,
                2,
                0,
                (TopLogprob(ord("z"), "z", b"z", -0.5), TopLogprob(0xF0, "\ufffd", b"\xf0", -1.5)),
            ),
        )

    def test_offsets_count_the_characters_that_were_complete(self, byte_tokenizer):
        ids = (*"a😀b".encode(), IM_END)
        deltas = self.deltas_of(byte_tokenizer, [(token_id,) for token_id in ids], FinishReason.STOP)
        logprobs = [logprob for delta in deltas for logprob in delta.logprobs]
        assert [logprob.text_offset for logprob in logprobs] == [0, 1, 1, 1, 1, 2, 3]
        assert [logprob.bytes for logprob in logprobs[1:5]] == [bytes((byte,)) for byte in "😀".encode()]
        assert logprobs[-1].text == "<|im_end|>"

    def test_they_are_cut_where_a_stop_string_cuts_the_ids(self, byte_tokenizer):
        (delta,) = self.deltas_of(byte_tokenizer, [b"hi\n\nmore"], stop="\n\n")
        assert [logprob.token_id for logprob in delta.logprobs] == list(b"hi\n\n") == list(delta.token_ids)
        assert delta.text == "hi"

    def test_they_come_with_their_ids_while_text_is_held_back(self, byte_tokenizer):
        deltas = self.deltas_of(byte_tokenizer, [b"a", b"b", b"c"], FinishReason.LENGTH, stop="abx")
        assert [(delta.text, len(delta.logprobs)) for delta in deltas] == [("", 1), ("", 1), ("abc", 1)]

    def test_nobody_gets_them_unasked(self, byte_tokenizer):
        assert decoder_of(byte_tokenizer).push(output(b"a")).logprobs is None

    def test_an_output_without_ids_has_none(self, byte_tokenizer):
        decoder = decoder_of(byte_tokenizer, logprobs=0)
        assert decoder.push(output((), FinishReason.LENGTH)).logprobs == ()


class TestPromptLogprobs:
    def prompt_logprobs(self, tokenizer, prompt, **params):
        decoder = ChoiceDecoder(0, SamplingParams(prompt_logprobs=0, **params), tuple(prompt), tokenizer)
        scores = tuple(TokenLogprobs(-float(place), place, ()) for place in range(1, len(prompt)))
        return decoder.push(output(b"x")._replace(prompt_logprobs=scores)).prompt_logprobs

    def test_the_first_token_has_none(self, byte_tokenizer):
        first, second = self.prompt_logprobs(byte_tokenizer, b"hi")
        assert first == TokenLogprob(ord("h"), "h", b"h", None, None, 0)
        assert second == TokenLogprob(ord("i"), "i", b"i", -1.0, 1, 1)
        assert len(self.prompt_logprobs(byte_tokenizer, b"h")) == 1

    @pytest.mark.parametrize(
        ("skip_special_tokens", "offsets"), [(True, [0, 0, 1, 1]), (False, [0, 12, 13, 13])]
    )
    def test_offsets_count_in_the_text_that_is_shown(self, byte_tokenizer, skip_special_tokens, offsets):
        prompt = (IM_START, *"aé".encode())
        decoded = self.prompt_logprobs(byte_tokenizer, prompt, skip_special_tokens=skip_special_tokens)
        assert [logprob.text_offset for logprob in decoded] == offsets


def test_characters_and_their_ids_arrive_as_they_become_known(byte_tokenizer):
    ids = tuple("😀".encode())
    deltas = run(byte_tokenizer, ids, FinishReason.LENGTH)
    assert [delta.text for delta in deltas] == ["", "", "", "😀"]
    assert summary(deltas) == ("😀", ids, "length", None)
    assert summary(run(byte_tokenizer, ids[:3], FinishReason.LENGTH)) == ("\ufffd", ids[:3], "length", None)
