"""What a server says of itself at `GET /metrics`: Prometheus' text format, each name summed over its labels.

Source: Prometheus, "Exposition formats".
"""

import re
from collections.abc import Mapping
from typing import Final

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)")
PREFIX: Final = "minivllm:"
GAUGES_AT_REST: Final = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
"""Zero when no request is open."""
COUNTED: Final = (
    "num_preemptions_total",
    "prefix_cache_hits_total",
    "generation_tokens_total",
    "engine_steps_total",
)
"""Shown in a report: what the soak made the engine do."""


def parse_metrics(text: str) -> dict[str, float]:
    """Values by name; samples of one name are added up. Histogram buckets are left out."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match and not match[1].endswith("_bucket"):
            values[match[1]] = values.get(match[1], 0.0) + float(match[2])
    return values


def not_at_rest(values: Mapping[str, float]) -> dict[str, float]:
    """The gauges that are not zero, and NaN for those that are missing; empty at rest."""
    gauges = {name: values.get(PREFIX + name, float("nan")) for name in GAUGES_AT_REST}
    return {name: value for name, value in gauges.items() if value != 0}


def fallen(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """The counters that went down or away, which none may while a server runs."""
    return [
        name
        for name, value in before.items()
        if name.endswith(("_total", "_count")) and after.get(name, -1.0) < value
    ]
