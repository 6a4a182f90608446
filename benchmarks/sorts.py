"""Sorts and selections beside PyTorch eager and a copy of the bytes, on one GPU.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/sorts.py build
    python benchmarks/sorts.py run --json benchmarks/results/sorts.json

Timed as ``memory_bound.py`` says; values are PyTorch's to the bit, and places lead to them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import Timer, document, load, parser, store, write


@dataclass(frozen=True)
class Case:
    """A kernel of ``examples/topk.py`` on rows of one length."""

    kernel: str
    rows: int
    length: int
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.kernel}_{self.rows}x{self.length}_{self.dtype}"

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Of the operand, the values and their places."""
        whole = (self.rows, self.length)
        names = ("x", "values", "places") if self.kernel == "topk" else ("x", "y", "order")
        return dict(zip(names, (whole, *((self.rows, 8) if self.kernel == "topk" else whole,) * 2), strict=True))

    @property
    def moved(self) -> int:
        """Bytes that have to be read and written."""
        size = 2 if self.dtype == "bf16" else 4
        first, result, _ = (rows * length for rows, length in self.shapes.values())
        return first * size + result * (size + 4)


CASES = (
    Case("topk", 16384, 256, "f32"),
    Case("topk", 16384, 256, "bf16"),
    Case("topk", 65536, 64, "f32"),
    Case("sort_rows", 4096, 1024, "f32"),
    Case("sort_rows", 16384, 128, "bf16"),
)


def build(only: str) -> None:
    """Compile every case to an artifact."""
    import topk as examples

    from tilewright.base.dtypes import DTYPES
    from tilewright.compiler.requests import Observed, observe_facts

    for case in CASES:
        if only not in case.name:
            continue
        dtypes = dict(zip(case.shapes, (case.dtype, case.dtype, "i32"), strict=True))
        seen = {n: Observed(DTYPES[dtypes[n]], 0, s, (s[1], 1)) for n, s in case.shapes.items()}
        kernel = getattr(examples, case.kernel)
        options = {"most": case.length, "dtypes": dtypes, "facts": observe_facts(seen)}
        artifact, seconds = store(case.name, kernel.compile, **options)
        print(f"{case.name}: {seconds:.2f} s, {len(artifact.kernels)} kernels")


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32}
    references: dict[str, Callable[[Any], Any]] = {
        "topk": lambda x: torch.topk(x, 8),
        "sort_rows": lambda x: torch.sort(x, stable=True),
    }
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        program = load(case.name)
        if args.only not in case.name or program is None:
            continue
        torch.manual_seed(0)
        shape, result, _ = case.shapes.values()
        x = torch.randn(shape, device="cuda").to(dtypes[case.dtype])
        y, at = torch.empty(result, device="cuda", dtype=x.dtype), torch.empty(result, device="cuda", dtype=torch.int32)
        reference, values = references[case.kernel], (x, y, at)
        program.launch(values)
        wanted = reference(x)[0]
        assert torch.equal(y, wanted), case.name
        assert torch.equal(x.gather(1, at.long()), wanted), case.name
        a = torch.randint(0, 127, (case.moved // 2,), dtype=torch.int8, device="cuda")
        b = torch.empty_like(a)
        seconds = timer.medians(
            {
                "ours": lambda v=values, p=program: p.launch(v),
                "eager": lambda r=reference, x=x: r(x),
                "copy": lambda a=a, b=b: b.copy_(a),
            }
        )
        row = {"case": case.name, "microseconds": {k: round(s * 1e6, 2) for k, s in seconds.items()}}
        rows.append(row | {"times_eager": round(seconds["eager"] / seconds["ours"], 2)})
        print(json.dumps(rows[-1]), flush=True)
    write(document(torch, **timer.conditions(), rows=rows), args.json)


if __name__ == "__main__":
    given = parser(__doc__, "cases whose names contain this").parse_args()
    build(given.only) if given.what == "build" else run(given)
