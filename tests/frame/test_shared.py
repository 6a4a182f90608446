"""What the schedule and its judges both call: a bug is planted in each such function, and found."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tilewright"
sys.path.insert(0, str(ROOT / "tools"))

from planted.shared import SHARED  # noqa: E402

JUDGES = ("compiler/proofs", "verify", "ptx", "simulate", "validate")
APART = {("diag/__init__.py", "fail")}
"""Judges nothing: it raises what its caller says."""


@cache
def functions(file: str) -> dict[str, str]:
    """Functions of a file, with their text."""
    text = (SOURCES / file).read_text()
    lines = text.splitlines()
    found = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found}


def file_of(module: str) -> str:
    path = Path(*module.split(".")[1:])
    return str(path / "__init__.py") if (SOURCES / path).is_dir() else f"{path}.py"


@cache
def called(room: str) -> set[tuple[str, str]]:
    """Functions that the files of a room import by name: the file of each, and its name."""
    nodes = (node for file in (SOURCES / room).rglob("*.py") for node in ast.parse(file.read_text()).body)
    taken = (n for n in nodes if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("tilewright."))
    names = ((str(node.module), alias.name) for node in taken for alias in node.names)
    inside = ((file_of(module), name) for module, name in names)
    return {(file, name) for file, name in inside if (SOURCES / file).exists() and name in functions(file)}


def reached(file: str, name: str) -> Iterator[str]:
    """The text of a function and of those that it calls in its own file."""
    pending, seen = [name], {name}
    while pending:
        text = functions(file)[pending.pop()]
        yield text
        new = [other for other in functions(file) if f"{other}(" in text and other not in seen]
        seen.update(new)
        pending += new


@pytest.mark.parametrize("judge", JUDGES)
def test_a_bug_is_planted_in_what_a_judge_shares_with_the_schedule(judge: str) -> None:
    shared = called(judge) & called("schedule")
    for file, name in sorted(shared - APART):
        planted = [mutant.old for mutant in SHARED if mutant.file == file]
        assert any(old.strip() in text for old in planted for text in reached(file, name)), f"no bug in {file}: {name}"
