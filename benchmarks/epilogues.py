"""Linear layers with what follows them: graphs of torch.compile, and the same with ``inductor.options``.

    python benchmarks/epilogues.py run --json benchmarks/results/epilogues.json

Every product is replaced here, so that the times tell where that pays (``inductor.pays``). bf16, no gradients; rows are
dynamic. Timed as ``memory_bound.py`` says; errors are those of a norm against float64. ``build`` compiles, no more.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from harness import Timer, document, parser, relative_error, write

os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

ROWS = (64, 512, 2048, 8192)
SIZES = ((4096, 4096), (14336, 4096), (4096, 14336), (4100, 4100))
"""Columns and inner width."""
EPILOGUES = (
    ("residual", False, "none", True),
    ("bias, residual", True, "none", True),
    ("silu", False, "silu", False),
    ("bias, relu", True, "relu", False),
    ("bias, gelu", True, "gelu", False),
    ("bias, tanh gelu", True, "gelu_tanh", False),
    ("bias, gelu, residual", True, "gelu", True),
    ("bias, silu, residual", True, "silu", True),
)
"""Name, bias, activation, residual."""


def followed(torch: Any, w: Any, bias: Any, activation: str, residual: bool) -> Callable[[Any, Any], Any]:
    """A linear layer and what follows it, as a model has it."""
    f = torch.nn.functional
    functions = {"none": lambda z: z, "relu": f.relu, "silu": f.silu, "gelu": f.gelu}
    functions["gelu_tanh"] = lambda z: f.gelu(z, approximate="tanh")

    def run(x: Any, r: Any) -> Any:
        z = functions[activation](f.linear(x, w, bias))
        return r + z if residual else z

    return run


def run(args: argparse.Namespace, torch: Any) -> None:
    """Check and time every case; print a table and write JSON."""
    from tilewright.ops import inductor

    torch.manual_seed(0)
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()

    def made(*of: int) -> Any:
        return torch.randn(of, device="cuda").bfloat16()

    for columns, inner in SIZES:
        w, b = made(columns, inner) * inner**-0.5, made(columns)
        for name, bias, activation, residual in EPILOGUES:
            case = f"{name} {columns}x{inner}"
            if args.only not in case:
                continue
            torch._dynamo.reset()
            plain = followed(torch, w, b if bias else None, activation, residual)
            exact = followed(torch, w.double(), b.double() if bias else None, activation, residual)
            options = inductor.options(lambda _: True)
            compiled = {"compile": torch.compile(plain), "replaced": torch.compile(plain, options=options)}
            for count in ROWS:
                x, r = made(count, inner), made(count, columns)
                for each in (x, r):
                    torch._dynamo.mark_dynamic(each, 0)
                calls = {n: torch.no_grad()(lambda f=f, x=x, r=r: f(x, r)) for n, f in compiled.items()}
                errors = {n: relative_error(call(), exact(x.double(), r.double())) for n, call in calls.items()}
                if args.what == "build":
                    continue
                us = {n: s * 1e6 for n, s in timer.medians(calls).items()}
                rows.append({
                    "case": f"{count} x {case}",
                    "microseconds": {n: round(t, 1) for n, t in us.items()},
                    "of_compile": round(us["compile"] / us["replaced"], 3),
                    "errors": errors,
                })  # fmt: skip
                print(rows[-1], flush=True)
            assert len(options["post_grad_custom_pre_pass"].replaced) == 1
        write(document(torch, **timer.conditions(), rows=rows), args.json, row_lines=True)


if __name__ == "__main__":
    given = parser(__doc__, "cases whose name contains this").parse_args()
    import torch

    run(given, torch)
