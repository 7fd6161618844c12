import pytest

pytest.importorskip("torch")
pytest.importorskip("minivllm_runtime")

from minivllm_bench.kernel_bench import _Case, _measure_if_it_runs, _ragged
from minivllm_scheduler.simulation import DeviceSheet

CEILINGS = DeviceSheet(flops_per_s=1e12, bytes_per_s=1e12)


def fails():
    raise RuntimeError("head_dim 20 is not supported\nand more")


@pytest.mark.parametrize(("num_requests", "mean"), [(2, 256), (3, 7), (64, 1024), (256, 2048)])
def test_ragged_lengths_have_the_mean(num_requests, mean):
    lengths = _ragged(num_requests, mean)
    assert sum(lengths) / num_requests == pytest.approx(mean, abs=1)
    assert (min(lengths), max(lengths)) == (max(mean // 8, 1), 2 * mean - mean // 8)


def test_a_peer_that_fails_is_left_out_with_a_line(capsys):
    case = _Case("attention, 3 requests, theirs", 1, 1, fails, is_peer=True)
    assert _measure_if_it_runs(case, CEILINGS) is None
    line = "minivllm-bench: attention, 3 requests, theirs fails: head_dim 20 is not supported\n"
    assert capsys.readouterr().err == line


def test_a_kernel_of_ours_that_fails_ends_the_run():
    with pytest.raises(RuntimeError, match="head_dim 20"):
        _measure_if_it_runs(_Case("attention, 3 requests", 1, 1, fails), CEILINGS)
