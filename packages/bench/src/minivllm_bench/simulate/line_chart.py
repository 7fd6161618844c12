"""Line charts as SVG text: two linear axes, a legend, nothing else."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 50, 60
"""Margins around the plotted area, in pixels."""
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Okabe and Ito's, which colour-blind readers tell apart."""
NUM_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A labelled line through points (x, y), in order of x; without points only its label shows."""

    label: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, x_label: str, y_label: str, lines: Sequence[Line]) -> str:
    """An SVG document with at least one and at most four lines; both axes show their label and round ticks.

    The y axis starts at 0; no y may be negative.
    """
    xs = [x for line in lines for x, _ in line.points] or [0.0]
    x_ticks = _ticks(min(xs), max(xs))
    y_ticks = _ticks(0.0, max((y for line in lines for _, y in line.points), default=0.0))
    x_axis = _Axis(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    y_axis = _Axis(0.0, y_ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 22, title, size=15),
        *(_grid_x(x_axis.at(tick), f"{tick:,g}") for tick in x_ticks),
        *(_grid_y(y_axis.at(tick), f"{tick:,g}") for tick in y_ticks),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_label),
        _text(18, (TOP + HEIGHT - BOTTOM) / 2, y_label, turned=True),
    ]
    for number, line in enumerate(lines):
        points = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in line.points)
        colour = COLOURS[number]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(LEFT + 40 + 120 * number, 42, line.label, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    low_px: float
    high_px: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        span = self.high - self.low or 1.0
        return self.low_px + (value - self.low) / span * (self.high_px - self.low_px)


def _ticks(low: float, high: float) -> list[float]:
    """About `NUM_TICKS` multiples of 1, 2 or 5 times a power of ten; the last one is not below `high`."""
    span = high - low or abs(high) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / NUM_TICKS))
    step = next(m * magnitude for m in (1, 2, 5, 10, 20) if m * magnitude * NUM_TICKS >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _grid_x(x: float, label: str) -> str:
    line = f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>'
    return line + _text(x, HEIGHT - BOTTOM + 18, label)


def _grid_y(y: float, label: str) -> str:
    line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
    return line + _text(LEFT - 28, y + 4, label)


def _text(
    x: float, y: float, text: str, *, size: int = 12, colour: str = "#333", turned: bool = False
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size}" fill="{colour}"{turn}>'
        f"{escape(text)}</text>"
    )
