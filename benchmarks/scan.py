"""Scans beside PyTorch eager, torch.compile and a copy of the bytes, on one GPU: running sums, a selective scan.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/scan.py build
    python benchmarks/scan.py run --json benchmarks/results/scan.json [--compile]

Timed as ``memory_bound.py`` says; every result is compared with float64 on the same device. PyTorch's selective scan is
a loop over steps, which is compared and not timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness import Timer, contiguous_facts, document, load, parser, relative_error, row_beside_copy, store, write


@dataclass(frozen=True)
class Case:
    """A kernel on one shape; ``timed`` says whether PyTorch's is timed too."""

    name: str
    kernel: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    moved: int
    """Bytes that have to be read and written."""
    timed: bool = True
    extents: dict[str, int] = field(default_factory=dict[str, int])
    """Keywords of the kernel that differ from its own; with them its warps are pinned."""


def _sums(rows: int, length: int, dtype: str) -> Case:
    shapes, size = {"x": (rows, length), "y": (rows, length)}, 2 if dtype == "bf16" else 4
    return Case(
        f"cumsum {rows}x{length} {dtype}",
        "running_sums",
        shapes,
        dict.fromkeys(shapes, dtype),
        rows * length * size * 2,
    )


def _recurrence(rows: int, length: int, dtype: str) -> Case:
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("a", "b", "y"), (rows, length))
    size = 2 if dtype == "bf16" else 4
    moved = rows * length * size * 3
    return Case(f"recurrence {rows}x{length} {dtype}", "recurrence", shapes, dict.fromkeys(shapes, dtype), moved, False)


def _selective(steps: int, channels: int) -> Case:
    wide, states = (steps, channels), (steps, 16)
    shapes = {"x": wide, "dt": wide, "a": (channels, 16), "b": states, "c": states, "y": wide}
    dtypes = {n: "f32" if n == "a" else "bf16" for n in shapes}
    moved, extents = steps * channels * 6, {"bd": 32, "bt": 32} if channels > 4096 else {"bd": 8, "bt": 64}
    return Case(f"selective_scan {steps}x{channels}", "selective_scan", shapes, dtypes, moved, False, extents)


CASES = (
    _sums(8192, 4096, "bf16"),
    _sums(8192, 4096, "f32"),
    _sums(8192, 8192, "f32"),
    _sums(132, 131072, "f32"),
    _sums(132, 1048576, "bf16"),
    _recurrence(8192, 8192, "bf16"),
    _recurrence(8192, 8192, "f32"),
    _selective(4096, 2048),
    _selective(4096, 8192),
)


def name_of(case: Case) -> str:
    """The artifact of a case."""
    return case.name.replace(" ", "_")


def build(only: str) -> None:
    """Compile every case to an artifact."""
    import scan as examples

    from tilewright import Schedule

    for case in CASES:
        if only not in case.name:
            continue
        kernel, facts = getattr(examples, case.kernel), contiguous_facts(case.shapes, case.dtypes)
        pins = {"schedule": Schedule(warps=4)} if case.extents else {}
        options = {"dtypes": case.dtypes, "facts": facts, **case.extents, **pins}
        artifact, seconds = store(name_of(case), kernel.compile, **options)
        print(f"{case.name}: {seconds:.2f} s, {len(artifact.kernels)} kernels")


def references(torch: Any) -> dict[str, Callable[..., Any]]:
    """Each kernel in PyTorch, on its tensors but the output."""

    def selective(x: Any, dt: Any, a: Any, b: Any, c: Any) -> Any:
        state, rows = torch.zeros_like(a), []
        for t in range(x.shape[0]):
            state = torch.exp(dt[t][:, None] * a) * state + (dt[t] * x[t])[:, None] * b[t]
            rows.append(state @ c[t])
        return torch.stack(rows)

    def recurrence(a: Any, b: Any) -> Any:
        y = torch.empty_like(b)
        state = torch.zeros_like(b[:, 0])
        for n in range(b.shape[1]):
            state = y[:, n] = a[:, n] * state + b[:, n]
        return y

    return {"running_sums": lambda x: x.cumsum(1), "selective_scan": selective, "recurrence": recurrence}


def _drawn(torch: Any, case: Case) -> dict[str, Any]:
    """Random arguments: decays that decay, steps that are positive, an output of NaN."""
    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32}
    torch.manual_seed(0)
    made = {n: torch.randn(shape, device="cuda") for n, shape in case.shapes.items()}
    if "b" in made and "dt" not in made:
        made["a"] = made["a"].sigmoid()
    if "dt" in made:
        made |= {"a": -made["a"].abs() - 0.5, "dt": made["dt"].abs() / 50 + 0.01}
    made = {n: v.to(dtypes[case.dtypes[n]]) for n, v in made.items()}
    made["y"].fill_(float("nan"))
    return made


def _error(torch: Any, case: Case, program: Any, reference: Callable[..., Any]) -> tuple[float, float]:
    """Relative errors of ours and of PyTorch's result against float64."""
    tensors = _drawn(torch, case)
    inputs = [v for n, v in tensors.items() if n != "y"]
    program.launch(tuple(tensors[p.name] for p in program.artifact.parameters))
    torch.cuda.synchronize()
    exact = reference(*(v.double() for v in inputs))
    theirs = relative_error(reference(*inputs), exact) if case.timed else float("nan")
    return relative_error(tensors["y"], exact), theirs


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        program = load(name_of(case))
        if args.only not in case.name or program is None:
            continue
        reference = references(torch)[case.kernel]
        errors = _error(torch, case, program, reference)
        tensors = _drawn(torch, case)
        inputs = [v for n, v in tensors.items() if n != "y"]
        values = tuple(tensors[p.name] for p in program.artifact.parameters)
        variants: dict[str, Callable[[], object]] = {"ours": lambda v=values, p=program: p.launch(v)}
        if case.timed:
            variants["eager"] = lambda r=reference, i=inputs: r(*i)
        if case.timed and args.compile:
            compiled = torch.compile(reference, dynamic=False)
            variants["compile"] = lambda c=compiled, i=inputs: c(*i)
        rows.append(row_beside_copy(torch, timer, case.name, case.moved, variants, errors))
        del tensors, values, inputs, variants
    write(document(torch, **timer.conditions(), rows=rows), args.json)


if __name__ == "__main__":
    options = parser(__doc__, "cases whose names contain this")
    options.add_argument("--compile", action="store_true", help="torch.compile too")
    given = options.parse_args()
    build(given.only) if given.what == "build" else run(given)
