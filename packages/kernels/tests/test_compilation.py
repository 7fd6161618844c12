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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "max_shared_bytes"),
    [("75", 64 * 1024), ("80", 163 * 1024), ("90", 227 * 1024)],
    ids=["Turing", "Ampere", "Hopper"],
)
def test_every_kernel_compiles_and_fits(capability, max_shared_bytes):
    program = [sys.executable, str(Path(__file__).with_name("compile_kernels.py")), capability]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    printed = subprocess.run(program, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    compiled = [json.loads(line) for line in printed.splitlines()]
    sources = Path(minivllm_kernels.__file__).parent.glob("*.py")
    expected = {name for path in sources for name in KERNEL.findall(path.read_text())}
    if capability == "75":
        expected -= {"_small_batch_kernel"}
    assert {name for name, _ in compiled} == expected
    assert max(shared_bytes for _, shared_bytes in compiled) <= max_shared_bytes
