"""ARCHITECTURE.md lists the functions that an operand of a product passes, in the order of their first calls."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from support.processes import run_python

ROOT = Path(__file__).parents[2]
FUNCTION = re.compile(r"`([a-z_]+(?:\.\w+)+)`")


def listed() -> list[str]:
    """The functions of the table, row by row."""
    _, _, rest = (ROOT / "ARCHITECTURE.md").read_text().partition("## One operand, function by function")
    rows = (line.split("|")[2] for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| "))
    return [name for cell in rows for name in FUNCTION.findall(cell)]


class Calls(NamedTuple):
    """First calls of functions in their order, and the modules that call ``legal`` from outside."""

    order: list[str]
    askers: list[str]

    def first(self, name: str) -> int | None:
        """When a function, or anything of a class, was called first."""
        called = (at for at, found in enumerate(self.order) if found == name or found.startswith(f"{name}."))
        return next(called, None)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """Of a process of its own, in which nothing was compiled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("TILEWRIGHT_VALIDATION", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]))
        return Calls(*json.loads(run_python("from support.first_calls import record; record()")))


def test_the_functions_are_called_in_the_order_of_the_table(calls: Calls) -> None:
    first = {name: calls.first(name) for name in listed()}
    assert [name for name, at in first.items() if at is None] == []
    assert list(first) == sorted(first, key=lambda name: first[name] or 0)
    assert len(first) > 20


def test_legal_is_asked_when_choosing_for_the_plan_that_is_shown_and_by_the_proofs(calls: Calls) -> None:
    rooms = {".".join(name.split(".")[:2]) for name in calls.askers if not name.startswith(("legal.", "base."))}
    assert rooms == {"schedule.hopper", "compiler.verdicts", "compiler.proofs"}
