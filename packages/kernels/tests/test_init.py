import importlib
import inspect
import subprocess
import sys

import pytest

import minivllm_kernels
import minivllm_kernels.reference

MORE_OPS = {
    "rms_norm": ("add_rms_norm",),
    "paged_decode_attention": ("rotate_cache_and_attend",),
    "small_batch_linear": ("small_batch_gated_linear",),
}
"""Ops in the module of another one."""


def test_all_names_only_modules_that_exist():
    for package in (minivllm_kernels, minivllm_kernels.reference):
        for name in package.__all__:
            assert importlib.import_module(f"{package.__name__}.{name}")


@pytest.mark.parametrize("op", minivllm_kernels.reference.__all__)
def test_an_op_and_its_twin_have_one_signature(op):
    kernel_module = importlib.import_module(f"minivllm_kernels.{op}")
    twin_module = importlib.import_module(f"minivllm_kernels.reference.{op}")
    for function in (op, *MORE_OPS.get(op, ())):
        assert inspect.signature(getattr(kernel_module, function)) == inspect.signature(
            getattr(twin_module, function)
        )


def test_the_twins_do_not_load_triton():
    imports = "".join(
        f"import minivllm_kernels.reference.{op}; " for op in minivllm_kernels.reference.__all__
    )
    script = f"import sys; sys.modules['triton'] = None; {imports}"
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
