"""A roofline chart: measurements below the limits of memory bandwidth and tensor-core peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log10

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 360, 60, 40


@dataclass(frozen=True)
class RooflinePoint:
    """One measurement: ``intensity`` in flop per byte, ``tflops`` as timed; ``peer`` marks another library's kernel."""

    name: str
    intensity: float
    tflops: float
    peer: bool = False


@dataclass(frozen=True)
class Roofs:
    """``bandwidth`` of the memory in TB/s and ``peak`` of the arithmetic in TFLOP/s."""

    bandwidth: float
    peak: float

    def at(self, intensity: float) -> float:
        """The most TFLOP/s that this many flops a byte allow."""
        return min(self.peak, self.bandwidth * intensity)


def roofline_picture(points: Sequence[RooflinePoint], roofs: Roofs) -> str:
    """Both axes logarithmic; a full circle is ours, an empty one a peer's. The lines are the two roofs."""
    assert points
    low = min(p.intensity for p in points) / 1.5
    high = max(p.intensity for p in points) * 1.5
    floor = min(p.tflops for p in points) / 2
    ceiling = roofs.peak * 1.5

    def x(intensity: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * (log10(intensity) - log10(low)) / (log10(high) - log10(low))

    def y(tflops: float) -> float:
        return (HEIGHT - BOTTOM) * (1 - (log10(tflops) - log10(floor)) / (log10(ceiling) - log10(floor)))

    ridge = min(max(roofs.peak / roofs.bandwidth, low), high)
    corners = [(i, roofs.at(i)) for i in (max(low, floor / roofs.bandwidth), ridge, high)]
    path = " ".join(f"{x(i):.1f},{y(t):.1f}" for i, t in corners)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-size="11" role="img">',
            f"<title>{len(points)} measurements under {roofs.bandwidth:g} TB/s and {roofs.peak:g} TFLOP/s</title>",
            *(f'<text x="{LEFT - 8}" y="{y(t) + 4:.1f}" text-anchor="end" fill="#888">{t:g}</text>'
              for t in _decades(floor, ceiling)),
            *(f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="#888">{i:g}</text>'
              for i in _decades(low, high)),
            f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle" fill="#888">flop a byte</text>',
            '<text x="4" y="12" fill="#888">TFLOP/s</text>',
            f'<polyline points="{path}" fill="none" stroke="#888" stroke-width="1.5"/>',
            *(_circle(p, x(p.intensity), y(p.tflops)) for p in points),
            "</svg>",
        ]
    )  # fmt: skip


def _circle(point: RooflinePoint, x: float, y: float) -> str:
    fill = "none" if point.peer else "#1c7ed6"
    title = f"<title>{escape(point.name)}: {point.tflops:g} TFLOP/s at {point.intensity:.0f} flop a byte</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="#1c7ed6">{title}</circle>'


def _decades(low: float, high: float) -> Iterator[float]:
    """1, 2 and 5 times powers of ten in between."""
    for exponent in range(-3, 6):
        for digit in (1, 2, 5):
            value = digit * 10.0**exponent
            if low <= value <= high:
                yield value
