"""The whole table of speed goals: other benchmarks, built and run in turn, in three parts of at most ten minutes.

    python benchmarks/speed_table.py products  --json benchmarks/results
    python benchmarks/speed_table.py attention --json benchmarks/results
    python benchmarks/speed_table.py others    --json benchmarks/results

Needs the compiler on the machine with the GPU. First everything is compiled, in processes at one time (``--rounds 0``:
by a call that is not timed); then each benchmark runs alone, every row beside its peer in one process, with
``--rounds``. A benchmark that fails leaves the others. Prints the seconds that each step took.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHOICES = "product_choices.py"
KINDS = ("row_major", "batched", "e4m3")
WARM = "--rounds 0 --only"
PARTS: dict[str, tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, str, str], ...]]] = {
    "products": (
        (
            (CHOICES, "build --drawn 0 --only=-"),
            *((CHOICES, f"build --kind {kind} --drawn 0 --only=-") for kind in KINDS),
            ("products.py", "build --only gate"),
            *(
                ("speed_cases.py", WARM, case)
                for case in ("A B ", "A B^T 1", "A B^T 2", "A B^T 3", "A B^T 4", "A B^T 6", "A B^T 7", "A B^T 8",
                             "e4m3 4", "e4m3 6", "e4m3 8", "e4m3 promoted", "e4m3 scales of rows",
                             "e4m3 scales of blocks", "batched", "bias")
            ),
        ),
        (
            (CHOICES, "run --drawn 0", "product_choices_table"),
            *((CHOICES, f"run --kind {kind} --drawn 0", f"product_choices_table_{kind}") for kind in KINDS),
            ("speed_cases.py", "", "speed_cases"),
            ("products.py", "run --only gate", "products_gate"),
        ),
    ),
    "attention": (
        (("products.py", "build --only accurate"), ("attention_backward.py", "build")),
        (
            ("products.py", "run --only attention", "attention_forward"),
            ("attention_backward.py", "run", "attention_backward"),
        ),
    ),
    "others": (
        (
            *(("speed_rows.py", WARM, group) for group in ("norms", "losses", "few_rows", "attentions")),
            ("host.py", "build"),
            *(("dependent_launch.py", WARM, case) for case in ("1x256", "16x1024", "64x4096")),
        ),
        (
            ("speed_rows.py", "", "speed_rows"),
            ("host.py", "run", "host"),
            ("dependent_launch.py", "", "dependent_launch"),
        ),
    ),
}  # fmt: skip
"""Of each part what is compiled (script, arguments, one with spaces), and what is run: script, arguments, and the
document that it writes. ``--only=-`` leaves out the ways that are not chosen."""


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("part", choices=PARTS)
    made.add_argument("--json", default=".", help="the folder of the documents")
    made.add_argument("--rounds", default="9")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    args = made.parse_args()
    began, failed = time.perf_counter(), list[str]()
    environment = {"TILEWRIGHT_VALIDATION": "0", **os.environ}

    def done(script: str, options: list[str], *, quiet: bool) -> None:
        command = [sys.executable, str(Path(__file__).parent / script), *options]
        said = subprocess.run(command, env=environment, capture_output=quiet, text=True)
        print(f"{time.perf_counter() - began:.0f} s: {script} {' '.join(options)}", flush=True)
        if said.returncode:
            failed.append(script)
            print(said.stderr or "failed", flush=True)

    builds, runs = PARTS[args.part]
    with ThreadPoolExecutor(args.jobs) as pool:
        tasks = [pool.submit(done, script, [*options.split(), *one], quiet=True) for script, options, *one in builds]
    for task in tasks:
        task.result()
    for script, options, name in runs:
        more = ["--rounds", args.rounds, "--json", f"{args.json}/{name}.json"]
        done(script, [*options.split(), *more], quiet=False)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
