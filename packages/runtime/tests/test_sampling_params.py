import dataclasses
import json
import math

import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.sampling_params import SamplingParams

ACCEPTED = [
    {"top_p": 1},
    {"top_p": 0},
    {"top_k": 0},
    {"top_k": -1},
    {"top_k": 9999999},
    {"min_p": 0},
    {"min_p": 1},
    {"temperature": 0},
    {"temperature": 2},
    {"n": 1},
    {"n": 128},
    {"seed": 0},
    {"seed": -(2**63)},
    {"seed": 2**64 - 1},
    {"max_tokens": 1},
    {"max_tokens": None},
    {"max_tokens": 3, "min_tokens": 3},
    {"max_tokens": None, "min_tokens": 1000},
    {"stop": ["a", "b", "c", "d"]},
    {"stop_token_ids": [0]},
    {"priority": -(2**31)},
    {"cache_salt": "é" * 256},
    {"repetition_penalty": 1e-3},
    {"repetition_penalty": 1000},
    {"presence_penalty": -2},
    {"presence_penalty": 2},
    {"frequency_penalty": -2},
    {"frequency_penalty": 2.0},
    {"logit_bias": {}},
    {"logit_bias": {0: -100, 7: 100.0}},
    {"logprobs": 0},
    {"logprobs": 20},
    {"prompt_logprobs": 0},
    {"prompt_logprobs": 20},
    {"max_tokens": 0, "prompt_logprobs": 0},
    {"json_schema": {"type": "integer"}},
    {"json_schema": '{"type": "integer"}'},
    {"json_object": True},
]
REFUSED = [
    {"top_p": -1},
    {"top_p": 1.1},
    {"top_k": 0.01},
    {"top_k": 1.0},
    {"top_k": -2},
    {"min_p": -0.1},
    {"min_p": 1.1},
    {"temperature": -1},
    {"temperature": 2.1},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": True},
    {"temperature": 10**400},
    {"temperature": "1"},
    {"n": 0},
    {"n": 129},
    {"n": 1000000},
    {"n": True},
    {"seed": 2**70},
    {"seed": 2**64},
    {"seed": -(2**63) - 1},
    {"seed": 1.5},
    {"max_tokens": 0},
    {"max_tokens": -5},
    {"min_tokens": -1},
    {"stop": ["a", "b", "c", "d", "e"]},
    {"stop": ""},
    {"stop": ["a", ""]},
    {"stop": [1]},
    {"cache_salt": "é" * 257},
    {"stop_token_ids": [-1]},
    {"stop_token_ids": [1.0]},
    {"priority": 2**31},
    {"repetition_penalty": 0},
    {"repetition_penalty": -1.0},
    {"repetition_penalty": math.inf},
    {"repetition_penalty": math.nan},
    {"repetition_penalty": 10**400},
    {"repetition_penalty": True},
    {"presence_penalty": 3},
    {"presence_penalty": -2.1},
    {"presence_penalty": math.nan},
    {"frequency_penalty": 2.1},
    {"frequency_penalty": "1"},
    {"logit_bias": {-1: 5}},
    {"logit_bias": {"5": 1}},
    {"logit_bias": {5: 101}},
    {"logit_bias": {5: -101}},
    {"logit_bias": {5: math.nan}},
    {"logit_bias": {True: 1}},
    {"logprobs": -1},
    {"logprobs": 21},
    {"logprobs": True},
    {"prompt_logprobs": 21},
    {"prompt_logprobs": 1.0},
    {"json_schema": "{"},
    {"json_schema": "true"},
]


@pytest.mark.parametrize("values", ACCEPTED, ids=str)
def test_values_at_their_bounds_are_accepted(values):
    params = SamplingParams(**values)
    frozen = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    assert {name: getattr(params, name) for name in values} == frozen


@pytest.mark.parametrize("values", REFUSED, ids=str)
def test_values_past_their_bounds_are_refused_by_name(values):
    with pytest.raises(InvalidParameter) as refusal:
        SamplingParams(**values)
    (name,) = values
    assert refusal.value.param == name


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ({"temperature": 2.5}, ["0", "2", "2.5"]),
        ({"n": 129}, ["1", "128", "129"]),
        ({"max_tokens": 2, "min_tokens": 3}, ["2", "3"]),
        ({"max_tokens": 0}, ["1", "0"]),
        ({"max_tokens": -1, "prompt_logprobs": 0}, ["0", "-1"]),
        ({"max_tokens": 0, "prompt_logprobs": 0, "min_tokens": 1}, ["0", "1"]),
        ({"repetition_penalty": 0}, ["0"]),
        ({"logit_bias": {3: 100.5}}, ["-100", "100", "100.5"]),
        ({"logprobs": 21}, ["0", "20", "21"]),
        ({"stop": ["x"] * 5}, ["4", "5"]),
        ({"cache_salt": "x" * 257}, ["256", "257"]),
    ],
    ids=str,
)
def test_a_refusal_names_the_value_and_the_limit(values, numbers):
    with pytest.raises(InvalidParameter) as refusal:
        SamplingParams(**values)
    assert all(number in str(refusal.value) for number in numbers)


def test_one_stop_string_may_be_given_bare():
    assert SamplingParams(stop="\n\n").stop == ("\n\n",)


def test_replacing_a_field_checks_again():
    with pytest.raises(InvalidParameter):
        dataclasses.replace(SamplingParams(), top_p=2)


def test_a_caller_s_own_mapping_may_change_later():
    bias = {1: 2.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = 1000.0
    assert params.logit_bias == {1: 2.0}
    assert hash(params) == hash(SamplingParams(logit_bias={1: 2.0}))


@pytest.mark.parametrize(
    ("changes", "schema"),
    [
        ({}, None),
        ({"json_object": True}, {"type": "object"}),
        ({"json_schema": {"type": "null"}}, {"type": "null"}),
        ({"json_schema": '{"type":"null"}'}, {"type": "null"}),
    ],
    ids=str,
)
def test_json_is_one_schema_however_it_is_asked_for(changes, schema):
    params = dataclasses.replace(SamplingParams(**changes), n=2)
    assert (None if params.output_schema is None else json.loads(params.output_schema)) == schema


@pytest.mark.parametrize(
    ("others", "name"),
    [
        ({"min_tokens": 1}, "min_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"json_schema": "{}"}, "json_schema"),
    ],
    ids=str,
)
def test_what_json_output_cannot_be_combined_with_is_refused(others, name):
    with pytest.raises(InvalidParameter) as refusal:
        SamplingParams(json_object=True, **others)
    assert refusal.value.param == name
