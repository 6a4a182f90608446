"""Linear layers with what follows them by torch.compile, and by the one operator that ``inductor.options`` puts there.

    python benchmarks/epilogues.py run --json benchmarks/results/epilogues.json

bf16, no gradients, graphs of any sizes. The times tell where the operator pays (``inductor.pays``). Timed as
``memory_bound.py`` says; errors are those of a norm against float64. ``build`` compiles, no more.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Timer, document, parser, relative_error, write

os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

ROWS = (64, 512, 2048, 8192)
SIZES = ((4096, 4096), (14336, 4096), (4096, 14336))
"""Columns and inner width."""
EPILOGUES = (
    ("plain residual", False, "none", True),
    ("biased residual", True, "none", True),
    ("plain silu", False, "silu", False),
    ("biased relu", True, "relu", False),
    ("biased gelu", True, "gelu", False),
    ("biased tanh gelu", True, "gelu_tanh", False),
    ("residual behind gelu", True, "gelu", True),
    ("residual behind silu", True, "silu", True),
)
"""Name, bias, activation, residual."""


def by_pytorch(torch: Any, activation: str) -> Callable[..., Any]:
    """A linear layer and what follows it, as a model has it."""
    f = torch.nn.functional
    functions = {"none": lambda z: z, "relu": f.relu, "silu": f.silu, "gelu": f.gelu}
    functions["gelu_tanh"] = lambda z: f.gelu(z, approximate="tanh")

    def run(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        z = functions[activation](f.linear(x, w, bias))
        return z if residual is None else residual + z

    return run


def run(args: argparse.Namespace, torch: Any) -> None:
    """Check and time every case; print a table and write JSON."""
    from tilewright import ops

    torch.manual_seed(0)
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()

    def made(*of: int) -> Any:
        return torch.randn(of, device="cuda").bfloat16()

    for name, bias, activation, residual in EPILOGUES:
        if args.only not in name:
            continue
        torch._dynamo.reset()
        plain = by_pytorch(torch, activation)
        ways = {
            "compile": torch.compile(plain, dynamic=True),
            "ours": lambda x, w, b, r, a=activation: ops.linear(x, w, b, activation=a, residual=r),
        }
        for (columns, inner), count in itertools.product(SIZES, ROWS):
            given = made(count, inner), made(columns, inner) * inner**-0.5, made(columns), made(count, columns)
            x, w, b, r = given[0], given[1], given[2] if bias else None, given[3] if residual else None
            exact = plain(*(None if t is None else t.double() for t in (x, w, b, r)))
            calls = {n: torch.no_grad()(partial(f, x, w, b, r)) for n, f in ways.items()}
            errors = {n: relative_error(call(), exact) for n, call in calls.items()}
            if args.what == "build":
                continue
            us = {n: s * 1e6 for n, s in timer.medians(calls).items()}
            rows.append({
                "case": f"{name} {count}x{columns}x{inner}",
                "microseconds": {n: round(t, 1) for n, t in us.items()},
                "of_compile": round(us["compile"] / us["ours"], 3),
                "errors": errors,
            })  # fmt: skip
            print(rows[-1], flush=True)
        write(document(torch, **timer.conditions(), rows=rows), args.json, row_lines=True)


if __name__ == "__main__":
    given = parser(__doc__, "cases whose name contains this").parse_args()
    import torch

    run(given, torch)
