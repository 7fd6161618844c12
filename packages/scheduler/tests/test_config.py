import pytest

from minivllm_scheduler import InvalidConfig, SchedulerConfig

VALID = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 64, "max_num_waiting": 8}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0, it must be at least 1"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens is 0, it must be at least 1"),
        ({"max_num_batched_tokens": 3}, "max_num_batched_tokens is 3, it must be at least max_num_seqs 4"),
        ({"max_model_len": 1}, "max_model_len is 1, it must be at least 2"),
        ({"max_num_waiting": -1}, "max_num_waiting is -1, it must be at least 1"),
        ({"prefill_chunk_size": 0}, "prefill_chunk_size is 0, it must be at least 1"),
        ({"max_overtaking": -1}, "max_overtaking is -1, it must be at least 0"),
        ({"watermark": 1.0}, r"watermark is 1.0, it must lie in \[0, 1\)"),
        ({"watermark": -0.1}, "watermark is -0.1"),
        ({"watermark": float("nan")}, "watermark is nan"),
    ],
)
def test_a_value_outside_its_limits_is_named_with_the_limit(change, message):
    with pytest.raises(InvalidConfig, match=message):
        SchedulerConfig(**(VALID | change))


@pytest.mark.parametrize(
    "change",
    [
        {"max_num_batched_tokens": 4},
        {"max_model_len": 2},
        {"prefill_chunk_size": 1},
        {"watermark": 0.0},
        {"max_overtaking": 0},
    ],
)
def test_the_limits_themselves_are_valid(change):
    config = SchedulerConfig(**(VALID | change))
    assert {name: getattr(config, name) for name in change} == change
