"""The plan tells of every access what the legality rules say, at the user's line, and how it is made."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import tilewright as tw
from support import products as p
from tilewright.base.verdict import Illegal, Legal, Repairs
from tilewright.compiler.program import plan
from tilewright.hw.target import SM90A
from tilewright.legal.repair_types import Change
from tilewright.schedule.facts import CallFacts, TensorFacts

ODD = CallFacts((("a", TensorFacts(1, 8)), ("b", TensorFacts(1, 16)), ("c", TensorFacts(1, 8))))


def test_aligned_products() -> None:
    (variant, *_) = plan(p.request(p.nt)).variants
    a, b, c = variant.verdicts(SM90A)
    line = p.nt.function.where.line if hasattr(p.nt, "function") else p.nt.where.line
    for verdict, word in ((a, "load of"), (b, "load of"), (c, "store to")):
        assert isinstance(verdict.answer, Legal)
        assert (verdict.word, verdict.repair) == (word, "")
        assert "tensor copies" in verdict.made
    assert [v.place.rpartition(":")[2] for v in (a, b, c)] == [str(line + n) for n in (5, 5, 6)]
    remarks = "\n".join(variant.remarks("sm_90a"))
    assert "load of a [64 x 64] legal for tensor copies; by tensor copies" in remarks
    operand = "K-major, 64 x 64, 128-byte swizzle, leading offset 16 and stride offset 1024 bytes"
    assert f"left operand of wgmma in shared memory: {operand}" in remarks


def test_a_staged_operand_shows_the_rule_and_the_repair() -> None:
    asked = replace(p.request(p.nt), facts=ODD, schedule=tw.Schedule(staged=True))
    a, b, c = plan(asked).variants[0].verdicts(SM90A)
    assert isinstance(a.answer, Repairs)
    assert {v.rule for v in a.core} == {"TMA010", "TMA012"}
    assert a.repair in {r.action for r in a.answer.repairs if r.fields.change is Change.PAD}
    assert a.made == ("tensor copies",)
    assert isinstance(b.answer, Legal)
    assert b.repair == ""
    assert isinstance(c.answer, Illegal)
    assert c.made == ("threads, 8 bytes at a time",)
    assert "not legal for tensor copies: TMA010, TMA012" in str(a)


def test_the_fallback_names_its_threads() -> None:
    asked = replace(p.request(p.nt), facts=ODD, schedule=tw.Schedule(staged=False))
    a, b, _ = plan(asked).variants[0].verdicts(SM90A)
    assert isinstance(a.answer, Repairs)
    assert a.made == ("cp.async, 8 bytes at a time",)
    assert a.taken is not None
    assert a.taken.fields.change is Change.CP_ASYNC
    assert isinstance(b.answer, Legal)


def test_every_repair_that_was_not_taken_is_shown_with_its_reason() -> None:
    asked = replace(p.request(p.nt), facts=ODD, schedule=tw.Schedule(staged=False))
    variant = plan(asked).variants[0]
    a = variant.verdicts(SM90A)[0]
    assert isinstance(a.answer, Repairs)
    assert len(a.rejected) == len(a.answer.repairs) - 1
    reasons = dict(a.rejected)
    assert any("through registers" in action and "dearer" in why for action, why in reasons.items())
    assert any("padded rows" in action and "where it pays" in why for action, why in reasons.items())
    remarks = variant.remarks("sm_90a")
    assert all(any(f"{a.place}: a, rejected: {action} (" in line for line in remarks) for action in reasons)


def test_rows_of_odd_elements_are_loaded_and_stored() -> None:
    facts = CallFacts(tuple((name, TensorFacts(1, 2)) for name in "abc"))
    a, *_ = plan(replace(p.request(p.nt), facts=facts, schedule=tw.Schedule(staged=False))).variants[0].verdicts(SM90A)
    assert a.made == ("threads, 2 bytes at a time",)
    assert a.taken is not None
    assert a.taken.fields.change is Change.LOADS


def test_solvers_stay_away_where_every_access_is_legal() -> None:
    program = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support import products as p\n"
        "from tilewright.compiler.program import plan\n"
        "plan(p.request(p.nt)).variants[0].remarks('sm_90a')\n"
        "assert not {'z3', 'egglog'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
