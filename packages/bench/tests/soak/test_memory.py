import os
import subprocess
import sys

import pytest

from minivllm_bench.soak.memory import MemoryGrowth, MemorySample, resident_bytes

MIB = 1 << 20


def test_growth_is_that_of_the_later_half():
    samples = [MemorySample(float(t), 1000 + 500 * t) for t in range(10)]
    samples += [MemorySample(float(t), 7000 + 10 * t) for t in range(10, 20)]
    growth = MemoryGrowth.fit(samples)
    assert (growth.first_bytes, growth.last_bytes) == (1000, 7190)
    assert growth.bytes_per_s == pytest.approx(10)
    assert growth.grown_bytes == pytest.approx(90)


def test_a_few_samples_show_no_growth():
    assert MemoryGrowth.fit([MemorySample(0.0, 1), MemorySample(1.0, 2)]) is None
    assert MemoryGrowth.fit([]) is None


def test_memory_of_children_counts():
    alone = resident_bytes(os.getpid())
    assert alone > MIB
    program = "data = b'x' * (64 << 20); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert resident_bytes(child.pid) > 64 * MIB
        assert resident_bytes(os.getpid()) > alone + 60 * MIB
        child.communicate(b"\n")
    assert resident_bytes(child.pid) is None
