import pytest
from pydantic import ValidationError

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.protocol.completion import CompletionRequest

OPTIONAL_FIELDS = sorted(set(CompletionRequest.model_fields) - {"prompt"})


def parse(**fields):
    return CompletionRequest.model_validate({"prompt": "a", **fields})


def first_violation(**fields):
    with pytest.raises(ValidationError) as caught:
        parse(**fields)
    return caught.value.errors()[0]


@pytest.mark.parametrize(
    ("sent", "prompts"),
    [
        ("text", ["text"]),
        ("", [""]),
        (["one", "two"], ["one", "two"]),
        ([3, 1], [[3, 1]]),
        ([[3], [1, 2]], [[3], [1, 2]]),
        ([[3], []], [[3], []]),
        ([], [[]]),
    ],
)
def test_a_prompt_is_one_text_many_texts_ids_or_lists_of_ids(sent, prompts):
    assert parse(prompt=sent).prompt == prompts


@pytest.mark.parametrize(
    "sent", [1, 1.5, True, {}, [True], [1, "a"], ["a", [1]], [1.0], [[1], ["a"]], [[True]], [None]]
)
def test_any_other_prompt_is_refused(sent):
    violation = first_violation(prompt=sent)
    assert violation["loc"] == ("prompt",)
    assert "token ids" in violation["msg"]


def test_a_missing_prompt_is_refused():
    with pytest.raises(ValidationError, match="prompt"):
        CompletionRequest.model_validate({})


def test_null_means_the_default_in_every_optional_field():
    request = parse(**dict.fromkeys(OPTIONAL_FIELDS))
    assert request == parse()
    assert request.sampling_params() == SamplingParams(max_tokens=None)


def test_unknown_fields_are_ignored():
    assert parse(user="me", foo=1) == parse()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", True),
        ("temperature", "1"),
        ("temperature", float("nan")),
        ("top_p", float("inf")),
        ("top_k", 0.01),
        ("top_k", 1.0),
        ("max_tokens", "5"),
        ("max_tokens", True),
        ("n", 1.0),
        ("seed", "7"),
        ("stream", 1),
        ("stream", "true"),
        ("ignore_eos", 0),
        ("stop", 5),
        ("stop", [5]),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", 1),
        ("model", 3),
        ("logit_bias", {"5": float("nan")}),
        ("stream_options", True),
        ("stream_options", {"include_usage": 1}),
    ],
)
def test_types_are_strict(field, value):
    fields = {"stream": True, field: value}
    assert first_violation(**fields)["loc"][0] == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", [5] * 1025),
        ("stop_token_ids", [5] * 1025),
        ("stop_token_ids", ["5"] * 1025),
        ("logit_bias", dict.fromkeys(map(str, range(1025)), "x")),
    ],
)
def test_too_many_entries_are_one_violation(field, value):
    with pytest.raises(ValidationError) as caught:
        parse(**{field: value})
    (violation,) = caught.value.errors()
    assert violation["loc"] == (field,)
    assert "1024" in violation["msg"]


def test_an_integer_is_a_number():
    assert parse(temperature=1, top_p=1).sampling_params().temperature == 1


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("temperature", -1),
        ("temperature", 2.1),
        ("top_p", -1),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.5),
        ("presence_penalty", 3),
        ("frequency_penalty", -2.5),
        ("repetition_penalty", 0),
        ("logit_bias", {"5": 101}),
        ("n", 0),
        ("n", 1_000_000),
        ("seed", 2**70),
        ("max_tokens", -5),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", ""),
        ("stop_token_ids", [-1]),
        ("cache_salt", "s" * 257),
    ],
)
def test_sampling_ranges_are_those_of_the_engine(field, bad):
    with pytest.raises(InvalidParameter) as caught:
        parse(**{field: bad}).sampling_params()
    assert caught.value.param == field


def test_every_sampling_field_arrives():
    sent = {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 7,
        "n": 3,
        "stop": ["x"],
        "stop_token_ids": [5],
        "min_tokens": 2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.5,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        "priority": 1,
        "cache_salt": "s",
    }
    assert parse(**sent).sampling_params() == SamplingParams(**sent)


def test_one_stop_string_may_come_bare():
    assert parse(stop="END").sampling_params().stop == ("END",)


@pytest.mark.parametrize("value", [6, -1])
def test_completions_show_at_most_five_logprobs(value):
    assert first_violation(logprobs=value)["loc"] == ("logprobs",)


@pytest.mark.parametrize("key", ["-1", "abc", "", "1.0", " 5", "\u0665", "9" * 100])
def test_biased_tokens_are_ids(key):
    violation = first_violation(logit_bias={key: 1})
    assert violation["loc"] == ("logit_bias",)
    assert "token ids" in violation["msg"]


@pytest.mark.parametrize(
    ("fields", "logprobs", "prompt_logprobs"),
    [
        ({}, None, None),
        ({"logprobs": 2}, 2, None),
        ({"logprobs": 0}, 0, None),
        ({"echo": True}, None, None),
        ({"echo": True, "logprobs": 2}, 2, 2),
        ({"echo": True, "max_tokens": 0}, None, 0),
        ({"echo": True, "max_tokens": 0, "logprobs": 3}, 3, 3),
    ],
)
def test_the_prompt_is_scored_where_its_scores_are_shown(fields, logprobs, prompt_logprobs):
    params = parse(**fields).sampling_params()
    assert (params.logprobs, params.prompt_logprobs) == (logprobs, prompt_logprobs)


@pytest.mark.parametrize(("field", "value"), [("best_of", 2), ("best_of", 1), ("suffix", "end")])
def test_fields_that_are_not_served_are_refused_by_name(field, value):
    violation = first_violation(**{field: value})
    assert violation["loc"] == (field,)
    assert "not supported" in violation["msg"]


@pytest.mark.parametrize("stream", [None, False])
def test_stream_options_need_a_stream(stream):
    assert first_violation(stream=stream, stream_options={})["loc"] == ("stream_options",)


@pytest.mark.parametrize(
    ("options", "include_usage"),
    [
        (None, False),
        ({}, False),
        ({"include_usage": None}, False),
        ({"include_usage": False}, False),
        ({"include_usage": True}, True),
    ],
)
def test_usage_is_streamed_only_on_request(options, include_usage):
    assert parse(stream=True, stream_options=options).include_usage is include_usage
