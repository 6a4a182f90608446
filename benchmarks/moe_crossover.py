"""When the first product of experts should gather its rows, and when they should be packed before: 60 cases of
``moe.py``'s layer both ways, and which of them ``ops.experts`` takes.

    python benchmarks/moe.py build
    python benchmarks/moe_crossover.py run --rounds 7 --json benchmarks/results/moe_crossover.json \
        --svg docs/moe_crossover.svg

Timed as ``memory_bound.py`` says, router to weighted sum. ``of_better`` is the time of the way taken over the shorter
one. Both ways give the same bits; four tokens are compared with float64.
"""

from __future__ import annotations

import argparse
from math import log
from pathlib import Path
from typing import Any

from harness import Timer, parser, relative_error
from moe_layer import Case, Layer, rows_of

TOKENS, SKEWS = (256, 1024, 4096, 16384), (0.0, 1.0, 2.0)
SHAPES = ((128, 8, 2048, 768), (64, 6, 2048, 1408), (32, 4, 2880, 2880), (16, 2, 4096, 8192), (8, 2, 4096, 14336))
"""Experts, choices, width, inner width."""
CASES = [Case(tokens, *shape, skew) for shape in SHAPES for tokens in TOKENS for skew in SKEWS]


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table, write JSON and draw."""
    import torch

    rows = rows_of(torch, args, CASES, lambda timer, case: measured(torch, timer, Layer(torch, case)))
    behind = [row["of_better"] for row in rows if row["of_better"] > 1.05]
    print(f"{len(rows)} cases, {len(behind)} more than 5 % behind the better way", behind, flush=True)
    if args.svg:
        Path(args.svg).write_text(picture(rows))


def measured(torch: Any, timer: Timer, layer: Layer) -> dict[str, Any]:
    found, ways = list[Any](), {n: layer.steps_of(gathers=n == "gathered") for n in ("gathered", "packed")}
    for steps in ways.values():
        layer.y.fill_(float("nan"))
        for step in steps:
            step()
        found.append(layer.y.clone())
    tokens = torch.randperm(layer.case.tokens, device="cuda")[:4]
    times = timer.medians({n: lambda s=steps: [step() for step in s] for n, steps in ways.items()})
    chosen = "gathered" if layer.gathers else "packed"
    return {
        "case": str(layer.case),
        "tokens": layer.case.tokens,
        "inner": layer.case.inner,
        "skew": layer.case.skew,
        "microseconds": {n: round(s * 1e6, 1) for n, s in times.items()},
        "taken": chosen,
        "of_better": round(times[chosen] / min(times.values()), 3),
        "same_bits": bool(torch.equal(*found)),
        "error": relative_error(found[0][tokens], layer.exact(tokens)),
    }


# -- picture ----------------------------------------------------------------------------------------------------------
WIDTH, HEIGHT, LEFT, TOP = 760, 320, 60, 40
LOW, HIGH = 0.9, 1.2
COLOURS = {256: "#cf222e", 1024: "#9a6700", 4096: "#1a7f37", 16384: "#0969da"}
"""By tokens."""
DASHES = {0.0: "", 1.0: "5 3", 2.0: "1 3"}
"""By skew."""


def picture(rows: list[dict[str, Any]]) -> str:
    """The time with packed rows over that with gathered ones, by inner width: above 1 gathering is faster."""
    inner = sorted({r["inner"] for r in rows})

    def across(n: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * log(n / inner[0]) / log(inner[-1] / inner[0])

    def down(ratio: float) -> float:
        return TOP + HEIGHT * (HIGH - min(max(ratio, LOW), HIGH)) / (HIGH - LOW)

    def text(x: float, y: float, words: str, colour: str = "#666", anchor: str = "middle") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'

    lines = list[str]()
    for ratio in (0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2):
        y = down(ratio)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>')
        lines.append(text(LEFT - 6, y + 4, f"{ratio:g}", anchor="end"))
    for tokens, colour in COLOURS.items():
        for skew, dashes in DASHES.items():
            own = sorted((r["inner"], r["microseconds"]) for r in rows if (r["tokens"], r["skew"]) == (tokens, skew))
            points = " ".join(f"{across(n):.1f},{down(us['packed'] / us['gathered']):.1f}" for n, us in own)
            stroke = f'stroke="{colour}" stroke-dasharray="{dashes}" stroke-width="1.5"'
            lines.append(f'<polyline points="{points}" fill="none" {stroke}/>')
    lines += [text(across(n), TOP + HEIGHT + 18, str(n)) for n in inner]
    lines.append(text((LEFT + WIDTH) / 2, TOP + HEIGHT + 36, "inner width of an expert"))
    lines += [text(LEFT + 110 * i, 14, f"{t} tokens", c, "start") for i, (t, c) in enumerate(COLOURS.items())]
    lines.append(text(LEFT, 30, "unbroken s = 0, dashed s = 1, dotted s = 2", anchor="start"))
    box = f"0 0 {WIDTH} {TOP + HEIGHT + 44}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-size="10" role="img">'
    title = "<title>Time of a layer with packed rows over that with gathered rows, by inner width</title>"
    return "\n".join([head, title, *lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    asked = parser(__doc__, "cases whose names contain this")
    asked.add_argument("--svg", default="", help="where a picture of the run goes")
    given = asked.parse_args()
    if given.what == "run":
        run(given)
    else:
        asked.error("moe.py builds what this runs")
