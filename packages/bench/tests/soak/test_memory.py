import subprocess
import sys

import pytest

from minivllm_bench.soak.memory import MemoryGrowth, MemorySample, resident_bytes

MIB = 1 << 20


def test_growth_is_that_of_the_later_half():
    samples = [MemorySample(10.0 * t, 1000 + 500 * t) for t in range(10)]
    samples += [MemorySample(10.0 * t, 7000 + 10 * t) for t in range(10, 20)]
    growth = MemoryGrowth.fit(samples)
    assert (growth.first_bytes, growth.last_bytes) == (1000, 7190)
    assert growth.bytes_per_s == pytest.approx(1)
    assert growth.grown_bytes == pytest.approx(90)


@pytest.mark.parametrize("num_samples", [0, 1, 2, 30])
def test_a_short_time_shows_no_growth(num_samples):
    assert MemoryGrowth.fit([MemorySample(float(t), 1000 * t) for t in range(num_samples)]) is None


LARGE = "data = b'x' * (64 << 20); print(flush=True); input()"
SMALL = f"""
import subprocess, sys
print(flush=True)
input()
with subprocess.Popen([sys.executable, "-c", {LARGE!r}], stdin=subprocess.PIPE) as child:
    input()
    child.communicate(b"\\n")
"""


def test_memory_of_children_counts():
    with subprocess.Popen(
        [sys.executable, "-c", SMALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        parent.stdout.readline()
        assert MIB < resident_bytes(parent.pid) < 64 * MIB
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        parent.stdout.readline()  # of the child
        assert resident_bytes(parent.pid) > 64 * MIB
        parent.communicate(b"\n")
    assert resident_bytes(parent.pid) is None
