"""The kernels' backend agrees with the CPU's (in the Triton interpreter where there is no GPU)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = """
import torch
from minivllm_kernels.head_norms import HeadNorms
from runtime_tests.attention.test_torch_backend import attend, random_step, rotary_of
from minivllm_runtime.attention.triton_backend import TritonAttentionBackend

for rows in ([(20, 1), (33, 1), (0, 1)], [(20, 1), (0, 17), (15, 5)]):
    for norms in (None, HeadNorms(*(1 + torch.rand(2, 16)), eps=1e-2)):
        pool, layout, heads = random_step(rows)
        reference = attend(pool.clone(), layout, heads, norms)
        step = TritonAttentionBackend([pool], heads.shape[1] - 2 * pool.shape[2], 0.25).plan(layout)
        actual = step.attend(0, heads, rotary_of(layout, heads.shape[2]), norms)
        torch.testing.assert_close(actual, reference, rtol=1e-4, atol=1e-5)
print("agree")
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the engine's own tests run these kernels")
def test_agrees_with_the_cpu(tmp_path):
    # Triton decides at import whether it interprets, so this needs a process of its own.
    tests = Path(__file__).parents[1]
    (tmp_path / "runtime_tests").symlink_to(tests, target_is_directory=True)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "agree\n", result.stderr
