"""The whole table of speed goals: other benchmarks, built and run in turn, in three parts of at most ten minutes.

    python benchmarks/speed_table.py products  --json benchmarks/results
    python benchmarks/speed_table.py attention --json benchmarks/results
    python benchmarks/speed_table.py others    --json benchmarks/results

Needs the compiler on the machine with the GPU. Every row is timed beside its peer in one process; ``--rounds`` for all.
Prints the seconds that each step took.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

CHOICES = "product_choices.py"
PARTS = {
    "products": (
        (CHOICES, "build --drawn 0 --only=-", None),
        (CHOICES, "run --drawn 0", "product_choices_table"),
        *(
            step
            for kind in ("row_major", "batched", "e4m3")
            for step in (
                (CHOICES, f"build --kind {kind} --drawn 0 --only=-", None),
                (CHOICES, f"run --kind {kind} --drawn 0", f"product_choices_{kind}"),
            )
        ),
        ("speed_cases.py", "", "speed_cases"),
        ("products.py", "build --only gate", None),
        ("products.py", "run --only gate", "products_gate"),
    ),
    "attention": (
        ("products.py", "build --only accurate", None),
        ("products.py", "run --only attention", "attention_forward"),
        ("attention_backward.py", "build", None),
        ("attention_backward.py", "run", "attention_backward"),
    ),
    "others": (
        ("speed_rows.py", "", "speed_rows"),
        ("host.py", "build", None),
        ("host.py", "run", "host"),
    ),
}
"""Script, arguments, and the document that it writes. ``--only=-`` leaves out the ways that are not chosen."""


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("part", choices=PARTS)
    made.add_argument("--json", default=".", help="the folder of the documents")
    made.add_argument("--rounds", default="9")
    args = made.parse_args()
    began = time.perf_counter()
    for script, options, name in PARTS[args.part]:
        more = [] if name is None else ["--rounds", args.rounds, "--json", f"{args.json}/{name}.json"]
        subprocess.run([sys.executable, str(Path(__file__).parent / script), *options.split(), *more], check=True)
        print(f"{time.perf_counter() - began:.0f} s: {script} {options}", flush=True)


if __name__ == "__main__":
    main()
