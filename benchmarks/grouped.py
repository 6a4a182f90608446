"""Products of groups of rows beside PyTorch's grouped_mm, a loop of cuBLAS calls and one dense product, on one GPU.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/grouped.py build
    python benchmarks/grouped.py run --json benchmarks/results/grouped.json

Timed as ``memory_bound.py`` says, in bf16; every result is compared with float64 of the same rows. The dense product
has as many rows, and one weight. ``rows of 8 bits`` and ``blocks of 8 bits`` are products of e4m3 with a scale for each
row of both operands, and for each 128 elements of a row and each 128 x 128 of a weight. ``read`` is PyTorch's sum over
the weights, as float32. The gradients of weights are products along the rows of each group.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from harness import Timer, document, load, parser, relative_error, store, write

NAME, DENSE, WEIGHTS = "grouped_matmul", "grouped_dense", "grouped_weight_gradient"


@dataclass(frozen=True)
class Case:
    """Rows dealt to groups: evenly, by a power law, or each by chance; products with a weight of (n, k) for each."""

    rows: int
    groups: int
    n: int
    k: int
    skewed: bool = False
    drawn: bool = False

    def __str__(self) -> str:
        how = " (skewed)" * self.skewed + " (drawn)" * self.drawn
        return f"{self.rows} rows, {self.groups} groups{how}, {self.n}x{self.k}"

    def offsets(self) -> list[int]:
        """Where groups begin and end. A skewed one has about 1 / rank of the rows of the first. Of those that
        are drawn each row's group is any."""
        if self.drawn:
            dealt = random.Random(1).choices(range(self.groups), k=self.rows)
            return [0, *accumulate(map(Counter(dealt).__getitem__, range(self.groups)))]
        shares = [1 / (g + 1) if self.skewed else 1.0 for g in range(self.groups)]
        total, found, sum_ = sum(shares), [0], 0.0
        for share in shares:
            sum_ += share
            found.append(round(self.rows * sum_ / total))
        return found


CASES = (
    Case(8192, 8, 4096, 14336),
    Case(8192, 8, 14336, 4096),
    Case(8192, 8, 14336, 4096, skewed=True),
    Case(8192, 64, 2048, 4096),
    Case(8192, 64, 2048, 4096, drawn=True),
    Case(16384, 128, 1536, 2048, skewed=True),
    Case(32768, 128, 1536, 2048, drawn=True),
    Case(1024, 128, 1536, 2048),
    Case(1024, 64, 2048, 7168),
    Case(64, 8, 14336, 4096),
)
ALONG_ROWS = (
    Case(8192, 8, 4096, 4096),
    Case(8192, 8, 4096, 4096, skewed=True),
    Case(65536, 8, 4096, 2048),
    Case(8192, 32, 2048, 4096),
    Case(8192, 64, 2048, 2048, skewed=True),
    Case(16384, 128, 1536, 2048),
)

SCALED = {"rows of 8 bits": "scaled_rows", "blocks of 8 bits": "scaled_blocks"}
"""Kernels of operands of 8 bits."""


def build(only: str) -> None:
    """Compile for aligned rows, all cases together."""
    import grouped_matmul
    import matmul

    from tilewright.ops import kernels

    dense = {"a": "bf16", "b": "bf16", "c": "bf16"}
    types = {"offsets": "i32", **dense}
    eight = types | {"a": "e4m3", "b": "e4m3", "a_scale": "f32", "b_scale": "f32"}
    wanted = {NAME: (grouped_matmul.grouped_matmul, types), DENSE: (matmul.matmul, dense)}
    wanted |= {name: (getattr(grouped_matmul, name), eight) for name in SCALED.values()}
    wanted[WEIGHTS] = kernels.grouped_weight_gradient, {"offsets": "i32", "y": "bf16", "x": "bf16", "dw": "bf16"}
    for name, (kernel, dtypes) in wanted.items():
        if only not in name:
            continue
        artifact, seconds = store(name, kernel.compile, dtypes=dtypes)
        print(f"{name}: {seconds:.2f} s, {len(artifact.kernels)} kernels", flush=True)


