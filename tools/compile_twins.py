"""How long indirect kernels take to compile beside their direct twins: milliseconds, NVRTC apart.

    python tools/compile_twins.py [--processes N] [--json FILE]

Each kernel is compiled in bf16 into an empty store, all variants, with proofs and validation, in a process of its own
where only ``add`` was compiled before. The quickest of N processes is told, of CPU time, so that a busy machine counts
as little as it can.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import tilewright as tw


@tw.kernel
def add(x: tw.Tensor["N"], y: tw.Tensor["N"], z: tw.Tensor["N"]):
    n = tw.grid(x, 1024)
    z[n] = x[n] + y[n]


@tw.kernel
def rows(x: tw.Tensor["T", "D"], y: tw.Tensor["T", "D"]):
    t, d = tw.grid(x, (4, 1024))
    y[t, d] = x[t, d]


@tw.kernel
def gathered_rows(index: tw.Tensor["T"], x: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
    t, d = tw.grid(y, (4, 1024))
    y[t, d] = x[index[t], d]


@tw.kernel
def scattered_rows(index: tw.Unique["T"], x: tw.Tensor["T", "D"], y: tw.Tensor["V", "D"]):
    t, d = tw.grid(x, (4, 1024))
    y[index[t], d] = x[t, d]


@tw.kernel
def added_rows(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], y: tw.Tensor["V", "D"]):
    t, d = tw.grid(x, (4, 1024))
    tw.reduce_add(y, (index[t], d), x[t, d])


TWINS = {"gathered_rows": "rows", "scattered_rows": "rows", "added_rows": "rows"}


def child(name: str) -> None:
    """Times one kernel in this process: CPU time of the thread that compiles; NVRTC has threads of its own."""
    for kernel in (add, globals()[name]):
        with tempfile.TemporaryDirectory() as store:
            os.environ["TILEWRIGHT_STORE"] = store
            begin = time.thread_time()
            dtypes = {p: "i32" if p == "index" else "bf16" for p in inspect.signature(kernel).parameters}
            kernel.compile(dtypes=dtypes)
            seconds = time.thread_time() - begin
    print(round(seconds * 1e3))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    names = [*dict.fromkeys(TWINS.values()), *TWINS]
    found: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(args.processes):
        for name in names:
            command = [sys.executable, __file__, "--child", name]
            found[name].append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    least = {name: min(times) for name, times in found.items()}
    for name, twin in TWINS.items():
        print(f"{name}: {least[name]} ms, its twin {least[twin]}: {least[name] / least[twin]:.2f}")
    if args.json:
        told = {"command": " ".join(["python", *sys.argv]), "date": str(date.today())}
        args.json.write_text(json.dumps(told | {"python": platform.python_version(), "ms": least}, indent=1) + "\n")


if __name__ == "__main__":
    main()
