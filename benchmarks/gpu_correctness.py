"""Kernels on a GPU against float64 and PyTorch's own error, over shapes, dtypes and strides; and the launch overhead.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/gpu_correctness.py build
    python benchmarks/gpu_correctness.py run --json benchmarks/results/gpu_correctness.json

One artifact is built for each specialisation class and serves all shapes of it. Every tensor lies in a larger buffer
full of NaN and Inf (the least integer for integers); outputs hold NaN before; afterwards what lies around them must be
intact. The error is the 2-norm of the difference from a float64 reference over the norm of the reference. It may be
``FACTOR`` times that of PyTorch's own op in the same dtype plus ``FLOOR``, for outputs of few elements plus half
a unit in the last place. Kernels without a PyTorch op, stored with inputs and NumPy's outputs, have a tolerance each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import harness
from harness import document, parser, write

ARTIFACTS = harness.ARTIFACTS / "correctness"
sys.path.insert(0, str(harness.ROOT.parent / "tests"))

FACTOR, FLOOR = 1.5, 2.0**-22
HALF_ULP = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
FEW = 4096
ROUNDS = 24  # of calls that are timed in turn
FEW_FOR_NAN = 64  # smaller matrices keep their numbers

PAIRS = ((1, 1), (2, 7), (7, 31), (31, 32), (32, 33), (33, 127), (127, 1000), (1000, 7), (4097, 31), (33, 4097))
TALL = ((65537, 2), (65537, 33), (4097, 1))
WIDE = ((1, 65537), (2, 65537), (7, 4097))
LENGTHS = (1, 2, 7, 31, 32, 33, 127, 1000, 4097, 65537)
BOXES = ((1, 1, 1, 1), (2, 7, 31, 33), (1, 33, 2, 127), (7, 32, 31, 2), (2, 1000, 7, 31), (1, 2, 4097, 7))


@dataclass(frozen=True)
class Kernel:
    """An example: dims of each tensor, outputs, shapes to try (extents of ``names``), compile-time keywords,
    scalars."""

    path: str
    names: str
    tensors: dict[str, str]
    outputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    keywords: dict[str, int]
    scalars: dict[str, float]
    dtypes: dict[str, str]


def _kernel(
    path: str,
    names: str,
    tensors: str,
    outputs: str,
    shapes: tuple[tuple[int, ...], ...],
    keywords: dict[str, int] | None = None,
    scalars: dict[str, float] | None = None,
    dtypes: dict[str, str] | None = None,
) -> Kernel:
    dims = dict(t.split(":") for t in tensors.split())
    return Kernel(path, names, dims, tuple(outputs.split()), shapes, keywords or {}, scalars or {}, dtypes or {})


_ROWS = {"upto": 4352}
KERNELS = (
    _kernel("add.add", "M", "x:M y:M z:M", "z", tuple((n,) for n in LENGTHS)),
    _kernel("axpy.axpy", "MN", "x:N y:MN z:MN", "z", PAIRS + TALL + WIDE, scalars={"alpha": 0.1}),
    _kernel("softmax.softmax", "MN", "x:MN y:MN", "y", PAIRS + TALL, _ROWS),
    _kernel("softmax.softmax_streamed", "MN", "x:MN y:MN", "y", PAIRS + TALL + WIDE),
    _kernel("norms.rms_norm", "MN", "x:MN w:N y:MN", "y", PAIRS + TALL, _ROWS, {"eps": 1e-6}),
    _kernel("norms.layer_norm", "MN", "x:MN w:N b:N y:MN", "y", PAIRS + TALL, _ROWS, {"eps": 1e-5}),
    _kernel(
        "norms.residual_rms_norm",
        "MN",
        "x:MN residual:MN w:N total:MN y:MN",
        "total y",
        PAIRS + TALL,
        _ROWS,
        {"eps": 1e-6},
    ),
    _kernel("swiglu.swiglu", "MN", "gate:MN up:MN y:MN", "y", PAIRS + TALL + WIDE),
    _kernel("reductions.row_sum", "MN", "x:MN y:M", "y", PAIRS + TALL + WIDE),
    _kernel("reductions.row_max", "MN", "x:MN y:M", "y", PAIRS + TALL + WIDE),
    _kernel("reductions.column_sum", "MN", "x:MN y:N", "y", PAIRS + TALL + WIDE),
    _kernel("reductions.column_max", "MN", "x:MN y:N", "y", PAIRS + TALL + WIDE),
    _kernel("reductions.argmax", "MN", "x:MN y:M", "y", PAIRS + TALL + WIDE, dtypes={"y": "i32"}),
    _kernel("transpose.transpose", "MN", "x:MN y:NM", "y", PAIRS + TALL + WIDE),
    _kernel("transpose.permute", "ABCD", "x:ABCD y:ACBD", "y", BOXES),
    _kernel("transpose.permute_inner", "ABCD", "x:ABCD y:DBAC", "y", BOXES),
    _kernel(
        "cross_entropy.cross_entropy",
        "MN",
        "x:MN target:M loss:M",
        "loss",
        PAIRS + TALL + WIDE,
        dtypes={"target": "i32"},
    ),
    _kernel(
        "rotary.rotary",
        "THD",
        "x:TH2D cos:TD sin:TD y:TH2D",
        "y",
        ((1, 1, 1), (2, 7, 31), (33, 2, 32), (127, 7, 33), (1000, 1, 64), (4097, 2, 7)),
    ),
)
CLASSES = (
    ("bf16", "pitched"),
    ("f32", "offset"),
    ("f16", "sliced"),
    ("bf16", "transposed"),
    ("f32", "spread"),
    ("bf16", "expanded"),
    ("f32", "tight"),
)
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "i32": 4, "i64": 8, "bool": 1}


@dataclass(frozen=True)
class Placed:
    """A view in a buffer of ``size`` elements: shape, strides and offset in elements."""

    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def placed(shape: tuple[int, ...], how: str, itemsize: int, *, output: bool) -> Placed:
    """Where a tensor lies. pitched: rows of whole 16 bytes; offset: contiguous from an unaligned base; sliced: a window
    with odd row strides; transposed: the first axis fastest; spread: every second element of every second row;
    expanded: an input whose rows are all the same memory; tight: as freshly allocated."""
    line = 16 // itemsize
    order = list(reversed(range(len(shape))))
    step, offset = 1, 0
    if how == "transposed":
        order.reverse()
    if how == "spread":
        step, offset = 2, 1
    if how in ("offset", "sliced"):
        offset = 1
    if how == "pitched":
        offset = 4 * line
    strides = [0] * len(shape)
    reach = step
    for position, d in enumerate(order):
        strides[d] = reach
        reach *= shape[d]
        if how == "pitched" and position == 0:
            reach = -(-reach // line) * line
        if how == "sliced":
            reach += 3 + reach % 2  # odd
        if how == "transposed" and position == 0:
            reach = -(-reach // line) * line
        if how == "spread":
            reach *= 2
    if how == "expanded" and not output and len(shape) > 1:
        strides[0] = 0
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return Placed(offset + last + 1 + 4 * line, shape, tuple(strides), offset)


@dataclass(frozen=True)
class Combination:
    """One line of the table: an artifact on one shape."""

    kernel: str
    dtype: str
    how: str
    shape: tuple[int, ...]
    file: str


def places_of(kernel: Kernel, dtype: str, how: str, shape: tuple[int, ...]) -> dict[str, tuple[str, Placed]]:
    """Per tensor its dtype and place."""
    extents = dict(zip(kernel.names, shape, strict=True)) | {"2": 2}
    result: dict[str, tuple[str, Placed]] = {}
    for name, dims in kernel.tensors.items():
        own = kernel.dtypes.get(name, dtype)
        where = placed(tuple(extents[d] for d in dims), how, BYTES[own], output=name in kernel.outputs)
        result[name] = own, where
    return result


# -- build ------------------------------------------------------------------------------------------------------------
def build(only: str) -> None:
    """Compile one artifact for each class and write the list of combinations."""
    from importlib import import_module

    from tilewright.artifact.bundle import to_bytes
    from tilewright.base.dtypes import DTYPES
    from tilewright.compiler.requests import Observed, observe_facts

    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    combinations: list[Combination] = []
    started = time.perf_counter()
    for kernel in KERNELS:
        if only not in kernel.path:
            continue
        module, name = kernel.path.split(".")
        function = getattr(import_module(module), name)
        for dtype, how in CLASSES:
            classes: dict[object, str] = {}
            for shape in kernel.shapes:
                places = places_of(kernel, dtype, how, shape)
                seen = {n: Observed(DTYPES[d], p.offset * BYTES[d], p.shape, p.strides) for n, (d, p) in places.items()}
                facts = observe_facts(seen)
                if facts not in classes:
                    if len(classes) == 2:  # further classes are the same kernels for other alignments
                        continue
                    file = f"{name}-{dtype}-{how}-{len(classes)}.twb"
                    dtypes = {n: d for n, (d, _) in places.items()}
                    artifact = function.compile(dtypes=dtypes, facts=facts, **kernel.keywords)
                    (ARTIFACTS / file).write_bytes(to_bytes(artifact))
                    classes[facts] = file
                combinations.append(Combination(kernel.path, dtype, how, shape, classes[facts]))
            print(f"{time.perf_counter() - started:6.1f} s  {kernel.path} {dtype} {how}: {len(classes)}", flush=True)
    (ARTIFACTS / "combinations.json").write_text(json.dumps([asdict(c) for c in combinations]))
    if only in "stored":
        store_cases()
    print(f"{len(combinations)} combinations")


def store_cases() -> None:
    """The kernels of the generality tests, with inputs and NumPy's outputs as bytes."""
    import ml_dtypes
    import numpy as np

    from support.generality import CASES
    from tilewright.artifact.bundle import to_bytes
    from tilewright.base.dtypes import DTYPES
    from tilewright.compiler.requests import Observed, observe_facts

    dtypes = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16"}
    dtypes |= {np.dtype(np.int32): "i32", np.dtype(np.int64): "i64", np.dtype(np.bool_): "bool"}
    rows: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for name, case in CASES.items():
        keywords = {k.name: case.scalars[k.name] for k in case.kernel.keywords if k.name in case.scalars}
        scalars = {k: v for k, v in case.scalars.items() if k not in keywords}
        for how in ("tight", "sliced"):
            for shape in case.shapes:
                given, expected = case.arrays(shape)
                kinds = {n: dtypes[a.dtype] for n, a in given.items()}
                places = {n: placed(a.shape, how, a.itemsize, output=n in expected) for n, a in given.items()}
                seen = {
                    n: Observed(DTYPES[kinds[n]], p.offset * BYTES[kinds[n]], p.shape, p.strides)
                    for n, p in places.items()
                }
                file = f"stored-{name}-{how}-{'x'.join(map(str, shape))}"
                artifact = case.kernel.compile(dtypes=kinds, facts=observe_facts(seen), **keywords)
                (ARTIFACTS / f"{file}.twb").write_bytes(to_bytes(artifact))
                for tensor, array in given.items():
                    arrays[f"{file}/{tensor}"] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                for tensor, array in expected.items():
                    arrays[f"{file}/expected/{tensor}"] = np.asarray(array, np.float64)
                rows.append(
                    {
                        "kernel": name,
                        "how": how,
                        "shape": shape,
                        "file": file,
                        "dtypes": kinds,
                        "places": {n: asdict(p) for n, p in places.items()},
                        "outputs": list(expected),
                        "scalars": scalars,
                        "tolerance": max(case.tolerance, 2e-6 if case.tolerance else 0),
                    }
                )
    np.savez(ARTIFACTS / "stored.npz", **arrays)
    (ARTIFACTS / "stored.json").write_text(json.dumps(rows))
    print(f"{len(rows)} stored")