def scaled(torch: Any, case: Case, given: tuple[Any, Any, Any, Any], parts: Any) -> tuple[dict[str, Any], float]:
    """Products of 8 bits by name, each compared with float64, and the greatest error."""
    offsets, a, b, c = given
    a8, b8 = (x.to(torch.float8_e4m3fn) for x in (a, b))
    blocks = case.k // 128
    found, errors = dict[str, Any](), list[float]()
    for label, name in SCALED.items():
        shapes = (
            ((case.rows,), b.shape[:2])
            if name == "scaled_rows"
            else ((case.rows, blocks), (case.groups, case.n // 128, blocks))
        )
        of_a, of_b = (torch.rand(shape, device="cuda") + 0.5 for shape in shapes)
        program = load(name)
        found[label] = lambda v=(offsets, a8, of_a, b8, of_b, c), p=program: p.launch(v)
        c.fill_(float("nan"))
        found[label]()
        torch.cuda.synchronize()
        for g, part in parts:
            x, w, s, z = a8[part].double(), b8[g].double(), of_a[part].double(), of_b[g].double()
            if name == "scaled_rows":
                x, w = x * s[:, None], w * z[:, None]
            else:
                x = x * s.repeat_interleave(128, 1)
                w = w * z.repeat_interleave(128, 0).repeat_interleave(128, 1)
            errors.append(relative_error(c[part], x @ w.t()))
    return found, max(errors)


def launches(torch: Any, timer: Timer) -> list[dict[str, Any]]:
    """What a launch over offsets costs beside a dense one of ours: 128 rows of 64 elements to 128 columns, in one of
    the many programs that a grid over so many groups has."""
    dense, program = load(DENSE), load(NAME)
    a, c = (torch.randn(128, k, device="cuda").bfloat16() for k in (64, 128))
    found = list[dict[str, Any]]()
    for groups in (1, 64, 256, 1024):
        b = torch.randn(groups, 128, 64, device="cuda").bfloat16()
        offsets = torch.zeros(groups + 1, dtype=torch.int32, device="cuda")
        offsets[-1] = 128
        variants = {
            "grouped": lambda v=(offsets, a, b, c): program.launch(v),
            "dense": lambda v=(a, b[-1], c): dense.launch(v),
        }
        us = {name: round(s * 1e6, 2) for name, s in timer.medians(variants).items()}
        found.append({"groups": groups, "microseconds": us})
        print(f"a launch of {groups} groups:", us, flush=True)
    return found


def along_rows(torch: Any, timer: Timer) -> list[dict[str, Any]]:
    """Gradients of weights, dw[g] = y^T x over the rows of group g, beside PyTorch's two ways."""
    program, found = load(WEIGHTS), list[dict[str, Any]]()
    for case in ALONG_ROWS:
        bounds = case.offsets()
        offsets = torch.tensor(bounds, dtype=torch.int32, device="cuda")
        y, x = (torch.randn(case.rows, width, device="cuda").bfloat16() for width in (case.n, case.k))
        dw = torch.full((case.groups, case.n, case.k), float("nan"), device="cuda", dtype=torch.bfloat16)
        parts = [*enumerate(pairwise(bounds))]

        def loop(y: Any = y, x: Any = x, dw: Any = dw, parts: Any = parts) -> None:
            for g, (i, j) in parts:
                torch.mm(y[i:j].t(), x[i:j], out=dw[g])

        variants = {
            "ours": lambda v=(offsets, y, x, dw): program.launch(v),
            "grouped_mm": lambda y=y, x=x, o=offsets[1:]: torch._grouped_mm(y.t(), x, offs=o),
            "loop": loop,
        }
        variants["ours"]()
        error = max(relative_error(dw[g], y[i:j].double().t() @ x[i:j].double()) for g, (i, j) in parts)
        us = {name: round(s * 1e6, 2) for name, s in timer.medians(variants).items()}
        best = round(min(us["grouped_mm"], us["loop"]) / us["ours"], 3)
        found.append({"case": str(case), "microseconds": us, "of_best": best, "error": error})
        print("along rows:", case, us, f"{best} of the best, error {error:.1e}", flush=True)
        del y, x, dw, variants
    return found


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    program = load(NAME)
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        if args.only not in str(case):
            continue
        bounds = case.offsets()
        torch.manual_seed(0)
        offsets = torch.tensor(bounds, dtype=torch.int32, device="cuda")
        a = torch.randn(case.rows, case.k, device="cuda").bfloat16()
        b = torch.randn(case.groups, case.n, case.k, device="cuda").bfloat16()
        c = torch.full((case.rows, case.n), float("nan"), device="cuda", dtype=torch.bfloat16)
        parts = [(g, slice(bounds[g], bounds[g + 1])) for g in range(case.groups) if bounds[g] < bounds[g + 1]]

        def loop(a: Any = a, b: Any = b, c: Any = c, parts: Any = parts) -> None:
            for g, part in parts:
                torch.mm(a[part], b[g].t(), out=c[part])

        variants: dict[str, Callable[[], object]] = {
            "ours": lambda v=(offsets, a, b, c): program.launch(v),
            "grouped_mm": lambda a=a, b=b, o=offsets[1:]: torch._grouped_mm(a, b.transpose(1, 2), offs=o),
            "loop": loop,
            "dense": lambda a=a, b=b[0], c=c: torch.mm(a, b.t(), out=c),
            "read": lambda b=b: b.view(torch.float32).sum(),
        }
        variants["ours"]()
        torch.cuda.synchronize()
        got, theirs = c.clone(), variants["grouped_mm"]()
        error = max(relative_error(got[p], a[p].double() @ b[g].double().t()) for g, p in parts)
        reference = max(relative_error(theirs[p], a[p].double() @ b[g].double().t()) for g, p in parts)
        eight, eight_error = (
            scaled(torch, case, (offsets, a, b, c), parts) if case.rows >= 128 * case.groups else ({}, 0.0)
        )
        seconds = timer.medians(variants | eight)
        flops = 2 * case.rows * case.n * case.k
        row = {
            "case": str(case),
            "microseconds": {name: round(s * 1e6, 2) for name, s in seconds.items()},
            "tflops": round(flops / seconds["ours"] * 1e-12, 1),
            "of_grouped_mm": round(seconds["grouped_mm"] / seconds["ours"], 3),
            "of_dense": round(seconds["dense"] / seconds["ours"], 3),
            "weights_gb_per_s": round(b.numel() * 2 / seconds["ours"] * 1e-9, 1),
            "of_bf16": {name: round(seconds["ours"] / seconds[name], 3) for name in eight},
            "error": error,
            "error_of_8_bits": eight_error,
            "grouped_mm_error": reference,
        }
        rows.append(row)
        print(str(case), json.dumps(row["microseconds"]), f"{row['tflops']} TFLOP/s, {row['of_grouped_mm']} of "
              f"grouped_mm, {row['of_dense']} of dense, error {error:.1e} / {reference:.1e}; 8 bits of bf16 "
              f"{row['of_bf16']}, error {eight_error:.1e}", flush=True)  # fmt: skip
        del a, b, c, got, theirs, variants
        torch.cuda.empty_cache()
    others = {"along_rows": along_rows(torch, timer), "launches": launches(torch, timer)}
    write(document(torch, **timer.conditions(), rows=rows, **others), args.json)


if __name__ == "__main__":
    given = parser(__doc__, "cases whose names contain this").parse_args()
    build(given.only) if given.what == "build" else run(given)
