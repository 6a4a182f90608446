"""Kernels that turn tiles over, beside a copy of the same bytes and beside the same kernels of another tree.

    python benchmarks/transposes.py build --label now
    python benchmarks/transposes.py build --label before --tree OTHER_CHECKOUT
    python benchmarks/transposes.py run --json benchmarks/results/transposes.json

Where the GPU is, numpy and cuda-bindings suffice. All labels of a case are timed in one process in rotated order, each
launch after a flush of the L2 cache; medians. Inputs are random bits, outputs poisoned, every element compared.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent
FOLDER = ROOT / "artifacts" / "transposes"
WARM_UP, ROUNDS = 2, 15

Shape = tuple[int, ...]
CASES: dict[str, tuple[str, Shape, tuple[int, ...], str]] = {
    "transpose 8192x8192 bf16": ("transpose.transpose", (8192, 8192), (1, 0), "bf16"),
    "transpose 8192x8192 f32": ("transpose.transpose", (8192, 8192), (1, 0), "f32"),
    "transpose 16384x16384 i8": ("transpose.transpose", (16384, 16384), (1, 0), "i8"),
    "permute (0,2,1,3) 8x4096x32x128 bf16": ("transpose.permute", (8, 4096, 32, 128), (0, 2, 1, 3), "bf16"),
    "permute (3,1,0,2) 8x64x64x1024 bf16": ("transpose.permute_inner", (8, 64, 64, 1024), (3, 1, 0, 2), "bf16"),
    "permute (3,1,0,2) 8x64x64x1024 f32": ("transpose.permute_inner", (8, 64, 64, 1024), (3, 1, 0, 2), "f32"),
}
WORDS = {"bf16": np.uint16, "f32": np.uint32, "i8": np.uint8}


def _strides(shape: Shape) -> Shape:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def _argument(argument: Any, values: dict[str, int]) -> str | int:
    """A tensor's name or an integer."""
    return argument.name if hasattr(argument, "name") else argument.value.evaluate(values)


# -- build ------------------------------------------------------------------------------------------------------------
def build(label: str, tree: Path) -> None:
    """Cubins with the launch that each case's shape takes."""
    sys.path[:0] = [str(tree / "src"), str(tree / "examples")]
    from tilewright.artifact.schema import Launch
    from tilewright.base.dtypes import DTYPES
    from tilewright.compiler.requests import Observed, observe_facts

    folder = FOLDER / label
    folder.mkdir(parents=True, exist_ok=True)
    launches: dict[str, dict[str, Any]] = {}
    for number, (name, (kernel, shape, perm, dtype)) in enumerate(CASES.items()):
        module, function = kernel.split(".")
        shapes = {"x": shape, "y": tuple(shape[p] for p in perm)}
        seen = {n: Observed(DTYPES[dtype], 0, s, _strides(s)) for n, s in shapes.items()}
        source = getattr(import_module(module), function)
        artifact = source.compile(dtypes=dict.fromkeys(shapes, dtype), facts=observe_facts(seen))
        symbols = {f"{n}.stride{d}": v for n, s in shapes.items() for d, v in enumerate(_strides(s))}
        dims: dict[str, int] = {}
        for tensor in artifact.tensors:
            for dim, extent in zip(tensor.dims, shapes[tensor.name], strict=True):
                if dim.symbols:
                    dims[next(iter(dim.symbols))] = extent
        values = symbols | dims
        variant = next(v for v in artifact.variants if v.predicate.evaluate(values))
        launch = next(s for s in variant.steps if isinstance(s, Launch))
        image = next(k for k in artifact.kernels if k.symbol == launch.kernel)
        (folder / f"{number}.cubin").write_bytes(image.cubin)
        (folder / f"{number}.cu").write_text(image.source)
        launches[name] = {
            "cubin": f"{number}.cubin",
            "entry": image.symbol,
            "grid": launch.grid[0].evaluate(values),
            "threads": image.threads,
            "args": [_argument(a, values) for a in launch.args],
            "registers": image.registers,
            "shared_bytes": image.static_shared_bytes,
            "plan": variant.plan,
        }
        print(name, launches[name])
    (folder / "launches.json").write_text(json.dumps(launches, indent=1))


# -- run --------------------------------------------------------------------------------------------------------------
def run(json_path: str | None) -> None:
    """Checks and times."""
    from harness import rotated

    from gpu import Gpu

    gpu = Gpu()
    labels = sorted(p.name for p in FOLDER.iterdir() if (p / "launches.json").exists())
    launches = {label: json.loads((FOLDER / label / "launches.json").read_text()) for label in labels}
    rows: list[dict[str, Any]] = []
    for name, (_, shape, perm, dtype) in CASES.items():
        data = np.random.default_rng(1).integers(0, np.iinfo(WORDS[dtype]).max, shape, dtype=WORDS[dtype])
        wanted = np.ascontiguousarray(data.transpose(perm))
        x, y = gpu.upload(data), gpu.allocate(data.nbytes)

        def copy(x: int = x, y: int = y, size: int = data.nbytes) -> None:
            gpu.call(gpu.cuda.cuMemcpyDtoDAsync(y, x, size, 0))

        variants = {"copy": copy}
        right: dict[str, bool] = {}
        for label in labels:
            made = launches[label][name]
            function = gpu.kernel((FOLDER / label / made["cubin"]).read_bytes(), made["entry"])
            args = [
                ctypes.c_void_p({"x": x, "y": y}[a]) if isinstance(a, str) else ctypes.c_int(a) for a in made["args"]
            ]
            variants[label] = gpu.launcher(function, made["grid"], made["threads"], 0, args)
            gpu.fill(y, 0xA5, data.nbytes)
            variants[label]()
            gpu.synchronise()
            right[label] = bool((gpu.download(y, np.empty_like(wanted)) == wanted).all())
        rotated(variants, gpu.microseconds, WARM_UP)
        times = rotated(variants, gpu.microseconds, ROUNDS)
        medians = {n: statistics.median(v) for n, v in times.items()}
        row: dict[str, Any] = {
            "case": name,
            "right": right,
            "us": {n: round(v, 1) for n, v in medians.items()},
            "spread_us": {n: round(max(v) - min(v), 1) for n, v in times.items()},
            "of_copy": {n: round(medians["copy"] / v, 3) for n, v in medians.items()},
            "plan": {label: launches[label][name]["plan"] for label in labels},
        }
        rows.append(row)
        print(name, row["of_copy"], row["right"])
        gpu.free(x, y)
    result = {"command": "python benchmarks/transposes.py run", "device": gpu.name(), "rounds": ROUNDS, "rows": rows}
    if json_path:
        Path(json_path).write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--label", default="now")
    parser.add_argument("--tree", type=Path, default=ROOT.parent)
    parser.add_argument("--json")
    args = parser.parse_args()
    build(args.label, args.tree) if args.what == "build" else run(args.json)


if __name__ == "__main__":
    main()
