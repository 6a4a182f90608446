"""Pictures of the documents of runs: speed beside the peer for each shape, and the products and attention under a roof.

    python tools/speed_pictures.py                    # writes docs/speed_ratios.svg and docs/roofline.svg

Reads `product_choices_table*.json`, `attention_forward.json` and `attention_backward.json` of benchmarks/results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
DOCS = Path(__file__).parents[1] / "docs"
KINDS = {"table": "A B^T", "table_row_major": "A B", "table_batched": "batched", "table_e4m3": "e4m3"}
"""Documents of products, and what is written before their shapes."""
COLOURS = {"product": "#0969da", "attention": "#1a7f37", "gradients": "#9a6700"}
READ, TENSOR = 4.2, 989.0
"""TB/s that reading reaches, and the TFLOP/s in bf16 of NVIDIA's data sheet (H200)."""
WIDTH, LEFT, RIGHT, ROW, TOP = 760, 230, 20, 15, 40


@dataclass(frozen=True)
class Point:
    """A case: its ratio to the peer, and its TFLOP/s, the peer's, and operations a byte; None of a ratio alone."""

    name: str
    kind: str
    ratio: float
    speeds: tuple[float, float, float] | None = None


def points() -> Iterator[Point]:
    """Those of all documents that there are."""
    for kind, title in KINDS.items():
        for row in rows(f"product_choices_{kind}"):
            *batch, m, n, k = row["shape"]
            each, times = batch[0] if batch else 1, row["microseconds"]
            flops = 2.0 * each * m * n * k
            size = 1 if kind == "table_e4m3" else 2
            intensity = flops / (each * (size * (m * k + n * k) + 2 * m * n))
            own, theirs = (flops / times[name] * 1e-6 for name in ("chosen", "cublas"))
            speeds = None if kind == "table_e4m3" else (own, theirs, intensity)
            yield Point(f"{title} {'x'.join(map(str, row['shape']))}", "product", row["of_cublas"], speeds)
    for row in rows("attention_forward"):
        mask, shape = row["case"].removeprefix("attention ").rsplit(" ", 1)
        length = int(shape.split("x")[2])
        intensity = length / 2 * (0.5 if "causal" in mask else 1.0)
        yield Point(row["case"], "attention", row["of_peer"], (*row["tflops"].values(), intensity))
    for row in rows("attention_backward"):
        yield Point(f"gradients {row['case']}", "gradients", row["of_peer"])


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a document; none where it was not written."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text())["rows"] if file.exists() else []


# -- drawing ----------------------------------------------------------------------------------------------------------
def text(x: float, y: float, words: str, colour: str = "#666", anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "#ccc") -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def dot(x: float, y: float, colour: str, about: str, *, hollow: bool = False) -> str:
    fill = f'fill="none" stroke="{colour}"' if hollow else f'fill="{colour}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {fill}><title>{about}</title></circle>'


def picture(title: str, height: float, lines: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="10" role="img">'
    return "\n".join([head, f"<title>{title}</title>", *lines, "</svg>"]) + "\n"


def scale(low: float, high: float, first: float, last: float) -> Any:
    """A logarithmic axis from ``low`` at ``first`` to ``high`` at ``last``; what is beyond lies at its ends."""
    return lambda x: first + (last - first) * log(min(max(x, low), high) / low) / log(high / low)


def ratios(found: list[Point]) -> str:
    """A line a case: the peer's time over ours; right of 1 ours is faster."""
    across, bottom = scale(0.6, 1.5, LEFT, WIDTH - RIGHT), TOP + ROW * len(found)
    lines = list[str]()
    for mark in (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5):
        lines.append(line(across(mark), TOP - 8, across(mark), bottom, "#666" if mark == 1.0 else "#ccc"))
        lines.append(text(across(mark), TOP - 14, f"{mark:g}"))
    for i, point in enumerate(found):
        y, colour = TOP + ROW * (i + 0.5), COLOURS[point.kind]
        lines.append(text(LEFT - 10, y + 3, point.name, anchor="end"))
        lines.append(line(across(1.0), y, across(point.ratio), y, colour))
        lines.append(dot(across(point.ratio), y, colour, f"{point.name}: {point.ratio:.2f}"))
    lines.append(text(LEFT, 14, "time of the peer / ours; right of 1 ours is faster", anchor="start"))
    return picture("Speed beside cuBLAS and cuDNN, by shape", bottom + 8, lines)


def roofline(found: list[Point]) -> str:
    """TFLOP/s over operations a byte, ours filled, the peer's hollow, below what memory and tensor cores can do."""
    left, bottom = 60, 400
    across, up = scale(0.7, 4000, left, WIDTH - RIGHT), scale(2, 1200, bottom, TOP)
    lines = list[str]()
    for mark in (1, 10, 100, 1000):
        lines += [line(across(mark), TOP, across(mark), bottom), text(across(mark), bottom + 14, str(mark))]
    for mark in (2, 10, 100, 1000):
        lines += [line(left, up(mark), WIDTH - RIGHT, up(mark)), text(left - 6, up(mark) + 4, str(mark), anchor="end")]
    ridge = TENSOR / READ
    lines += [line(across(0.7), up(0.7 * READ), across(ridge), up(TENSOR), "#cf222e")]
    lines += [line(across(ridge), up(TENSOR), WIDTH - RIGHT, up(TENSOR), "#cf222e")]
    for point in found:
        if point.speeds is not None:
            own, theirs, intensity = point.speeds
            about = f"{point.name}: {own:.0f}, peer {theirs:.0f} TFLOP/s"
            lines.append(dot(across(intensity), up(theirs), COLOURS[point.kind], about, hollow=True))
            lines.append(dot(across(intensity), up(own), COLOURS[point.kind], about))
    lines.append(text(left, 14, "TFLOP/s in bf16; filled ours, hollow the peer", anchor="start"))
    lines += [text(left + 300 + 90 * i, 14, k, COLOURS[k], "start") for i, k in enumerate(("product", "attention"))]
    lines.append(text((left + WIDTH) / 2, bottom + 30, "operations a byte that must be moved"))
    lines.append(text(across(ridge) + 4, up(TENSOR) - 5, f"{TENSOR:g} TFLOP/s; {READ:g} TB/s read", "#cf222e", "start"))
    return picture("Products and attention under the roof of an H200", bottom + 40, lines)


def main() -> None:
    found = list(points())
    (DOCS / "speed_ratios.svg").write_text(ratios(found))
    (DOCS / "roofline.svg").write_text(roofline(found))


if __name__ == "__main__":
    main()
