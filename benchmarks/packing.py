"""The plan of 65,536 routed rows, and moving them there and back beside a copy.

    python benchmarks/moe.py build
    python benchmarks/packing.py run --json benchmarks/results/packing.json

Timed as ``memory_bound.py`` says. ``of_copy`` is the time of a copy that reads and writes as many bytes in all as the
kernel has to: each row of x and each weight once, what is written once, padding too. It reads half of them; of eight
choices packing reads a tenth, and memory takes longer to write: ``of_repeated`` is the time of PyTorch's copy of x to
as many rows in their order, which reads and writes what packing does. Packed rows are compared with those of the plan,
sums with float64.
"""

from __future__ import annotations

import argparse
from typing import Any

from harness import Timer, parser, relative_error
from moe_layer import Case, Layer, rows_of

CASES = (Case(8192, 128, 8, 2048, 768, 0.0), Case(65536, 128, 1, 2048, 768, 0.0))


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    rows_of(torch, args, CASES, lambda timer, case: measured(torch, timer, Layer(torch, case)))


def measured(torch: Any, timer: Timer, layer: Layer) -> dict[str, Any]:
    """Times of a plan, its kernels, and of rows there and back; and whether they are right."""
    case, steps = layer.case, layer.forward
    layer.ids.random_(case.experts)
    layer.weights.uniform_()
    plan = [steps[name] for name in ("count", "lay_out", "place")]
    layer.packed.fill_(float("nan"))
    for step in (*plan, steps["pack"]):
        step()
    held = layer.rows >= 0
    exact = torch.where(held[:, None], layer.x[layer.rows.clamp(min=0).long()], 0)
    moved = bool(torch.equal(layer.packed, exact)) and int(held.sum()) == layer.pairs
    layer.out.copy_(layer.packed)
    layer.y.fill_(float("nan"))
    steps["unpack"]()
    error = relative_error(layer.y, layer.x.double() * layer.weights.double().sum(1, keepdim=True))
    row, packed = case.width * 2, len(layer.rows)
    needed = {
        "pack": (case.tokens + packed) * row + packed * 4,
        "unpack": (case.tokens + layer.pairs) * row + layer.pairs * 8,
    }
    variants = {"plan": lambda: [step() for step in plan], **{n: steps[n] for n in ("count", "lay_out", "place")}}
    for name, count in needed.items():
        source = torch.randint(0, 127, (count // 2,), dtype=torch.int8, device="cuda")
        target = torch.empty_like(source)
        variants[name] = steps[name]
        variants[f"copy for {name}"] = lambda source=source, target=target: target.copy_(source)
    repeats = -(-packed // case.tokens)
    repeated = layer.x.new_empty(repeats, case.tokens, case.width)
    variants["repeated"] = lambda: repeated.copy_(layer.x.expand_as(repeated))
    variants["filled"] = lambda: layer.packed.zero_()
    times = timer.medians(variants)
    share = packed / (repeats * case.tokens)
    return {
        "case": f"{layer.pairs} rows of {case.tokens} tokens, {case.experts} experts, width {case.width}",
        "microseconds": {name: round(s * 1e6, 2) for name, s in times.items()},
        "of_copy": {name: round(times[f"copy for {name}"] / times[name], 3) for name in needed},
        "of_repeated": round(times["repeated"] * share / times["pack"], 3),
        "bytes": needed,
        "rows_as_planned": moved,
        "error": error,
    }


if __name__ == "__main__":
    asked = parser(__doc__, "cases whose names contain this")
    given = asked.parse_args()
    if given.what == "run":
        run(given)
    else:
        asked.error("moe.py builds what this runs")
