"""ARCHITECTURE.md lists the functions that an operand of a product passes, in the order of their first calls."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import ml_dtypes
import numpy as np
import pytest

from support.products import nt
from support.ptx_driver import run_artifact

ROOT = Path(__file__).parents[2]
PACKAGE = str(ROOT / "src" / "tilewright") + "/"
FUNCTION = re.compile(r"`([a-z_]+(?:\.\w+)+)`")


def listed() -> list[str]:
    """The functions of the table, row by row."""
    _, _, rest = (ROOT / "ARCHITECTURE.md").read_text().partition("## One operand, function by function")
    rows = (line.split("|")[2] for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| "))
    return [name for cell in rows for name in FUNCTION.findall(cell)]


def module(code: CodeType) -> str:
    return code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")


class Calls:
    """First calls of functions in their order, by all threads, and the modules that call ``legal`` from outside."""

    def __init__(self) -> None:
        self.order: dict[str, None] = {}
        self.askers: set[str] = set()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        self.order.setdefault(f"{module(code)}.{code.co_qualname}")
        caller = frame.f_back
        if module(code).startswith("legal.") and caller is not None and caller.f_code.co_filename.startswith(PACKAGE):
            self.askers.add(module(caller.f_code))

    def first(self, name: str) -> int | None:
        """When a function, or anything of a class, was called first."""
        called = (at for at, found in enumerate(self.order) if found == name or found.startswith(f"{name}."))
        return next(called, None)


def watched(calls: Calls, work: Callable[[], object]) -> None:
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """A product compiled, validated, stored and launched on the PTX machine."""
    found = Calls()
    a, b, c = (np.ones((64, 64), ml_dtypes.bfloat16) for _ in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("TILEWRIGHT_VALIDATION", "1")

        def work() -> None:
            run_artifact(nt.compile(dtypes=dict.fromkeys("abc", "bf16")), {"a": a, "b": b, "c": c})

        watched(found, work)
    assert (c == 64).all()
    return found


def test_the_functions_are_called_in_the_order_of_the_table(calls: Calls) -> None:
    first = {name: calls.first(name) for name in listed()}
    assert [name for name, at in first.items() if at is None] == []
    assert list(first) == sorted(first, key=lambda name: first[name] or 0)
    assert len(first) > 20


def test_legal_is_asked_when_choosing_for_the_plan_that_is_shown_and_by_the_proofs(calls: Calls) -> None:
    rooms = {".".join(name.split(".")[:2]) for name in calls.askers if not name.startswith(("legal.", "base."))}
    assert rooms == {"schedule.hopper", "compiler.verdicts", "compiler.proofs"}
