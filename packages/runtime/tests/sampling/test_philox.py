import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.sampling.philox import philox4x32, uniforms

# The known answers that the authors publish with their implementation (Random123, kat_vectors).
KNOWN_ANSWERS = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def words(values):
    return tuple(np.array([value], dtype=np.uint64) for value in values)


@pytest.mark.parametrize(("key", "counter", "answer"), KNOWN_ANSWERS)
def test_known_answers(key, counter, answer):
    assert tuple(int(word[0]) for word in philox4x32(words(key), words(counter))) == answer


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 127), st.integers(0, 2**20)),
        min_size=1,
        max_size=9,
    )
)
def test_a_draw_depends_on_its_own_row_alone(rows):
    together = uniforms(*zip(*rows, strict=True))
    alone = [uniforms([seed], [choice], [index])[0] for seed, choice, index in rows]
    assert together.tolist() == alone
    assert all(0 <= u < 1 for u in alone)


def test_draws_are_uniform_over_seeds_choices_and_indices():
    for seeds, choices, indices in (
        (range(20_000), [0] * 20_000, [0] * 20_000),
        ([7] * 20_000, [0] * 20_000, range(20_000)),
        ([7] * 20_000, range(20_000), [3] * 20_000),
    ):
        histogram, _ = np.histogram(uniforms(seeds, choices, indices), bins=20, range=(0, 1))
        chi_squared = ((histogram - 1000) ** 2 / 1000).sum()
        assert chi_squared < 43.8  # 19 degrees of freedom, p = 0.001
