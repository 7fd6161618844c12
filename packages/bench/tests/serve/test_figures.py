import dataclasses

import pytest

from minivllm_bench.serve.client import ShareReport
from minivllm_bench.serve.figures import Percentiles, summarize
from minivllm_bench.serve.streamed_answer import RequestRecord


def report(*records, cpu_s=0.5, wall_s=1.0):
    return ShareReport(records, cpu_s, wall_s)


GOOD = RequestRecord(10.0, (10.1, 10.2, 10.5), 10.6, 4)
LATE = RequestRecord(10.5, (11.5, 11.5), 12.0, 2)
BAD = RequestRecord(10.2, (10.3,), 10.4, 0, "status 503")


def test_figures_of_one_repeat():
    figures = summarize("x", "2 streams", [[report(GOOD), report(LATE, BAD, cpu_s=0.1)]])
    assert (figures.server, figures.load, figures.num_requests) == ("x", "2 streams", 3)
    assert figures.errors == {"status 503": 1}
    assert figures.output_tokens_per_s == pytest.approx(6 / 2)
    assert figures.requests_per_s == pytest.approx(2 / 2)
    assert figures.spread == 0
    assert figures.ttft.p50_ms == pytest.approx((100 + 1000) / 2)
    assert figures.tpot.p50_ms == pytest.approx(400 / 3 / 2)
    assert figures.itl.p50_ms == pytest.approx(100)
    assert figures.latency.p50_ms == pytest.approx((600 + 1500) / 2)
    assert figures.client_cpu_share == 0.5
    assert figures.client_us_per_chunk == pytest.approx(0.6e6 / 6)


def test_rates_are_medians_over_repeats_with_their_spread():
    def repeat(seconds):
        return [report(RequestRecord(0.0, (seconds,), seconds, 12))]

    figures = summarize("x", "1 stream", [repeat(1.0), repeat(2.0), repeat(4.0)])
    assert figures.output_tokens_per_s == 6
    assert figures.requests_per_s == 0.5
    assert figures.spread == pytest.approx((12 - 3) / 6)


def test_without_a_whole_answer_there_are_no_latencies():
    figures = summarize("x", "1 stream", [[report(BAD)]])
    assert (figures.ttft, figures.tpot, figures.itl, figures.latency) == (None,) * 4
    assert (figures.output_tokens_per_s, figures.spread) == (0, 0)


def test_percentiles_are_milliseconds_of_the_sorted_values():
    values = [i / 1000 for i in range(101, 0, -1)]
    assert dataclasses.astuple(Percentiles.of_seconds(values)) == pytest.approx((51, 96, 100))
    assert Percentiles.of_seconds([0.25]) == Percentiles(250, 250, 250)
