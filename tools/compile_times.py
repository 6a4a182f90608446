"""How long compiling takes up to CUDA text, proofs included: milliseconds of processor time by pass, NVRTC's apart.

    python tools/compile_times.py [--processes N] [--json FILE]

Each kernel is compiled in bf16 into an empty store, in processes of its own: ``first`` where only a kernel of another
kind was compiled before (``add``), so that every proof is new to the process, ``warm`` where the same kernel was
compiled in f16 before, so that expressions are known and equal protocols need no second proof. Of N processes the
quickest is told: others were slowed by the rest of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from tilewright.compiler.timing import watch

EXAMPLES = Path(__file__).parents[1] / "examples"
KERNELS = {
    "softmax.softmax": "x y",
    "norms.rms_norm": "x w y",
    "matmul.matmul": "a b c",
    "attention.attention": "q k v o",
}
BELOW = ("assemble", "guard", "validate")
"""Passes behind the CUDA text: NVRTC, what is read in its PTX, and the validation of kernels compiled ahead of time."""


def compiled(path: str, tensors: str, dtype: str) -> dict[str, float]:
    """Milliseconds by pass of one compilation into an empty store; ``assemble`` is what NVRTC's threads take."""
    module, _, name = path.partition(".")
    kernel = getattr(__import__(module), name)
    with tempfile.TemporaryDirectory() as store, watch(time.thread_time) as stopwatch:
        os.environ["TILEWRIGHT_STORE"] = store
        begin = time.process_time() - time.thread_time()
        artifact = kernel.compile(dtypes=dict.fromkeys(tensors.split(), dtype))
        assembled = time.process_time() - time.thread_time() - begin
    found = {name: round(seconds * 1e3, 1) for name, seconds in stopwatch.seconds.items()}
    ours = round(sum(ms for name, ms in found.items() if name not in BELOW), 1)
    return {"ours": ours, "kernels": len(artifact.kernels), **found, "assemble": round(assembled * 1e3, 1)}


def child(path: str, before: str) -> None:
    """Times one kernel in this process, whose PTX is not compared."""
    os.environ["TILEWRIGHT_VALIDATION"] = "0"
    sys.path.insert(0, str(EXAMPLES))
    compiled(before, {**KERNELS, "add.add": "x y z"}[before], "f16")
    print(json.dumps(compiled(path, KERNELS[path], "bf16")))


def times(path: str, before: str, processes: int) -> dict[str, float]:
    """The times of a kernel in a new process, after another kernel; of the quickest of some processes."""
    command = [sys.executable, __file__, "--child", path, before]
    told = (subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(processes))
    return min(map(json.loads, told), key=lambda found: found["ours"])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    rows: list[dict[str, object]] = []
    for path in KERNELS:
        row = {name: times(path, before, args.processes) for name, before in (("first", "add.add"), ("warm", path))}
        print(f"{path}: {row['first']['kernels']} kernels, {row['first']['ours']} ms, warm {row['warm']['ours']} ms")
        rows.append({"kernel": path, **row})
    if args.json:
        found = {
            "command": " ".join(["python", *sys.argv]),
            "date": str(date.today()),
            "python": platform.python_version(),
        }
        args.json.write_text(json.dumps(found | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
