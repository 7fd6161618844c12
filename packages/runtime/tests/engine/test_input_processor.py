import pytest

from minivllm_runtime.engine.input_processor import InputProcessor
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_runtime.tokenizer import Tokenizer

CONTEXT = 64
VOCAB_SIZE = 300


def model_config(vocab_size=VOCAB_SIZE):
    return ModelConfig(
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        max_position_embeddings=128,
    )


@pytest.fixture
def processor(byte_tokenizer):
    return InputProcessor(byte_tokenizer, model_config(), CONTEXT)


def max_tokens_of(processor, num_prompt_tokens, default_max_tokens=None, **params):
    (request,) = processor.make_requests(
        "r", [[1] * num_prompt_tokens], SamplingParams(**params), default_max_tokens=default_max_tokens
    )
    return request.max_tokens


def refusal_of(call, *args, **kwargs):
    with pytest.raises(InvalidParameter) as refusal:
        call(*args, **kwargs)
    return refusal.value.param, str(refusal.value)


class TestEncodeChat:
    @pytest.fixture
    def processor(self, byte_tokenizer):
        tokenizer = Tokenizer(
            byte_tokenizer.backend, chat_template="<|im_start|>{{ messages[0].content }}<|im_end|>"
        )
        return InputProcessor(tokenizer, model_config(), CONTEXT)

    def test_a_conversation_becomes_the_ids_of_its_text(self, processor, byte_tokenizer):
        ids = processor.encode_chat([{"role": "user", "content": "hi"}])
        assert ids == tuple(byte_tokenizer.encode("<|im_start|>hi<|im_end|>", add_special_tokens=False))

    @pytest.mark.parametrize("content", ["a" * 100_000, "\ud83d"], ids=["too long", "surrogate"])
    def test_what_cannot_be_encoded_is_refused(self, processor, content):
        with pytest.raises(InvalidParameter):
            processor.encode_chat([{"role": "user", "content": content}])


class TestTokenize:
    def test_an_empty_text_has_no_ids(self, processor):
        assert processor.tokenize("") == ()
        assert processor.tokenize("ab", add_special_tokens=False) == (97, 98)

    def test_ids_become_their_text_again(self, processor):
        assert processor.detokenize(processor.tokenize("hé<|im_end|>")) == "hé<|im_end|>"

    @pytest.mark.parametrize("ids", [[-1], [VOCAB_SIZE], [97] * (CONTEXT + 1)], ids=len)
    def test_ids_that_no_request_may_have_are_refused(self, processor, ids):
        assert refusal_of(processor.detokenize, ids)[0] == "tokens"


class TestEncode:
    def test_text_becomes_the_ids_of_the_tokenizer(self, processor, byte_tokenizer):
        assert processor.encode("hi é<|im_end|>") == tuple(byte_tokenizer.encode("hi é<|im_end|>"))

    def test_what_cannot_fit_is_refused_unencoded(self, processor, byte_tokenizer):
        most_bytes = CONTEXT * byte_tokenizer.longest_token_bytes
        assert len(processor.encode("a" * most_bytes)) == most_bytes
        param, message = refusal_of(processor.encode, "a" * (most_bytes - 1) + "é")
        assert param == "prompt"
        assert str(most_bytes + 1) in message
        assert str(CONTEXT) in message

    @pytest.mark.parametrize("text", ["\ud83d", "a\udc00b"], ids=ascii)
    def test_a_lone_surrogate_is_refused(self, processor, text):
        param, message = refusal_of(processor.encode, text)
        assert param == "prompt"
        assert message.isascii()

    def test_an_empty_text_becomes_bos_or_is_refused(self, processor, byte_tokenizer, make_byte_tokenizer):
        assert processor.encode("") == (byte_tokenizer.bos_token_id,)
        without_bos = InputProcessor(make_byte_tokenizer(has_bos=False), model_config(), CONTEXT)
        assert refusal_of(without_bos.encode, "")[0] == "prompt"
        assert refusal_of(without_bos.make_requests, "r", [[]], SamplingParams())[0] == "prompt"


