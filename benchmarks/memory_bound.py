"""Memory-bound kernels against a copy of the same bytes, PyTorch eager and torch.compile, on one GPU.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/memory_bound.py build
    python benchmarks/memory_bound.py run --json benchmarks/results/memory_bound.json [--compile] [--autotune]

Every variant of a case is timed in one process in rotated order, each launch after a flush of the L2 cache, and the
median is kept. Inputs are random, outputs poisoned first, results compared with a float64 reference beside PyTorch's
own error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import ARTIFACTS, Timer, contiguous_facts, document, load, parser, relative_error, store, write


@dataclass(frozen=True)
class Case:
    """One row of the table: a kernel on one shape, and what it must reach of the copy's bandwidth."""

    name: str
    kernel: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    outputs: tuple[str, ...]
    goal: float


def _rows(name: str, kernel: str, m: int, n: int, goal: float, extra: tuple[str, ...] = ()) -> Case:
    shapes = {"x": (m, n), **dict.fromkeys(extra, (n,)), "y": (m, n)}
    return Case(f"{name} {m}x{n}", kernel, shapes, dict.fromkeys(shapes, "bf16"), ("y",), goal)


def _sums(name: str, m: int, n: int) -> Case:
    shapes = {"x": (m, n), "y": (n if name == "column_sum" else m,)}
    return Case(f"{name} {m}x{n}", f"reductions.{name}", shapes, {"x": "bf16", "y": "f32"}, ("y",), 0.80)


CASES = (
    Case("add 2^27", "add.add", dict.fromkeys("xyz", (2**27,)), dict.fromkeys("xyz", "bf16"), ("z",), 0.90),
    _rows("rms_norm", "norms.rms_norm", 8192, 8192, 0.90, ("w",)),
    _rows("softmax", "softmax.softmax", 16384, 4096, 0.90),
    Case(
        "swiglu 8192x14336",
        "swiglu.swiglu",
        dict.fromkeys(("gate", "up", "y"), (8192, 14336)),
        dict.fromkeys(("gate", "up", "y"), "bf16"),
        ("y",),
        0.90,
    ),
    _rows("transpose", "transpose.transpose", 8192, 8192, 0.90),
    Case(
        "permute 8x4096x32x128",
        "transpose.permute",
        {"x": (8, 4096, 32, 128), "y": (8, 32, 4096, 128)},
        dict.fromkeys("xy", "bf16"),
        ("y",),
        0.90,
    ),
    _rows("softmax", "softmax.softmax", 8192, 1000, 0.80),
    _rows("softmax", "softmax.softmax", 4096, 4099, 0.80),
    _rows("softmax", "softmax.softmax", 4096, 65536, 0.80),
    _rows("layer_norm", "norms.layer_norm", 8192, 128, 0.80, ("w", "b")),
    _rows("layer_norm", "norms.layer_norm", 1024, 12288, 0.80, ("w", "b")),
    _sums("column_sum", 16384, 8192),
    _sums("column_sum", 65536, 1024),
    _sums("column_sum", 65536, 64),
    _sums("row_sum", 64, 65536),
    _sums("row_sum", 8, 2**21),
    _sums("row_sum", 1, 2**24),
)


OTHER_SCHEDULES = {
    "softmax 8192x1000": {
        "rows2": "@bm=2",
        "rows8": "@bm=8",
        "rows16": "@bm=16",
        "warps8": "warps=8",
        "persistent": "persistent=True",
        "persistent_rows8": "persistent=True, @bm=8",
    },
    **{case.name: {"whole": "split_k=1"} for case in CASES if case.kernel.startswith("reductions.")},
}
"""Pinned schedules that are timed beside the compiler's own: for rows of up to 1024 elements, and sums in one part."""


def name_of(case: Case) -> str:
    """The artifact of a case."""
    return case.name.replace(" ", "_").replace("^", "")


# -- build ------------------------------------------------------------------------------------------------------------
def build(only: str) -> None:
    """Compile every case to an artifact."""
    from importlib import import_module

    from tilewright.lang.schedule import Schedule

    for case in CASES:
        if only not in case.name:
            continue
        module, name = case.kernel.split(".")
        kernel = getattr(import_module(module), name)
        options = {"dtypes": case.dtypes, "facts": contiguous_facts(case.shapes, case.dtypes)}
        artifact, seconds = store(name_of(case), kernel.compile, **options)
        print(f"{case.name}: {seconds:.2f} s, {len(artifact.kernels)} kernels")
        for label, pins in OTHER_SCHEDULES.get(case.name, {}).items():
            bound = {"upto": 1024} if case.kernel == "softmax.softmax" else {}
            store(f"{name_of(case)}@{label}", kernel.compile, **options, schedule=Schedule.parse(pins), **bound)


