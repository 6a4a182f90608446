"""What timing schedules finds: ``Kernel.tune`` on products, attention and rows, beside what the cost model chooses.

    python benchmarks/tuning.py --json benchmarks/results/tuning.json

Needs the compiler and a GPU. Each row: the time of the schedule that the model chooses, of the best of ``--best``, and
how long timing took, compiling included. Then both are timed again beside PyTorch, in turn, by another timer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness import Timer, document, greatest_error, write

PRODUCTS = (
    (512, 4096, 4096), (2048, 5120, 5120), (3000, 7000, 2504), (4864, 896, 896), (5000, 5000, 5000),
    (4096, 4096, 4096), (1024, 1024, 1024), (128, 8192, 8192), (77, 8191, 8191), (640, 2560, 10240),
)  # fmt: skip
"""M, N, K."""
ROWS = ((4096, 1000), (4096, 4096), (128, 4096), (65536, 256))
ATTENTIONS = ((4, 16, 1024, 128), (4, 16, 4096, 64))
"""Batch, heads, length, width."""


@dataclass
class Case:
    """A kernel of ours, its arguments, which of them it writes, and PyTorch's way to the same."""

    name: str
    kernel: Any
    arguments: tuple[Any, ...]
    peer: Any
    keywords: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> Any:
        return self.arguments[-1]


def cases(torch: Any) -> Iterator[Case]:
    """Random tensors."""
    import softmax
    import speed_cases
    from attention import forward

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda").to(torch.bfloat16)

    for m, n, k in PRODUCTS:
        a, b, c = normal(m, k), normal(n, k), normal(m, n)
        yield Case(f"product {m}x{n}x{k}", speed_cases.product, (a, b, c), lambda a=a, b=b: torch.matmul(a, b.mT))
    for rows, columns in ROWS:
        x, y = normal(rows, columns), normal(rows, columns)
        yield Case(f"softmax {rows}x{columns}", softmax.softmax, (x, y), lambda x=x: torch.softmax(x, 1))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for batch, heads, length, width in ATTENTIONS:
        q, k, v, o = (normal(batch, heads, length, width) for _ in range(4))
        name, scale = f"attention {batch}x{heads}x{length}x{width}", {"scale": width**-0.5}
        yield Case(name, forward(width), (q, k, v, o), lambda q=q, k=k, v=v: sdpa(q, k, v), scale)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--best", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--only", default="", help="cases whose name contains this")
    arguments.add_argument("--json", default="")
    args = arguments.parse_args()
    import torch

    import tilewright as tw

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in cases(torch):
        if args.only not in case.name:
            continue
        try:
            untuned = tw.kernel(numerics=case.kernel.numerics)(case.kernel.fn)
            untuned(*case.arguments, **case.keywords)
            expected = case.peer().float()
            begun = time.perf_counter()
            tuning = case.kernel.tune(*case.arguments, best=args.best, **case.keywords)
            seconds = time.perf_counter() - begun
            case.result.fill_(float("nan"))
            case.kernel(*case.arguments, **case.keywords)
            error = greatest_error(case.result.float(), expected)
            us = timer.medians(
                {
                    "chosen": lambda case=case, kernel=untuned: kernel(*case.arguments, **case.keywords),
                    "tuned": lambda case=case: case.kernel(*case.arguments, **case.keywords),
                    "pytorch": case.peer,
                }
            )
        except Exception as problem:  # the other cases count, too
            print(f"{case.name}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
            continue
        found = {name: round(value * 1e6, 2) for name, value in us.items()}
        rows.append(
            {
                "case": case.name,
                **{f"{name}_us": value for name, value in found.items()},
                "schedule": str(tuning.schedule),
                "error": float(error),
                "seconds": round(seconds, 1),
                "timed": [
                    {"schedule": str(r.schedule), "us": r.microseconds, "refused": r.refused} for r in tuning.rows
                ],
            }
        )
        quicker = found["chosen"] / found["tuned"]
        print(f"{case.name:28s} {found}  {quicker:.3f}  {tuning.schedule or 'as chosen'}  {seconds:.1f} s", flush=True)
        write(document(torch, **timer.conditions(), best=args.best, rows=rows), args.json)


if __name__ == "__main__":
    main()