# -- run --------------------------------------------------------------------------------------------------------------
def references(torch: Any) -> dict[str, Callable[..., Any]]:
    """Each kernel in PyTorch on its inputs in order; several outputs as a tuple."""
    f = torch.nn.functional

    def residual(x: Any, r: Any, w: Any) -> Any:
        return x + r, f.rms_norm(x + r, (x.shape[1],), w, 1e-6)

    def rotary(x: Any, cos: Any, sin: Any) -> Any:
        c, s = cos[:, None], sin[:, None]
        return torch.stack([x[:, :, 0] * c - x[:, :, 1] * s, x[:, :, 1] * c + x[:, :, 0] * s], 2)

    return {
        "add.add": lambda x, y: x + y,
        "axpy.axpy": lambda x, y: 0.1 * x + y,
        "softmax.softmax": lambda x: torch.softmax(x, 1),
        "softmax.softmax_streamed": lambda x: torch.softmax(x, 1),
        "norms.rms_norm": lambda x, w: f.rms_norm(x, (x.shape[1],), w, 1e-6),
        "norms.layer_norm": lambda x, w, b: f.layer_norm(x, (x.shape[1],), w, b, 1e-5),
        "norms.residual_rms_norm": residual,
        "swiglu.swiglu": lambda g, u: f.silu(g) * u,
        "reductions.row_sum": lambda x: x.sum(1),
        "reductions.row_max": lambda x: x.amax(1),
        "reductions.column_sum": lambda x: x.sum(0),
        "reductions.column_max": lambda x: x.amax(0),
        "reductions.argmax": lambda x: x.argmax(1),
        "transpose.transpose": lambda x: x.t().contiguous(),
        "transpose.permute": lambda x: x.permute(0, 2, 1, 3).contiguous(),
        "transpose.permute_inner": lambda x: x.permute(3, 1, 0, 2).contiguous(),
        "cross_entropy.cross_entropy": lambda x, t: f.cross_entropy(x, t.long(), reduction="none"),
        "rotary.rotary": rotary,
    }