# -- run --------------------------------------------------------------------------------------------------------------
def references(torch: Any) -> dict[str, Callable[..., Any]]:
    """Each kernel in PyTorch, on the inputs in order."""
    f = torch.nn.functional
    return {
        "add.add": lambda x, y: x + y,
        "norms.rms_norm": lambda x, w: f.rms_norm(x, (x.shape[1],), w, 1e-6),
        "norms.layer_norm": lambda x, w, b: f.layer_norm(x, (x.shape[1],), w, b, 1e-5),
        "softmax.softmax": lambda x: torch.softmax(x, 1),
        "swiglu.swiglu": lambda g, u: f.silu(g) * u,
        "transpose.transpose": lambda x: x.t().contiguous(),
        "transpose.permute": lambda x: x.permute(0, 2, 1, 3).contiguous(),
        "reductions.column_sum": lambda x: x.sum(0, dtype=x.dtype if x.dtype == torch.float64 else torch.float32),
        "reductions.row_sum": lambda x: x.sum(1, dtype=x.dtype if x.dtype == torch.float64 else torch.float32),
    }


_SCALARS = {"norms.rms_norm": {"eps": 1e-6}, "norms.layer_norm": {"eps": 1e-5}}


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32}
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        program = load(name_of(case))
        if args.only not in case.name or program is None:
            continue
        torch.manual_seed(0)
        tensors = {
            n: torch.randn(shape, device="cuda", dtype=torch.float32).to(dtypes[case.dtypes[n]])
            for n, shape in case.shapes.items()
        }
        inputs = [t for n, t in tensors.items() if n not in case.outputs]
        for name in case.outputs:
            tensors[name].fill_(float("nan"))
        call = {**tensors, **_SCALARS.get(case.kernel, {})}
        values = tuple(call[p.name] for p in program.artifact.parameters)
        reference = references(torch)[case.kernel]
        program.launch(values)
        torch.cuda.synchronize()
        error, theirs = errors(torch, case, tensors, inputs, reference)
        variants: dict[str, Callable[[], object]] = {"ours": lambda v=values, p=program: p.launch(v)}
        for other in sorted(ARTIFACTS.glob(name_of(case) + "@*.twb")):
            alternative = load(other.stem)
            variants[other.stem.split("@")[1]] = lambda v=values, p=alternative: p.launch(v)
        variants["eager"] = lambda r=reference, i=inputs: r(*i)
        if args.compile:
            compiled = torch.compile(reference, dynamic=False)
            variants["compile"] = lambda c=compiled, i=inputs: c(*i)
        if args.autotune:
            tuned = torch.compile(reference, dynamic=False, mode="max-autotune-no-cudagraphs")
            variants["autotune"] = lambda c=tuned, i=inputs: c(*i)
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        a = torch.randint(0, 127, (size // 2,), dtype=torch.int8, device="cuda")
        b = torch.empty_like(a)
        variants["copy"] = lambda a=a, b=b: b.copy_(a)
        seconds = timer.medians(variants)
        row = {
            "case": case.name,
            "bytes": size,
            "microseconds": {k: round(s * 1e6, 2) for k, s in seconds.items()},
            "of_copy": {k: round(seconds["copy"] / s, 3) for k, s in seconds.items()},
            "goal_of_copy": case.goal,
            "error": error,
            "pytorch_error": theirs,
        }
        rows.append(row)
        print(
            case.name,
            json.dumps(row["of_copy"]),
            f"{seconds['ours'] * 1e6:.1f} us",
            f"error {error:.2e} / {theirs:.2e}",
            flush=True,
        )
        del tensors, inputs, a, b, variants, values, call
        torch.cuda.empty_cache()
    write(document(torch, **timer.conditions(), rows=rows), args.json)


def errors(torch: Any, case: Case, tensors: dict[str, Any], inputs: list[Any], reference: Any) -> tuple[float, float]:
    """Relative error of ours and of PyTorch's op against float64, over the first rows of large outputs."""
    out = tensors[case.outputs[0]]
    exact = reference(*[t.double() for t in inputs]) if out.numel() <= 2**26 else None
    if exact is None:
        exact = reference(*[t.float() for t in inputs])
    return relative_error(out, exact), relative_error(reference(*inputs), exact)


def main() -> None:
    arguments = parser(__doc__, "cases whose name contains this")
    arguments.add_argument("--compile", action="store_true")
    arguments.add_argument("--autotune", action="store_true")
    args = arguments.parse_args()
    build(args.only) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
