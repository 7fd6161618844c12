from minivllm_runtime.engine.stop_tokens import named_stop_tokens
from minivllm_runtime.sampling_params import SamplingParams


def test_ids_and_special_tokens_are_reported_as_they_were_named(byte_tokenizer):
    im_end = byte_tokenizer.special_token_id("<|im_end|>")
    params = SamplingParams(stop=["<|im_end|>", "\n", "<|im_end|>!"], stop_token_ids=[5])
    assert named_stop_tokens(params, byte_tokenizer) == {5: 5, im_end: "<|im_end|>"}


def test_nothing_named_is_nothing(byte_tokenizer):
    assert named_stop_tokens(SamplingParams(), byte_tokenizer) == {}
