import pytest

from minivllm_kernels.cpu.library import load_library
from minivllm_kernels.cpu.ops import CpuOps
from minivllm_kernels.errors import CpuKernelsUnavailable


@pytest.fixture(scope="session", params=[1, 2], ids=["one thread", "two threads"])
def ops(request):
    try:
        return CpuOps(load_library(), num_threads=request.param)
    except CpuKernelsUnavailable as reason:
        pytest.skip(str(reason))
