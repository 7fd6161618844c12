"""The interpreter takes what a compiler refuses: every kernel is compiled, too, which needs no GPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import minivllm_kernels

KERNEL = re.compile(r"^def (\w+_kernel)\(", re.MULTILINE)


def compile_by(script, capability):
    """Name, shared memory in bytes and hash of what each launch of a script compiles."""
    program = [sys.executable, str(Path(__file__).with_name(script)), capability]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    printed = subprocess.run(program, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "max_shared_bytes"),
    [("75", 64 * 1024), ("80", 163 * 1024), ("90", 227 * 1024)],
    ids=["Turing", "Ampere", "Hopper"],
)
def test_every_kernel_compiles_and_fits(capability, max_shared_bytes):
    compiled = compile_by("compile_kernels.py", capability)
    sources = Path(minivllm_kernels.__file__).parent.glob("*.py")
    expected = {name for path in sources for name in KERNEL.findall(path.read_text())}
    if capability != "90":
        expected -= {"_small_batch_kernel"}
    assert {name for name, _, _ in compiled} == expected
    assert max(shared_bytes for _, shared_bytes, _ in compiled) <= max_shared_bytes


@pytest.mark.slow
def test_sampling_is_compiled_once_wherever_slots_and_positions_lie():
    """A step would have to wait for it."""
    compiled = compile_by("compile_sampling.py", "90")
    assert len(compiled) == 3 * 4
    assert len({(name, code) for name, _, code in compiled}) == 3
