"""The first call of an operator in a fresh process, whose artifacts are shipped and which has no compiler.

    python benchmarks/first_calls.py build           # on a GPU, with the compiler: fills a folder of shipped artifacts
    python benchmarks/first_calls.py run --json benchmarks/results/first_calls.json

Each case of ``run`` is a process of its own, in which the packages of the extra ``compiler`` can't be imported and the
user's store is empty. It imports PyTorch and makes a tensor on the GPU, which is not counted; then it imports
the operator of ``tilewright.ops`` and calls it, until its result is there. Milliseconds, medians of the processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from harness import ARTIFACTS, document, parser, write

SHIPPED = ARTIFACTS / "first_calls"
COMPILER = ("egglog", "flint", "islpy", "ml_dtypes", "xdsl", "z3")
"""Packages without which nothing is compiled."""


def cases(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """A call of ``ops`` by name."""

    def made(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    return {
        "softmax 4096x4096": lambda ops: ops.softmax(made(4096, 4096)),
        "rms_norm 4096x4096": lambda ops: ops.rms_norm(made(4096, 4096), made(4096)),
        "linear 4096x4096x4096": lambda ops: ops.linear(made(4096, 4096), made(4096, 4096)),
        "attention 2x16x1024x128": lambda ops: ops.attention(*(made(2, 16, 1024, 128) for _ in range(3)), causal=True),
        "moe 1024x1024, 8 experts": lambda ops: ops.moe(
            made(1024, 1024), made(8, 1024), made(8, 2048, 1024), made(8, 1024, 1024), k=2
        ),
    }


def child(name: str, alone: bool) -> None:
    """Times one case in this process and prints the milliseconds as JSON; ``alone`` is without the compiler."""
    times: dict[str, float] = {}
    begin = time.perf_counter()

    def lap(what: str) -> None:
        nonlocal begin
        now = time.perf_counter()
        times[what], begin = (now - begin) * 1e3, now

    if alone:
        sys.meta_path.insert(0, _Missing())
    import torch

    lap("import torch")
    torch.randn(8, device="cuda", dtype=torch.bfloat16).sum().item()
    lap("first tensor on the GPU")
    from tilewright import ops

    getattr(ops, name.partition(" ")[0])  # imports it
    lap("import of the operator")
    for what in ("first call", "second call"):
        cases(torch)[name](ops)
        torch.cuda.synchronize()
        lap(what)
    assert not alone or "tilewright.compiler.build" not in sys.modules, "compiled"
    print(json.dumps(times))


class _Missing:
    """Finds no package of the compiler."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in COMPILER:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def started(name: str, *more: str, **environment: str) -> subprocess.Popen[str]:
    """A process for one case."""
    kept = {n: v for n, v in os.environ.items() if n not in ("PYTHONDONTWRITEBYTECODE", "TILEWRIGHT_STORE")}
    command = [sys.executable, __file__, "child", name, *more]
    return subprocess.Popen(command, env=kept | environment, stdout=subprocess.PIPE, text=True)


def answered(process: subprocess.Popen[str]) -> dict[str, float]:
    """Its times."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])


def build(names: list[str]) -> None:
    """Call every case once, with the compiler, into the folder."""
    running = [started(name, TILEWRIGHT_STORE=str(SHIPPED), TILEWRIGHT_VALIDATION="0") for name in names]
    for name, process in zip(names, running, strict=True):
        print(name, {n: round(t) for n, t in answered(process).items()}, flush=True)
    print(sum(1 for _ in SHIPPED.rglob("*.twb")), "artifacts", flush=True)


def run(names: list[str], rounds: int, path: str) -> None:
    """Print and write the times of every case."""
    import torch

    rows: list[dict[str, Any]] = []
    for name in names:
        with tempfile.TemporaryDirectory() as empty:
            environment = {"TILEWRIGHT_STORE": empty, "TILEWRIGHT_SHIPPED": str(SHIPPED)}
            found = [answered(started(name, "alone", **environment)) for _ in range(rounds)]
        times = {what: round(statistics.median(each[what] for each in found), 1) for what in found[0]}
        rows.append({"case": name, "milliseconds": times})
        print(rows[-1], flush=True)
        write(document(torch, rounds=rounds, rows=rows), path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], sys.argv[3:] == ["alone"])
        raise SystemExit
    given = parser(__doc__, "cases whose name contains this", rounds=3).parse_args()
    wanted = [name for name in cases(None) if given.only in name]
    build(wanted) if given.what == "build" else run(wanted, given.rounds, given.json)
