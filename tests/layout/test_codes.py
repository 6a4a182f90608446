"""Every LAY code is complete, and some test of this room or of ``viz`` triggers it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tilewright.diag.catalogue import CATALOGUE
from tilewright.diag.catalogue.entry import Code

CODES = [code for id, code in CATALOGUE.items() if id.startswith("LAY")]
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("code", CODES, ids=[c.id for c in CODES])
def test_entry_is_complete_and_tested(code: Code) -> None:
    assert all((code.title, code.why, code.bad, code.good, code.source))
    here = [p for room in ("layout", "viz") for p in (TESTS / room).glob("test_*.py")]
    assert any(re.search(rf"\b{code.id}\b", p.read_text()) for p in here if p.name != Path(__file__).name)


def test_every_code_used_is_in_the_catalogue() -> None:
    source = TESTS.parent / "src" / "tilewright"
    used = {
        m
        for room in ("layout", "viz")
        for p in (source / room).rglob("*.py")
        for m in re.findall(r"LAY\d+", p.read_text())
    }
    assert used <= {c.id for c in CODES}
    assert used == {c.id for c in CODES}


def test_every_refusal_names_finding_requirement_and_remedy() -> None:
    calls = 0
    for path in (TESTS.parent / "src" / "tilewright" / "layout").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fail":
                calls += 1
                missing = {"found", "required", "help"} - {k.arg for k in node.keywords}
                assert not missing, f"{path.name}:{node.lineno}"
    assert calls > 80
