"""Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011): random numbers that are a pure function of key and counter.

A draw depends on the request's seed, its choice index and the index of the output token, on nothing else: neither
neighbours in the batch, nor preemption, nor a discarded step can change it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

Words = NDArray[np.uint64]
"""32-bit words, each in a 64-bit element so that products do not overflow."""


def philox4x32(
    key: tuple[Words, Words], counter: tuple[Words, Words, Words, Words]
) -> tuple[Words, Words, Words, Words]:
    """Encrypt the counters with the keys: four 32-bit words each, element by element."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0, c1, c2, c3


def uniforms(
    seeds: Sequence[int], choices: Sequence[int], output_indices: Sequence[int]
) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed < 2⁶⁴, choice, output index), a multiple of 2⁻³²."""
    seed = np.array(seeds, dtype=np.uint64)
    zero = np.zeros_like(seed)
    counter = (np.array(choices, dtype=np.uint64), np.array(output_indices, dtype=np.uint64), zero, zero)
    word, *_ = philox4x32((seed & _LOW, seed >> _SHIFT), counter)
    return word.astype(np.float64) * 2.0**-32
