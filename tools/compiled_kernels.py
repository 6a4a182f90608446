"""Every kernel that examples, tests' registries and benchmarks compile, by name: for ``tools/validation.py``.

What benchmarks compile is found by calling their ``build`` with a ``store`` that keeps the request instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module  # noqa: TID251 - scripts that lie in folders
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.example_cases import EXAMPLES_BY_NAME
from support.generality import CASES as GENERALITY
from support.indexed import CASES as INDEXED
from support.scans import CASES as SCANS
from support.sorts import CASES as SORTS
from tilewright.base.dtypes import DTYPES
from tilewright.jit.arrays import describe

FLOATS = ("bf16", "f16", "f32")


@dataclass(frozen=True)
class Requested:
    """A kernel to compile: its name, where it is from, and what ``compile`` is given."""

    name: str
    source: str
    compile: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


OTHER_EXAMPLES: dict[str, dict[str, str]] = {
    "dropout.dropout": {},
    "grouped_matmul.grouped_matmul": {"offsets": "i32"},
    "histogram.histogram": {"keys": "i32", "counts": "i32"},
    "histogram.many_bins": {"keys": "i32", "counts": "i32"},
    "histogram.by_row": {"x": "i32", "counts": "i32"},
    "indexing.embedding": {"index": "i64"},
    "indexing.index_add": {"index": "i64"},
    "indexing.causal_conv1d": {},
    "indexing.rotate_halves": {},
    "indexing.label_loss": {"label": "i64"},
    "indexing.append_to_pages": {"slots": "i32"},
    "indexing.grouped_rmsnorm": {"offsets": "i32"},
    "ragged.attention_over_lengths": {"lengths": "i32"},
    "ragged.grouped_weight_gradient": {"offsets": "i32"},
    "scan.running_sums": {},
    "scan.selective_scan": {},
    "scan.segment_sums": {"begins": "bool"},
    "scan.rank_in_bin": {"bins": "i32", "rank": "i32", "counts": "i32"},
    "scan.pack": {"x": "i32", "y": "i32", "count": "i32"},
    "topk.topk": {"places": "i32"},
    "topk.route": {"expert": "i32"},
    "topk.sort_rows": {"order": "i32"},
    "topk.median": {},
}
"""Examples without a case in the tests' list, with the dtypes of tensors that don't follow the kernel's float dtype."""

BENCHMARKS = (
    *("attention_backward", "grouped", "indexed", "memory_bound", "products", "scan", "sorts", "unaligned"),
    *("varlen", "varlen_backward"),
)
"""Whose ``build`` asks nothing of what it stores."""


def requests(dtypes: tuple[str, ...]) -> Iterator[Requested]:
    """All of them, examples in each of ``dtypes``."""
    for name, example in EXAMPLES_BY_NAME.items():
        for dtype in dtypes:
            given = {tensor: d.name for tensor, d in example.tensor_dtypes(DTYPES[dtype]).items()}
            yield Requested(f"{name}-{dtype}", "examples", example.kernel.compile, {"dtypes": given})
    for path, fixed in OTHER_EXAMPLES.items():
        module, name = path.split(".")
        kernel = getattr(import_module(module), name)
        every = all(t.name in fixed for t in kernel.tensors)
        for dtype in dtypes[:1] if every else dtypes:
            given = {t.name: fixed.get(t.name, dtype) for t in kernel.tensors}
            yield Requested(f"{module}.{name}-{dtype}", "examples", kernel.compile, {"dtypes": given})
    for name, case in GENERALITY.items():
        yield _drawn("generality", name, case.kernel, case.arrays(case.shapes[-1])[0])
    for name, case in INDEXED.items():
        yield _drawn("indexed", name, case.kernel, case.draw(np.random.default_rng(0)))
    for source, cases in (("scans", SCANS), ("sorts", SORTS)):
        for name, case in cases.items():
            arrays = case.draw(np.random.default_rng(0))
            yield _drawn(source, name, case.kernel, arrays, **case.keywords)
    for name in BENCHMARKS:
        yield from _built(name)
    yield from _pinned()


def _drawn(source: str, name: str, kernel: Any, arrays: Mapping[str, np.ndarray], **keywords: Any) -> Requested:
    """A kernel in the dtypes of some arrays."""
    given = {tensor: describe(tensor, array).dtype.name for tensor, array in arrays.items()}
    return Requested(f"{source}.{name}", source, kernel.compile, {"dtypes": given, **keywords})


@dataclass(frozen=True)
class _Nothing:
    """What ``build`` is given for an artifact, of which it prints these."""

    kernels: tuple[()] = ()
    variants: tuple[()] = ()
    plan: tuple[()] = ()


def _built(name: str) -> list[Requested]:
    """What a benchmark's ``build`` stores, each once."""
    module = _benchmark(name)
    found: dict[str, Requested] = {}

    def store(label: str, compile_: Callable[..., Any], **options: Any) -> tuple[Any, float]:
        found[label] = Requested(f"{name}.{label}", "benchmarks", compile_, options)
        return _Nothing(), 0.0

    module.store = store
    with redirect_stdout(StringIO()):
        module.build(*([""] if module.build.__code__.co_argcount else []))
    return list(found.values())


def _benchmark(name: str) -> Any:
    """The script of a benchmark, some of which have the name of an example."""
    made = spec_from_file_location(f"benchmark_{name}", Path(__file__).parents[1] / "benchmarks" / f"{name}.py")
    assert made is not None
    assert made.loader is not None
    module: ModuleType = module_from_spec(made)
    sys.modules[module.__name__] = module
    made.loader.exec_module(module)
    return module


def _pinned() -> Iterator[Requested]:
    """The pinned schedules of products and attention."""
    import attention  # noqa: PLC0415 - the examples'
    import matmul  # noqa: PLC0415

    import tilewright as tw  # noqa: PLC0415

    for case in _benchmark("schedules").CASES:
        kernel = matmul.matmul if case.kernel == "matmul" else attention.forward(case.width)
        given = dict.fromkeys("abc" if case.kernel == "matmul" else "qkvo", "bf16")
        options = {"dtypes": given, "schedule": case.schedule(tw)}
        yield Requested(f"schedules.{case.name}", "benchmarks", kernel.compile, options)
