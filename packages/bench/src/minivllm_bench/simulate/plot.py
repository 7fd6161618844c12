"""The plot of a command's simulations: a curve over the swept setting, or the KV use of the only simulation."""

from collections.abc import Sequence

from minivllm_bench.simulate.line_chart import Line, line_chart
from minivllm_bench.simulate.results import SimulatedRun
from minivllm_scheduler.simulation import Distribution


def to_svg(runs: Sequence[SimulatedRun]) -> str:
    """An SVG document: TTFT over the swept values in order, or blocks in use over time without a sweep."""
    if runs[0].swept:
        return _ttft_curve(runs)
    report = runs[0].report
    line = Line("in use", [(use.time_s, float(use.in_use_blocks)) for use in report.kv_use])
    return line_chart(f"KV use, {report.num_blocks:,} blocks in the pool", "time, s", "blocks", [line])


def _ttft_curve(runs: Sequence[SimulatedRun]) -> str:
    (name,) = runs[0].swept
    found: list[tuple[int, Distribution]] = sorted(
        ((run.swept[name], run.report.ttft_s) for run in runs if run.report.ttft_s is not None),
        key=lambda entry: entry[0],
    )
    lines = [
        Line("p50", [(value, ttft.p50_s * 1000) for value, ttft in found]),
        Line("p95", [(value, ttft.p95_s * 1000) for value, ttft in found]),
        Line("p99", [(value, ttft.p99_s * 1000) for value, ttft in found]),
    ]
    return line_chart("Time to first token", name, "TTFT, ms", lines)
