"""Every re-created bug is refuted under its name, and its mended twin is proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from museum import EXHIBITS

from tilewright.base.verdict import Proved, Refuted
from tilewright.contract import Policy, check, judge

ENTRIES = {e["id"]: e for e in json.loads((Path(__file__).parents[1] / "data/real_bugs.json").read_text())["bugs"]}


@pytest.mark.parametrize("name", EXHIBITS)
def test_bug_is_refuted(name: str) -> None:
    assert name in ENTRIES
    build, codes = EXHIBITS[name]
    judgement = judge(build(False))
    assert isinstance(judgement.proof, Refuted), judgement.proof
    assert judgement.proof.witness.code in codes, judgement.proof.witness.detail
    assert judgement.diagnostics[0].code == judgement.proof.witness.code
    assert judgement.replayed


@pytest.mark.parametrize("name", EXHIBITS)
def test_fixed_twin_is_proved(name: str) -> None:
    proof = check(EXHIBITS[name][0](True))
    assert isinstance(proof, Proved), proof


@pytest.mark.parametrize("name", ["FA-02", "XX-04", "TE-01"])
def test_unfenced_generic_reads_are_a_warning_when_lenient(name: str) -> None:
    judgement = judge(EXHIBITS[name][0](False), Policy.LENIENT)
    assert isinstance(judgement.proof, Proved), judgement.proof
    assert any(d.code == "MBR020" for d in judgement.diagnostics)
