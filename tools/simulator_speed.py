"""How long the simulator takes: CPU seconds of one core, the kernel planned before.

    python tools/simulator_speed.py [--json FILE]

The least of three runs each, with NumPy's threads left as they are.
"""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import ml_dtypes
import numpy as np

import tilewright as tw

GOALS = {"sum of 10^6 f32": 1.0, "matmul bf16 512^3": 2.0, "matmul f32 128^3, tiles of 128x64x64": 1.0}
"""Seconds; f32 512^3 has none."""


@tw.kernel
def total(x: tw.Tensor["N"], y: tw.Tensor[1], *, block=tw.auto):
    n = tw.grid(x, block)
    tw.reduce_add(y, (0,), x[n].sum(0))


@tw.kernel
def matmul(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=128, bn=128, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[k, n])
    c[m, n] = acc


def product(size: int, dtype: type, **tiles: int) -> Callable[[], None]:
    """A product of square matrices."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(dtype) for _ in range(2))
    c = np.empty((size, size), np.float32)
    return lambda: matmul(a, b, c, **tiles)


def cases() -> dict[str, Callable[[], None]]:
    """What is measured."""
    x, y = np.random.default_rng(0).standard_normal(10**6).astype(np.float32), np.zeros(1, np.float32)
    return {
        "sum of 10^6 f32": lambda: total(x, y),
        "matmul bf16 512^3": product(512, ml_dtypes.bfloat16),
        "matmul f32 128^3, tiles of 128x64x64": product(128, np.float32, bm=128, bn=64, bk=64),
        "matmul f32 512^3, tiles of 128x64x64": product(512, np.float32, bm=128, bn=64, bk=64),
    }


def seconds(run: Callable[[], None]) -> float:
    """CPU seconds of the quickest of three runs."""
    run()
    times: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times)


def main() -> None:
    """Measures, and compares with the goals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {name: round(seconds(run), 2) for name, run in cases().items()}
    for name, took in found.items():
        print(f"{name}: {took} s" + (f" (goal {GOALS[name]} s)" if name in GOALS else ""))
    if args.json:
        told = {
            "command": "python tools/simulator_speed.py",
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "processor": platform.machine(),
            "numpy": version("numpy"),
            "cpu_seconds": found,
            "goals": GOALS,
        }
        args.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
