"""Every re-created bug is refuted under its name, its mended twin is proved, and the twins differ by the fix alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import pytest
from museum import DECOYS, EXHIBITS, Exhibit

from tilewright.base.verdict import Proved, Refuted
from tilewright.diag import Severity
from tilewright.protocol.model import If, Loop, Node, Step
from tilewright.verify import Policy, check, verify

pytestmark = pytest.mark.sample(12)

ENTRIES = json.loads((Path(__file__).parents[1] / "data/real_bugs.json").read_text())
REFUTED = [name for name, x in EXHIBITS.items() if not x.advisory]
LENIENT = [name for name, x in EXHIBITS.items() if x.lenient]
FENCED = [name for name, x in EXHIBITS.items() if x.code in ("MBR019", "MBR020", "MBR022") and not x.lenient]
"""Bugs about fences that no policy forgives."""


def test_every_entry_is_on_show() -> None:
    assert {x.entry for x in EXHIBITS.values()} == {e["id"] for e in ENTRIES["bugs"]}
    assert set(DECOYS) == {e["id"] for e in ENTRIES["decoys"]}


@pytest.mark.parametrize("name", REFUTED)
def test_bug_is_refuted_under_its_name(name: str) -> None:
    x = EXHIBITS[name]
    verification = verify(x.build(False))
    assert isinstance(verification.proof, Refuted), verification.proof
    assert verification.proof.witness.code == x.code, verification.proof.witness.detail
    assert verification.diagnostics[0].code == x.code
    assert verification.replayed


@pytest.mark.parametrize("name", EXHIBITS)
def test_repaired_twin_is_proved(name: str) -> None:
    verification = verify(EXHIBITS[name].build(True))
    assert isinstance(verification.proof, Proved), verification.proof
    assert not verification.diagnostics


@pytest.mark.parametrize("name", LENIENT)
def test_bug_is_a_warning_when_lenient(name: str) -> None:
    x = EXHIBITS[name]
    verification = verify(x.build(False), Policy.LENIENT)
    assert isinstance(verification.proof, Proved), verification.proof
    assert {(d.code, d.severity) for d in verification.diagnostics} == {(x.code, Severity.WARNING)}


@pytest.mark.parametrize("name", sorted(set(EXHIBITS) - set(REFUTED)))
def test_advisory_is_a_warning_when_strict(name: str) -> None:
    verification = verify(EXHIBITS[name].build(False))
    assert isinstance(verification.proof, Proved), verification.proof
    assert {(d.code, d.severity) for d in verification.diagnostics} == {(EXHIBITS[name].code, Severity.WARNING)}


@pytest.mark.parametrize("name", FENCED)
def test_bug_is_refuted_when_lenient_too(name: str) -> None:
    assert isinstance(check(EXHIBITS[name].build(False), Policy.LENIENT), Refuted)


@pytest.mark.parametrize("name", EXHIBITS)
def test_twins_differ_by_the_fix_alone(name: str) -> None:
    x = EXHIBITS[name]
    assert difference(x) == Counter(x.fix)


@pytest.mark.parametrize("name", DECOYS)
def test_decoy_is_clean(name: str) -> None:
    verification = verify(DECOYS[name]())
    assert isinstance(verification.proof, Proved), verification.proof
    advisories = {"MBR022"} if name == "OK-09" else set()  # its barriers have no init fence either
    assert {d.code for d in verification.diagnostics} == advisories


def difference(x: Exhibit) -> Counter[str]:
    """Lines that the twin has more (+) or less (-): ops, and the heads of loops and conditions."""
    bug, twin = x.build(False), x.build(True)
    found: Counter[str] = Counter()
    for old, new in zip(bug.roles, twin.roles, strict=True):
        before, after = list(_lines(old.body, 0)), list(_lines(new.body, 0))
        for _, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if before[i1:i2] != after[j1:j2]:
                found.update("-" + line.kind for line in before[i1:i2])
                found.update("+" + line.kind for line in after[j1:j2])
    return found


class Line(NamedTuple):
    """A line of a role's program: what it is, how deep it stands, and all it says."""

    kind: str
    depth: int
    content: tuple[object, ...]


def _lines(nodes: tuple[Node, ...], depth: int) -> Iterator[Line]:
    for node in nodes:
        match node:
            case Step():
                yield Line(type(node.op).__name__, depth, (node.op, node.by))
            case Loop():
                yield Line("Loop", depth, (node.counter, node.begin, node.end, node.step))
                yield from _lines(node.body, depth + 1)
            case If():
                yield Line("If", depth, (node.condition,))
                yield from _lines(node.then, depth + 1)
                yield Line("Else", depth, ())
                yield from _lines(node.otherwise, depth + 1)
