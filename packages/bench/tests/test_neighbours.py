import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_bench.neighbours import Neighbours, find_neighbours
from minivllm_bench.offline import Measurement


def measured(workload, tokens, engine="minivllm"):
    return Measurement(engine, workload, (1.0, 1.0, 1.0), (1, 1, 1), (tokens,) * 3)


def test_only_sizes_next_to_each_other_of_one_engine_are_compared():
    found = find_neighbours(
        [
            measured("decode_b8", 800),
            measured("decode_b8", 80, "hf"),
            measured("decode_b7", 700),
            measured("decode_b10", 950),
            measured("offline_256", 5),
            measured("decode_b9", 85, "hf"),
        ]
    )
    assert found == (Neighbours("minivllm", 8, 800.0, 700.0), Neighbours("hf", 9, 85.0, 80.0))


@given(size=st.integers(2, 512), seconds=st.floats(0.01, 10), share=st.floats(0, 1))
def test_a_step_that_takes_as_long_or_longer_by_the_work_of_the_request_is_no_fall(size, seconds, share):
    longer = seconds * (1 + share / (size - 1))
    assert Neighbours("e", size, size / longer, (size - 1) / seconds).reservation is None


@pytest.mark.parametrize(
    ("size", "speed", "smaller", "named"),
    [
        (8, 800.0, 620.0, "88.6 tokens/s for each request of decode_b7, and 100.0 of decode_b8: 11% less"),
        (
            256,
            74_338.0,
            85_857.0,
            "74338.0 tokens/s with decode_b256, and 85857.0 with decode_b255: 13% less",
        ),
    ],
)
def test_a_size_that_falls_off_beside_its_neighbour_is_named(size, speed, smaller, named):
    assert named in Neighbours("minivllm", size, speed, smaller).reservation


def test_ten_per_cent_are_allowed():
    assert Neighbours("e", 256, 90.01, 100.0).reservation is None
    assert Neighbours("e", 256, 89.99, 100.0).reservation is not None
