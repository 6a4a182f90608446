"""The error catalogue against the source that reports its codes and the tests that trigger them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tilewright.diag import Diagnostic, catalogue, render
from tilewright.diag.catalogue import CATALOGUE

ROOT = Path(__file__).parents[2]
MODULES = catalogue._MODULES
NAMED_IN_TESTS = ("ART", "CMD", "RUN")  # the rules of descriptors are tested from tables, without naming each code
CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")


@cache
def codes_in(folder: Path) -> set[str]:
    skipped = ROOT / "src" / "tilewright" / "diag" / "catalogue"
    files = (p for p in folder.rglob("*.py") if skipped not in p.parents)
    return {code for p in files for code in CODE.findall(p.read_text())}


def test_ids_are_unique_and_share_their_modules_prefix() -> None:
    ids = [code.id for module in MODULES for code in module.CODES]
    assert len(ids) == len(set(ids)) == len(CATALOGUE)
    assert all(CODE.fullmatch(i) for i in ids)
    for module in MODULES:
        assert len({code.id[:3] for code in module.CODES}) <= 1


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_an_entry_explains_and_helps(code: str) -> None:
    entry = CATALOGUE[code]
    assert entry.title
    assert not entry.title.endswith(".")
    assert entry.why.endswith(".")
    assert entry.source
    text = render(Diagnostic(code, found="found", required="required"))
    assert re.search(r"^help: \S", text, re.M)


@pytest.mark.parametrize("code", sorted(c for c in CATALOGUE if "language rules, " in CATALOGUE[c].source))
def test_rules_of_the_language_are_written_down(code: str) -> None:
    section = re.split("[:;]", CATALOGUE[code].source.split("language rules, ")[1])[0]
    assert f"\n## {section}\n" in (ROOT / "docs" / "language.md").read_text()


def test_codes_in_the_source_are_in_the_catalogue() -> None:
    known = {code[:3] for code in CATALOGUE}
    reported = {code for code in codes_in(ROOT / "src") if code[:3] in known}
    assert reported - CATALOGUE.keys() == set()


@pytest.mark.parametrize("code", sorted(c for c in CATALOGUE if c[:3] in NAMED_IN_TESTS))
def test_every_code_has_a_test_that_names_it(code: str) -> None:
    assert code in codes_in(ROOT / "tests")


def raised() -> list[tuple[str, ast.Call]]:
    """The calls in the source that report a code, with their places."""
    found: list[tuple[str, ast.Call]] = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(ast.Name("fail" | "refuse" | "Diagnostic"), [ast.Constant(str() as code), *_]):
                    if CODE.fullmatch(code):
                        found.append((f"{file.relative_to(ROOT)}:{node.lineno}", node))
                case _:
                    pass
    return found


def test_reporting_a_code_names_finding_and_requirement() -> None:
    calls = raised()
    silent = [
        f"{place} {missing}"
        for place, call in calls
        if (given := {k.arg for k in call.keywords}) and None not in given
        for missing in {"found", "required"} - given
    ]
    assert len(calls) > 100
    assert silent == []
