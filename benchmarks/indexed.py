"""Kernels at computed and loaded coordinates beside PyTorch eager, torch.compile and a copy of the bytes, on one GPU.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/indexed.py build
    python benchmarks/indexed.py run --json benchmarks/results/indexed.json [--compile]

Timed as ``memory_bound.py`` says; every result is compared with float64 on the same device. Indices repeat, but
those of scatters, whose launches check that and are timed with their check.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import Timer, contiguous_facts, document, load, parser, relative_error, row_beside_copy, store, write


@dataclass(frozen=True)
class Case:
    """A kernel on one shape. ``index`` names the tensor of indices, which are below ``below``."""

    name: str
    kernel: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    output: str
    index: str = ""
    below: int = 0
    moved: int = 0
    """Bytes that have to be read and written."""


def _rows(rows: int, table: int, width: int, dtype: str) -> Case:
    size = 2 if dtype == "bf16" else 4
    return Case(
        f"embedding {rows} of {table}x{width} {dtype}",
        "embedding",
        {"index": (rows,), "table": (table, width), "y": (rows, width)},
        {"index": "i64", "table": dtype, "y": dtype},
        "y",
        "index",
        table,
        rows * width * size * 2 + rows * 8,
    )


def _scattered(rows: int, table: int, width: int, dtype: str) -> Case:
    size = 2 if dtype == "bf16" else 4
    return Case(
        f"scatter {rows}x{width} into {table} {dtype}",
        "scatter_rows",
        {"index": (rows,), "x": (rows, width), "y": (table, width)},
        {"index": "i64", "x": dtype, "y": dtype},
        "y",
        "index",
        table,
        rows * width * size * 2 + rows * 8,
    )


def _sums(rows: int, table: int, width: int, dtype: str) -> Case:
    size = 2 if dtype == "bf16" else 4
    return Case(
        f"index_add {rows}x{width} into {table} {dtype}",
        "index_add",
        {"index": (rows,), "x": (rows, width), "y": (table, width)},
        {"index": "i64", "x": dtype, "y": dtype},
        "y",
        "index",
        table,
        (rows + 2 * table) * width * size + rows * 8,
    )


def _same(name: str, kernel: str, shapes: dict[str, tuple[int, ...]], moved: int) -> Case:
    return Case(name, kernel, shapes, dict.fromkeys(shapes, "bf16"), "y", moved=moved)


CASES = (
    _rows(16384, 32000, 4096, "bf16"),
    _rows(65536, 2**20, 128, "bf16"),
    _rows(65536, 2**20, 64, "f32"),
    _scattered(16384, 16384, 4096, "bf16"),
    _scattered(16384, 32000, 4096, "bf16"),
    _sums(16384, 4096, 4096, "bf16"),
    _sums(16384, 4096, 4096, "f32"),
    _same(
        "causal_conv1d 16384x4096",
        "causal_conv1d",
        {"x": (16384, 4096), "w": (4, 4096), "y": (16384, 4096)},
        16384 * 4096 * 4,
    ),
    _same(
        "rotate_halves 8192x32x128",
        "rotate_halves",
        {"x": (8192, 32, 128), "cos": (8192, 64), "sin": (8192, 64), "y": (8192, 32, 128)},
        8192 * 32 * 128 * 4,
    ),
    Case(
        "label_loss 8192x32000",
        "label_loss",
        {"logits": (8192, 32000), "label": (8192,), "loss": (8192,)},
        {"logits": "bf16", "label": "i64", "loss": "f32"},
        "loss",
        "label",
        32000,
        8192 * 32000 * 2,
    ),
)


ADDS = ("index_add", "scatter_rows")
"""Kernels that leave elements of their output as they are."""


def name_of(case: Case) -> str:
    """The artifact of a case."""
    return case.name.replace(" ", "_")


def build(only: str) -> None:
    """Compile every case to an artifact."""
    import indexing

    for case in CASES:
        if only not in case.name:
            continue
        kernel, facts = getattr(indexing, case.kernel), contiguous_facts(case.shapes, case.dtypes)
        artifact, seconds = store(name_of(case), kernel.compile, dtypes=case.dtypes, facts=facts)
        print(f"{case.name}: {seconds:.2f} s, {len(artifact.kernels)} kernels")


def references(torch: Any) -> dict[str, Callable[..., Any]]:
    """Each kernel in PyTorch, on its tensors but the output; sums take the output too."""
    f = torch.nn.functional

    def rotated(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x[..., :64], x[..., 64:]
        c, s = cos[:, None], sin[:, None]
        return torch.cat([first * c - second * s, second * c + first * s], -1)

    def convolved(x: Any, w: Any) -> Any:
        padded = f.pad(x, (0, 0, 3, 0))
        return sum(padded[3 - j : 3 - j + x.shape[0]] * w[j] for j in range(4))

    return {
        "embedding": lambda index, table: f.embedding(index, table),
        "scatter_rows": lambda index, x, y: y.index_copy_(0, index, x),
        "index_add": lambda index, x, y: y.index_add_(0, index, x),
        "causal_conv1d": convolved,
        "rotate_halves": rotated,
        "label_loss": lambda logits, label: f.cross_entropy(logits.float(), label, reduction="none"),
    }


def _drawn(torch: Any, case: Case) -> dict[str, Any]:
    """Random arguments: an output of NaN, or of numbers where elements of it stay."""
    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32, "i64": torch.int64}
    torch.manual_seed(0)
    made: dict[str, Any] = {}
    for name, shape in case.shapes.items():
        if name == case.index and case.kernel == "scatter_rows":  # places that differ
            made[name] = torch.randperm(case.below, device="cuda")[: shape[0]]
        elif name == case.index:
            made[name] = torch.randint(0, case.below, shape, device="cuda")
        else:
            made[name] = torch.randn(shape, device="cuda").to(dtypes[case.dtypes[name]])
    if case.kernel not in ADDS:
        made[case.output].fill_(float("nan"))
    return made


def _error(torch: Any, case: Case, program: Any, reference: Callable[..., Any]) -> tuple[float, float]:
    """Relative errors of ours and of PyTorch's result against float64."""
    tensors = _drawn(torch, case)
    adds = case.kernel in ADDS
    wide = [t.double() if t.is_floating_point() else t for n, t in tensors.items() if adds or n != case.output]
    theirs_in = [t.clone() for n, t in tensors.items() if adds or n != case.output]
    program.launch(tuple(tensors[p.name] for p in program.artifact.parameters))
    torch.cuda.synchronize()
    theirs, exact = reference(*theirs_in), reference(*wide)
    return relative_error(tensors[case.output], exact), relative_error(theirs, exact)


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
        inputs = [t for n, t in tensors.items() if case.kernel in ADDS or n != case.output]
        values = tuple(tensors[p.name] for p in program.artifact.parameters)
        variants: dict[str, Callable[[], object]] = {"ours": lambda v=values, p=program: p.launch(v)}
        variants["eager"] = lambda r=reference, i=inputs: r(*i)
        if args.compile:
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
