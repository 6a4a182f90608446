"""``import tilewright`` is quick and loads the language only."""

from __future__ import annotations

import pytest

from support.processes import run_python

HEAVY = ("xdsl", "z3", "egglog", "islpy", "numpy", "cuda", "torch", "flint", "rich", "typer")


@pytest.mark.parametrize("module", ["tilewright", "tilewright.artifact.store", "tilewright.diag.catalogue"])
def test_nothing_heavy_is_loaded(module: str) -> None:
    loaded = run_python(f"import sys, {module}; print(*(m for m in {HEAVY} if m in sys.modules))").split()
    assert loaded == []


def test_compiling_loads_neither_validation_nor_solvers() -> None:
    code = (
        "import sys; sys.path.insert(0, 'examples'); import attention; from tilewright.compiler import build; "
        "attention.attention.plan(dtypes=dict.fromkeys('qkvo', 'bf16')); "
        "rooms = {'tilewright.validate.transport_to_ptx', 'tilewright.ptx', 'islpy', 'z3', 'egglog'}; "
        "print(*(rooms & sys.modules.keys()))"
    )
    assert run_python(code).split() == []


def test_import_is_quick() -> None:
    # processor time in the best of many processes, 40 to 80 ms on an idle core by the build of Python (goal: 100 ms)
    code = "import time; t = time.process_time(); import tilewright; print(time.process_time() - t)"
    assert any(float(run_python(code)) <= 0.150 for _ in range(40))