class TestMaxTokens:
    @pytest.mark.parametrize(
        ("num_prompt_tokens", "params", "resolved"),
        [
            (5, {"max_tokens": None}, 59),
            (5, {"max_tokens": 1}, 1),
            (5, {"max_tokens": 59}, 59),
            (63, {"max_tokens": None}, 1),
            (5, {"max_tokens": None, "default_max_tokens": 16}, 16),
            (60, {"max_tokens": None, "default_max_tokens": 16}, 4),
            (63, {"max_tokens": None, "default_max_tokens": 16}, 1),
            (5, {"max_tokens": 20, "default_max_tokens": 16}, 20),
        ],
        ids=str,
    )
    def test_it_is_what_was_asked_for_or_all_the_room(self, processor, num_prompt_tokens, params, resolved):
        assert max_tokens_of(processor, num_prompt_tokens, **params) == resolved

    def test_one_token_over_the_context_is_refused_with_the_numbers(self, processor):
        param, message = refusal_of(max_tokens_of, processor, 5, max_tokens=60)
        assert param == "max_tokens"
        assert all(number in message for number in ("64", "5 ", "60"))

    @pytest.mark.parametrize("num_prompt_tokens", [64, 65])
    def test_a_prompt_that_leaves_no_room_is_refused(self, processor, num_prompt_tokens):
        param, message = refusal_of(max_tokens_of, processor, num_prompt_tokens, max_tokens=None)
        assert param == "prompt"
        assert f"the prompt has {num_prompt_tokens} tokens" in message
        assert "64 tokens" in message

    def test_min_tokens_must_fit_what_was_resolved(self, processor):
        assert max_tokens_of(processor, 60, max_tokens=None, min_tokens=4) == 4
        param, message = refusal_of(max_tokens_of, processor, 60, max_tokens=None, min_tokens=5)
        assert param == "min_tokens"
        assert "(5)" in message
        assert "4 tokens" in message


class TestTokenIds:
    def test_ids_up_to_the_embedding_are_accepted(self, processor, byte_tokenizer):
        assert byte_tokenizer.vocab_size <= VOCAB_SIZE - 1
        (request,) = processor.make_requests("r", [[0, VOCAB_SIZE - 1]], SamplingParams())
        assert request.prompt_token_ids == (0, VOCAB_SIZE - 1)

    @pytest.mark.parametrize("prompts", [[[-1]], [[VOCAB_SIZE]], [[1, 2], [1, 999999]]], ids=str)
    def test_ids_outside_it_are_refused(self, processor, prompts):
        param, message = refusal_of(processor.make_requests, "r", prompts, SamplingParams())
        assert param == "prompt"
        assert str(prompts[-1][-1]) in message
        assert str(VOCAB_SIZE - 1) in message

    def test_stop_ids_outside_it_are_refused(self, processor):
        params = SamplingParams(stop_token_ids=[999999], min_tokens=1)
        assert refusal_of(processor.make_requests, "r", [[1]], params)[0] == "stop_token_ids"

    def test_biased_ids_outside_it_are_refused(self, processor):
        params = SamplingParams(logit_bias={1: 2, VOCAB_SIZE: 5})
        param, message = refusal_of(processor.make_requests, "r", [[1]], params)
        assert param == "logit_bias"
        assert f"{VOCAB_SIZE};" in message


