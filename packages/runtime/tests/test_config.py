import dataclasses

import pytest

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.errors import InvalidParameter


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("num_blocks", 1),
        ("block_size", 1),
        ("max_model_len", 2),
        ("max_num_seqs", 1),
        ("max_num_batched_tokens", 1),
        ("max_num_waiting", 1),
        ("num_threads", 1),
    ],
)
def test_the_smallest_value_is_taken_and_the_next_smaller_one_refused(name, least):
    one_request = {"max_num_seqs": 1}
    assert getattr(EngineConfig(**{**one_request, name: least}), name) == least
    with pytest.raises(
        InvalidParameter, match=f"{name} must be at least {least}, got {least - 1}"
    ) as refusal:
        EngineConfig(**{**one_request, name: least - 1})
    assert refusal.value.param == name


@pytest.mark.parametrize(("name", "most"), [("max_num_seqs", 65536), ("num_threads", 1024)])
@pytest.mark.parametrize("excess", [1, 2**70])
def test_the_largest_value_is_taken_and_a_larger_one_refused(name, most, excess):
    one_step = {"max_num_batched_tokens": 2**80}
    assert getattr(EngineConfig(**one_step, **{name: most}), name) == most
    with pytest.raises(
        InvalidParameter, match=f"{name} must be at most {most}, got {most + excess}"
    ) as refusal:
        EngineConfig(**one_step, **{name: most + excess})
    assert refusal.value.param == name


@pytest.mark.parametrize(("name", "value"), [("dtype", "int8"), ("device", "tpu")])
def test_an_unknown_choice_is_refused_with_the_known_ones(name, value):
    with pytest.raises(InvalidParameter, match=f"{name} must be one of auto, .*, got '{value}'"):
        EngineConfig(**{name: value})


def test_a_step_must_have_a_token_for_every_running_request():
    assert EngineConfig(max_num_seqs=8, max_num_batched_tokens=8).max_num_seqs == 8
    with pytest.raises(InvalidParameter, match=r"max_num_batched_tokens \(7\) is below max_num_seqs \(8\)"):
        EngineConfig(max_num_seqs=8, max_num_batched_tokens=7)


def test_a_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EngineConfig().model = "another"
