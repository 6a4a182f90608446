from __future__ import annotations

import dataclasses

import pytest

from tilewright.base.verdict import (
    Discharged,
    Factored,
    Illegal,
    Legal,
    Legality,
    Proof,
    Proved,
    Refuted,
    Repairs,
    Unknown,
    Violation,
)

CLASH = Violation("TMA012", "8200", "stride_bytes % 16 == 0", "CUDA Driver API")


def ask(verdict: Legality[int]) -> str:
    match verdict:
        case Legal(fields):
            return f"legal {fields}"
        case Factored(fields, residual):
            return f"factored {fields} {residual}"
        case Repairs(core, repairs):
            return f"repairs {len(core)} {len(repairs)}"
        case Illegal(core):
            return f"illegal {core[0].rule}"
        case Unknown(obligation):
            return f"unknown {obligation}"


def test_verdicts_are_distinguished() -> None:
    answers = [Legal(1), Factored(1, "registers"), Repairs((CLASH,), ()), Illegal((CLASH,)), Unknown("fits", "time")]
    assert [ask(a) for a in answers] == [
        "legal 1",
        "factored 1 registers",
        "repairs 1 0",
        "illegal TMA012",
        "unknown fits",
    ]


def test_unknown_is_neither_proved_nor_refuted() -> None:
    unknown: Proof[int] = Unknown("cover", "out of time")
    assert not isinstance(unknown, Proved | Refuted)
    assert unknown != Proved(())


def test_verdicts_are_immutable_values() -> None:
    assert Legal(1) == Legal(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Proved((Discharged("cover", "isl"),)).obligations = ()  # type: ignore[misc]