class Bench:
    """Buffers full of poison on the GPU."""

    def __init__(self, torch: Any):
        self.torch = torch
        self.dtypes = {
            "f32": torch.float32,
            "f16": torch.float16,
            "bf16": torch.bfloat16,
            "i32": torch.int32,
            "i64": torch.int64,
            "bool": torch.bool,
        }

    def poison(self, size: int, dtype: str) -> Any:
        torch, kind = self.torch, self.dtypes[dtype]
        if dtype == "bool":
            return torch.ones(size, dtype=kind, device="cuda")
        if dtype.startswith("i"):
            return torch.full((size,), torch.iinfo(kind).min, dtype=kind, device="cuda")
        buffer = torch.full((size,), float("nan"), dtype=kind, device="cuda")
        buffer[::2] = float("inf")
        return buffer

    def tensor(self, where: Placed, dtype: str, values: Any) -> tuple[Any, Any]:
        """(buffer, view that holds ``values``); values None: left poisoned."""
        buffer = self.poison(where.size, dtype)
        view = buffer.as_strided(where.shape, where.strides, where.offset)
        if values is not None:
            rows = slice(0, 1) if where.strides and where.strides[0] == 0 else slice(None)
            view[rows].copy_(values[rows]) if where.shape else view.copy_(values)
        return buffer, view

    def intact(self, buffer: Any, where: Placed, dtype: str) -> bool:
        """Nothing but the view has changed."""
        inside = self.torch.zeros(where.size, dtype=self.torch.bool, device="cuda")
        inside.as_strided(where.shape, where.strides, where.offset).fill_(True)
        expected = self.poison(where.size, dtype)
        same = (buffer == expected) | ((buffer != buffer) & (expected != expected))
        return bool((same | inside).all())


