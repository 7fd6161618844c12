import pytest

pytest.importorskip("torch")
pytest.importorskip("minivllm_runtime")

from minivllm_bench.kernel_bench import _Case, _measure_if_it_runs
from minivllm_scheduler.simulation import DeviceSheet

CEILINGS = DeviceSheet(flops_per_s=1e12, bytes_per_s=1e12)


def fails():
    raise RuntimeError("head_dim 20 is not supported\nand more")


def test_a_peer_that_fails_is_left_out_with_a_line(capsys):
    case = _Case("attention, 3 requests, theirs", 1, 1, fails, is_peer=True)
    assert _measure_if_it_runs(case, CEILINGS) is None
    line = "minivllm-bench: attention, 3 requests, theirs fails: head_dim 20 is not supported\n"
    assert capsys.readouterr().err == line


def test_a_kernel_of_ours_that_fails_ends_the_run():
    with pytest.raises(RuntimeError, match="head_dim 20"):
        _measure_if_it_runs(_Case("attention, 3 requests", 1, 1, fails), CEILINGS)
