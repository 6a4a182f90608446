"""``import tilewright`` is quick and loads the language only."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numpy", "xdsl", "z3", "islpy", "egglog", "cuda", "torch", "ml_dtypes")
PROGRAM = f"""
import sys, time
start = time.process_time()  # this process's own work, whatever else the machine does
import tilewright as tw
took = time.process_time() - start
loaded = [m for m in {HEAVY!r} if m in sys.modules]
print(took, *loaded)
"""


def test_import_loads_nothing_heavy() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(7)
    ]
    assert not any(loaded for _, *loaded in runs)
    assert min(float(took) for took, *_ in runs) < 0.1