def inputs(bench: Bench, kernel: Kernel, name: str, own: str, where: Placed, columns: int) -> Any:
    """Random values; all negative for maxima, few different ones for argmax, a NaN for both in larger matrices."""
    torch, shape = bench.torch, where.shape
    if name == "target":
        return torch.randint(0, columns, shape, device="cuda", dtype=torch.int32)
    repeated = bool(where.strides) and where.strides[0] == 0
    if kernel.path.endswith("argmax"):
        values = torch.randint(-1000, 1000, shape, device="cuda").float() / 8
    else:
        values = torch.randn(shape, device="cuda")
    if kernel.path.endswith("_max"):
        values = -1 - values.abs()
    if kernel.path.endswith("max") and kernel.path.startswith("reductions.") and values.numel() > FEW_FOR_NAN:
        values[0 if repeated else shape[0] // 2, shape[1] // 2] = float("nan")
    if repeated:
        values = values[:1].expand(shape)
    return values.to(bench.dtypes[own])


def check(bench: Bench, program: Any, item: Combination) -> dict[str, Any]:
    """Run one combination and compare."""
    torch = bench.torch
    kernel = next(k for k in KERNELS if k.path == item.kernel)
    places = places_of(kernel, item.dtype, item.how, tuple(item.shape))
    extents = dict(zip(kernel.names, item.shape, strict=True))
    buffers: dict[str, Any] = {}
    views: dict[str, Any] = {}
    for name, (own, where) in places.items():
        values = None
        if name not in kernel.outputs:
            values = inputs(bench, kernel, name, own, where, extents.get("N", 1))
        buffers[name], views[name] = bench.tensor(where, own, values)
    call = {**views, **kernel.scalars}
    program.launch(tuple(call[p.name] for p in program.artifact.parameters))
    torch.cuda.synchronize()
    given = [views[n].clone() for n in views if n not in kernel.outputs]
    reference = references(torch)[kernel.path]
    wide = reference(*[g.double() if g.is_floating_point() else g for g in given])
    theirs = reference(*given)
    row: dict[str, Any] = {**asdict(item), "ok": True, "error": 0.0, "pytorch_error": 0.0}
    del row["file"]
    for i, name in enumerate(kernel.outputs):
        own, where = places[name]
        exact = wide[i] if isinstance(wide, tuple) else wide
        peer = theirs[i] if isinstance(theirs, tuple) else theirs
        exact, got, peer = (t.to(torch.float64) for t in (exact, views[name], peer))
        row["ok"] = bool(row["ok"] and torch.equal(got.isnan(), exact.isnan()))
        exact, got, peer = (torch.where(t.isnan(), 0.0, t) for t in (exact, got, peer))
        norm = float(exact.norm()) or 1.0
        error = float((got - exact).norm()) / norm
        peer_error = float((peer - exact).norm()) / norm
        allowed = FACTOR * peer_error + FLOOR
        if exact.numel() <= FEW:
            allowed += HALF_ULP.get(own, 0.0)
        row["error"], row["pytorch_error"] = max(row["error"], error), max(row["pytorch_error"], peer_error)
        row["ok"] = bool(row["ok"] and error <= allowed)
    for name, (own, where) in places.items():
        if not (item.how == "expanded" and name not in kernel.outputs):
            row["ok"] = row["ok"] and bench.intact(buffers[name], where, own)
    return row


def check_stored(bench: Bench, runtime: Any, from_bytes: Any) -> Iterator[dict[str, Any]]:
    """The kernels without a PyTorch op."""
    import numpy as np

    torch = bench.torch
    arrays = np.load(ARTIFACTS / "stored.npz")
    for row in json.loads((ARTIFACTS / "stored.json").read_text()):
        program = runtime.load(from_bytes((ARTIFACTS / f"{row['file']}.twb").read_bytes(), row["file"]))
        buffers: dict[str, Any] = {}
        views: dict[str, Any] = {}
        places = {
            n: Placed(p["size"], tuple(p["shape"]), tuple(p["strides"]), p["offset"]) for n, p in row["places"].items()
        }
        for name, dtype in row["dtypes"].items():
            raw = torch.from_numpy(arrays[f"{row['file']}/{name}"].copy())
            values = raw.view(bench.dtypes[dtype]).reshape(places[name].shape).cuda()
            buffers[name], views[name] = bench.tensor(places[name], dtype, values)
        call = {**views, **row["scalars"]}
        program.launch(tuple(call[p.name] for p in program.artifact.parameters))
        torch.cuda.synchronize()
        ok, worst = True, 0.0
        for name in row["outputs"]:
            exact = torch.from_numpy(arrays[f"{row['file']}/expected/{name}"]).cuda()
            got = views[name].double()
            half = HALF_ULP.get(row["dtypes"][name], 0.0)
            wrong = (got - exact).abs() - (row["tolerance"] + half) * (1 + exact.abs()) > 0
            ok = ok and not bool((wrong | (got != got) & (exact == exact)).any())
            worst = max(worst, float((got - exact).norm()) / (float(exact.norm()) or 1.0))
        ok = ok and all(bench.intact(buffers[n], places[n], d) for n, d in row["dtypes"].items())
        yield {
            "kernel": row["kernel"],
            "dtype": "/".join(row["dtypes"].values()),
            "how": row["how"],
            "shape": row["shape"],
            "ok": ok,
            "error": worst,
            "tolerance": row["tolerance"],
        }


def overhead(bench: Bench, runtime: Any, from_bytes: Any) -> dict[str, Any]:
    """Microseconds per call from Python, back to back: a small kernel on three tensors, and PyTorch's add beside."""
    from add import add

    torch = bench.torch
    file = next(
        c["file"] for c in json.loads((ARTIFACTS / "combinations.json").read_text()) if c["kernel"] == "add.add"
    )
    program = runtime.load(from_bytes((ARTIFACTS / file).read_bytes(), file))
    x, y, z = (torch.zeros(1024, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    stream = torch.cuda.current_stream().cuda_stream
    # the object that @tw.kernel makes, with the class of these tensors already loaded: there is no compiler here
    from tilewright import jit

    kernel = jit.Kernel(add)
    program.launch((x, y, z), stream)
    kernel._programs.append(({}, program))
    others = [tuple(torch.zeros(1024, dtype=torch.bfloat16, device="cuda") for _ in range(3)) for _ in range(8)]
    turn = iter(range(10**9))
    calls: dict[str, Callable[[], object]] = {
        "kernel": lambda: kernel(x, y, z, stream=stream),
        "kernel_changing_tensors": lambda: kernel(*others[next(turn) % 8], stream=stream),
        "decorated": lambda: add(x, y, z, stream=stream),
        "program": lambda: program.launch((x, y, z), stream),
        "torch_add": lambda: torch.add(x, y, out=z),
        "torch_add_new": lambda: x + y,
    }
    add.__dict__["compiled"] = kernel
    batches: dict[str, list[float]] = {name: [] for name in calls}
    singles: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(ROUNDS):  # rotated: the processor's slow phases (a half slower, some 100 ms) meet all alike
        for name in [*calls][round_ % len(calls) :] + [*calls][: round_ % len(calls)]:
            call = calls[name]
            for _ in range(20):
                call()
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(200):
                call()
            batches[name].append((time.perf_counter_ns() - start) / 200e3)
            torch.cuda.synchronize()
            for _ in range(200):
                start = time.perf_counter_ns()
                call()
                singles[name].append((time.perf_counter_ns() - start) / 1e3)
            torch.cuda.synchronize()
    return {
        name: {
            "median_us": round(statistics.median(singles[name]), 2),
            "p90_us": round(sorted(singles[name])[len(singles[name]) * 9 // 10], 2),
            "mean_of_batches_us": round(statistics.median(batches[name]), 2),
        }
        for name in calls
    }


def run(args: argparse.Namespace) -> None:
    """Check every combination, measure the overhead, write JSON."""
    import torch

    from tilewright import runtime
    from tilewright.artifact.bundle import from_bytes

    bench = Bench(torch)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    programs: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    for entry in json.loads((ARTIFACTS / "combinations.json").read_text()):
        item = Combination(**{**entry, "shape": tuple(entry["shape"])})
        if args.only not in item.kernel:
            continue
        if item.file not in programs:
            programs[item.file] = runtime.load(from_bytes((ARTIFACTS / item.file).read_bytes(), item.file))
        rows.append(check(bench, programs[item.file], item))
        if not rows[-1]["ok"]:
            print("WRONG", rows[-1], flush=True)
    print(f"{len(rows)} combinations, {time.perf_counter() - started:.1f} s", flush=True)
    if args.only in "stored":
        stored = list(check_stored(bench, runtime, from_bytes))
        for row in stored:
            if not row["ok"]:
                print("WRONG", row, flush=True)
        rows += stored
    found = document(torch) | {
        "tolerance": f"2-norm error <= {FACTOR} x PyTorch's + {FLOOR:g}, and half an ulp up to {FEW} elements",
        "combinations": len(rows),
        "artifacts": len(programs),
        "wrong": sum(not r["ok"] for r in rows),
        "launch_overhead": overhead(bench, runtime, from_bytes),
        "rows": rows,
    }
    print(json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=1))
    write(found, args.json, row_lines=True)


def main() -> None:
    args = parser(__doc__, "kernels whose name contains this", rounds=None).parse_args()
    build(args.only) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
