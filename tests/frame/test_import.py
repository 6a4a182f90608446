"""``import tilewright`` is quick and loads the language only."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("xdsl", "z3", "egglog", "islpy", "numpy", "cuda", "torch", "flint", "rich", "typer")


def python(code: str) -> str:
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=compiled).stdout


@pytest.mark.parametrize("module", ["tilewright", "tilewright.artifact.store", "tilewright.diag.catalogue"])
def test_nothing_heavy_is_loaded(module: str) -> None:
    loaded = python(f"import sys, {module}; print(*(m for m in {HEAVY} if m in sys.modules))").split()
    assert loaded == []


def test_import_takes_at_most_100_ms() -> None:
    # processor time of the import, in the best of many processes: what else runs at the moment slows it
    code = "import time; t = time.process_time(); import tilewright; print(time.process_time() - t)"
    assert any(float(python(code)) <= 0.100 for _ in range(40))
