"""The plot of a command's simulations: a curve over the swept setting, or the KV use of the only simulation.

Drawn by matplotlib, which only a plot needs: the extra `minivllm-bench[plot]`.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from minivllm_bench.errors import InvalidSetting, MissingExtra
from minivllm_bench.simulate.results import SimulatedRun, Swept
from minivllm_scheduler.simulation import Distribution, SimulationReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = (".png", ".svg")
_Value = Callable[[SimulationReport], float | None]


class Metric(NamedTuple):
    """What a curve can show.

    Attributes:
        label: Of the axis, with the unit.
        value: Its value in a report; None if no request has it.
    """

    label: str
    value: _Value


def _percentile(field: str, percentile: str) -> _Value:
    def value(report: SimulationReport) -> float | None:
        distribution: Distribution | None = getattr(report, f"{field}_s")
        return None if distribution is None else float(getattr(distribution, f"{percentile}_s")) * 1000

    return value


METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        f"{field}-{percentile}": Metric(f"{label} {percentile}, ms", _percentile(field, percentile))
        for field, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("queue", "queue"), ("latency", "latency"))
        for percentile in ("p50", "p95", "p99")
    }
    | {
        "output-tokens-per-s": Metric("output tokens/s", lambda report: report.output_tokens_per_s),
        "recomputed-tokens": Metric("recomputed tokens", lambda report: report.num_recomputed_tokens),
        "discarded-tokens": Metric("discarded tokens", lambda report: report.num_discarded_tokens),
        "preemptions": Metric("preemptions", lambda report: report.num_preemptions),
    }
)
_DEFAULT_CURVES: Final = ("ttft-p50", "ttft-p95", "ttft-p99")
_DEFAULT_OF_TWO_SWEEPS: Final = "ttft-p99"


def check_plot(path: Path, metric: str | None) -> None:
    """Finds out before the work that it can be drawn.

    Raises:
        InvalidSetting: There is no such format or metric.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise InvalidSetting(f"--plot is {path.name}, it must end in {' or '.join(FORMATS)}")
    if metric is not None and metric not in METRICS:
        raise InvalidSetting(f"--plot-metric is {metric!r}, it must be one of {', '.join(METRICS)}")
    if find_spec("matplotlib") is None:
        raise MissingExtra("--plot needs matplotlib: install minivllm-bench[plot]")


def write_plot(runs: Sequence[SimulatedRun], metric: str | None, path: Path) -> None:
    """Writes the plot in the format of the file's name; the same runs give the same bytes."""
    import matplotlib as mpl

    # Else an SVG holds the date, the library's address and random ids.
    metadata = {"Date": None, "Creator": None} if path.suffix.lower() == ".svg" else None
    with mpl.rc_context({"svg.hashsalt": "minivllm", "svg.fonttype": "none"}):
        draw(runs, metric).savefig(path, metadata=metadata)


def draw(runs: Sequence[SimulatedRun], metric: str | None = None) -> "Figure":
    """KV use over time without a sweep; else a curve over the values of the first one.

    Args:
        runs: Of one command.
        metric: Of the curve, with a line per value of the second sweep if there is one. None is the TTFT: three
            percentiles of it, or the 99th with two sweeps.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.grid(visible=True, color="#dddddd")
    if runs[0].swept:
        _draw_curves(axes, runs, metric)
    else:
        _draw_kv_use(axes, runs[0].report)
    axes.set_ylim(bottom=0)
    return figure


def _draw_kv_use(axes: "Axes", report: SimulationReport) -> None:
    axes.step(
        [use.time_s for use in report.kv_use], [use.in_use_blocks for use in report.kv_use], where="post"
    )
    axes.set(xlabel="time, s", ylabel="blocks in use", title=f"KV use of {report.num_blocks:,} blocks")


def _draw_curves(axes: "Axes", runs: Sequence[SimulatedRun], metric: str | None) -> None:
    first, *second = runs[0].swept
    if metric is None and not second:
        curves = [(METRICS[name], METRICS[name].label, runs) for name in _DEFAULT_CURVES]
        axes.set_ylabel("ms")
    else:
        shown = METRICS[metric or _DEFAULT_OF_TWO_SWEEPS]
        axes.set_ylabel(shown.label)
        groups: dict[str, list[SimulatedRun]] = {}
        for run in runs:
            groups.setdefault(" ".join(f"{name} {run.swept[name]}" for name in second), []).append(run)
        curves = [(shown, label, group) for label, group in groups.items()]
    for (_, value), label, group in curves:
        points = _points(group, first, value)
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label or None)
    axes.set_xlabel(first)
    if len(curves) > 1:
        axes.legend()


def _points(runs: Sequence[SimulatedRun], name: str, value: _Value) -> list[tuple[Swept, float]]:
    """What the runs have of a metric, over a swept setting; numbers in order, words as they were given."""
    found = [(run.swept[name], y) for run in runs if (y := value(run.report)) is not None]
    return found if any(isinstance(x, str) for x, _ in found) else sorted(found)