class TestRequests:
    def test_no_prompt_at_all_is_refused(self, processor):
        assert refusal_of(processor.make_requests, "r", [], SamplingParams())[0] == "prompt"

    def test_choices_are_prompt_major_and_siblings_share_a_group(self, processor):
        requests = processor.make_requests("r", [[1], [2, 3]], SamplingParams(n=2, seed=5))
        assert [r.prompt_token_ids for r in requests] == [(1,), (1,), (2, 3), (2, 3)]
        assert [r.choice for r in requests] == [0, 1, 0, 1]
        assert len({r.request_id for r in requests}) == 4
        groups = [r.group for r in requests]
        assert groups[0] == groups[1] != groups[2] == groups[3]
        assert None not in groups

    def test_a_single_choice_has_no_group(self, processor):
        (request,) = processor.make_requests("r", [[1]], SamplingParams())
        assert request.group is None

    def test_parameters_arrive(self, processor):
        params = SamplingParams(
            temperature=1, top_p=1, top_k=5, min_p=0, min_tokens=3, priority=-2, cache_salt="salt", seed=7
        )
        (request,) = processor.make_requests("r", [[1]], params)
        assert (request.temperature, request.top_p, request.top_k, request.min_p) == (1.0, 1.0, 5, 0.0)
        assert (request.min_tokens, request.priority, request.cache_salt, request.seed) == (3, -2, "salt", 7)

    def test_the_first_choice_alone_reports_the_prompt(self, processor):
        params = SamplingParams(n=3, logprobs=2, prompt_logprobs=1)
        requests = processor.make_requests("r", [[1], [2]], params)
        assert [request.logprobs for request in requests] == [2] * 6
        assert [request.prompt_logprobs for request in requests] == [1, None, None] * 2

    @pytest.mark.parametrize("num_prompt_tokens", [1, CONTEXT])
    def test_a_prompt_that_is_only_scored_may_fill_the_context(self, processor, num_prompt_tokens):
        assert max_tokens_of(processor, num_prompt_tokens, max_tokens=0, prompt_logprobs=0) == 0

    def test_but_not_exceed_it(self, processor):
        param, message = refusal_of(max_tokens_of, processor, CONTEXT + 1, max_tokens=0, prompt_logprobs=0)
        assert param == "max_tokens"
        assert f"the prompt has {CONTEXT + 1} tokens" in message

    def test_penalties_and_bias_arrive(self, processor):
        params = SamplingParams(
            repetition_penalty=2, presence_penalty=1, frequency_penalty=-1, logit_bias={5: 1, 0: -2.5}
        )
        (request,) = processor.make_requests("r", [[1]], params)
        penalties = (request.repetition_penalty, request.presence_penalty, request.frequency_penalty)
        assert penalties == (2.0, 1.0, -1.0)
        assert request.logit_bias == ((5, 1.0), (0, -2.5))

    @pytest.mark.parametrize(("top_k", "resolved"), [(-1, 0), (0, 0), (1, 1), (VOCAB_SIZE, 0), (9999999, 0)])
    def test_a_top_k_that_keeps_everything_is_off(self, processor, top_k, resolved):
        (request,) = processor.make_requests("r", [[1]], SamplingParams(top_k=top_k))
        assert request.top_k == resolved

    @pytest.mark.parametrize(
        ("seed", "resolved"), [(0, 0), (2**64 - 1, 2**64 - 1), (-1, 2**64 - 1), (-(2**63), 2**63)]
    )
    def test_seeds_are_unsigned_64_bit(self, processor, seed, resolved):
        requests = processor.make_requests("r", [[1], [2]], SamplingParams(n=2, seed=seed))
        assert {request.seed for request in requests} == {resolved}

    def test_unseeded_prompts_draw_differently_but_siblings_share_a_seed(self, processor):
        requests = processor.make_requests("r", [[1], [1]], SamplingParams(n=2))
        seeds = [request.seed for request in requests]
        assert seeds[0] == seeds[1] != seeds[2] == seeds[3]
        assert all(0 <= seed < 2**64 for seed in seeds)


class TestStopIds:
    def stop_ids(self, processor, **params):
        (request,) = processor.make_requests("r", [[1]], SamplingParams(**params))
        return request.stop_token_ids

    def test_end_of_sequence_stops_unless_ignored(self, processor, byte_tokenizer):
        assert self.stop_ids(processor) == frozenset(byte_tokenizer.eos_token_ids)
        assert self.stop_ids(processor, ignore_eos=True) == frozenset()

    def test_named_ids_stop_as_well(self, processor, byte_tokenizer):
        assert self.stop_ids(processor, stop_token_ids=[5]) == {5, *byte_tokenizer.eos_token_ids}

    def test_a_stop_string_that_is_one_special_token_stops_by_id(self, processor, byte_tokenizer):
        im_start = byte_tokenizer.special_token_id("<|im_start|>")
        assert self.stop_ids(processor, stop="<|im_start|>", ignore_eos=True) == {im_start}
        assert self.stop_ids(processor, stop=["a", "<|im_start|>x"], ignore_eos=True) == frozenset()

    def test_an_end_of_sequence_that_is_named_stops_even_where_others_are_ignored(
        self, processor, byte_tokenizer
    ):
        im_end = byte_tokenizer.special_token_id("<|im_end|>")
        assert self.stop_ids(processor, stop="<|im_end|>", ignore_eos=True) == {im_end}
