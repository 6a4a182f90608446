"""Products of groups of rows beside PyTorch's grouped_mm, a loop of cuBLAS calls and one dense product, on one GPU.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/grouped.py build
    python benchmarks/grouped.py run --json benchmarks/results/grouped.json

Timed as ``memory_bound.py`` says, in bf16; every result is compared with float64 of the same rows. The dense product
has as many rows, and one weight.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import Timer, document, load, parser, relative_error, store, write

NAME = "grouped_matmul"


@dataclass(frozen=True)
class Case:
    """Rows dealt to groups: evenly, or by a power law; products with a weight of (n, k) for each."""

    rows: int
    groups: int
    n: int
    k: int
    skewed: bool = False

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.groups} groups{' (skewed)' * self.skewed}, {self.n}x{self.k}"

    def offsets(self) -> list[int]:
        """Where groups begin and end; a group of the skewed ones has about 1 / rank of the first one's rows."""
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
    Case(16384, 128, 1536, 2048, skewed=True),
    Case(1024, 128, 1536, 2048),
    Case(64, 8, 14336, 4096),
)


def build() -> None:
    """Compile for aligned rows, all cases together."""
    import grouped_matmul

    dtypes = {"offsets": "i32", "a": "bf16", "b": "bf16", "c": "bf16"}
    artifact, seconds = store(NAME, grouped_matmul.grouped_matmul.compile, dtypes=dtypes)
    print(f"{seconds:.2f} s, {len(artifact.kernels)} kernels")


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
        }
        variants["ours"]()
        torch.cuda.synchronize()
        got, theirs = c.clone(), variants["grouped_mm"]()
        error = max(relative_error(got[p], a[p].double() @ b[g].double().t()) for g, p in parts)
        reference = max(relative_error(theirs[p], a[p].double() @ b[g].double().t()) for g, p in parts)
        seconds = timer.medians(variants)
        flops = 2 * case.rows * case.n * case.k
        row = {
            "case": str(case),
            "microseconds": {name: round(s * 1e6, 2) for name, s in seconds.items()},
            "tflops": round(flops / seconds["ours"] * 1e-12, 1),
            "of_grouped_mm": round(seconds["grouped_mm"] / seconds["ours"], 3),
            "of_dense": round(seconds["dense"] / seconds["ours"], 3),
            "weights_gb_per_s": round(b.numel() * 2 / seconds["ours"] * 1e-9, 1),
            "error": error,
            "grouped_mm_error": reference,
        }
        rows.append(row)
        print(str(case), json.dumps(row["microseconds"]), f"{row['tflops']} TFLOP/s, {row['of_grouped_mm']} of "
              f"grouped_mm, {row['of_dense']} of dense, error {error:.1e} / {reference:.1e}", flush=True)  # fmt: skip
        del a, b, c, got, theirs, variants
        torch.cuda.empty_cache()
    write(document(torch, **timer.conditions(), rows=rows), args.json)


if __name__ == "__main__":
    given = parser(__doc__, "cases whose names contain this").parse_args()
    build() if given.what == "build" else run(given)
