"""``import tilewright`` is quick and loads the language only."""

from __future__ import annotations

import pytest

from support.processes import run_python

HEAVY = ("xdsl", "z3", "egglog", "islpy", "numpy", "cuda", "torch", "flint", "rich", "typer")


@pytest.mark.parametrize("module", ["tilewright", "tilewright.artifact.store", "tilewright.diag.catalogue"])
def test_nothing_heavy_is_loaded(module: str) -> None:
    loaded = run_python(f"import sys, {module}; print(*(m for m in {HEAVY} if m in sys.modules))").split()
    assert loaded == []


def test_import_takes_at_most_100_ms() -> None:
    # processor time of the import, in the best of many processes: what else runs at the moment slows it
    code = "import time; t = time.process_time(); import tilewright; print(time.process_time() - t)"
    assert any(float(run_python(code)) <= 0.100 for _ in range(40))
