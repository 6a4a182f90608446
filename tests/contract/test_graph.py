"""The parametric proof on the event graph: what it proves, and what it must never prove."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilewright.contract.parametric import prove
from tilewright.protocol.model import Protocol

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from protocols import attention, gemm

PROVED = {
    "cooperative": gemm.cooperative(4, 2),
    "cooperative, one tile": gemm.cooperative(4, 2, persistent=False),
    "cooperative, three consumers": gemm.cooperative(3, 3),
    "multicast": gemm.multicast(4),
    "attention": attention.forward(2, 2),
    "attention, no turns": attention.forward(2, 1, ordered=False),
}


@pytest.mark.parametrize("name", PROVED)
def test_examples_are_proved_for_all_trip_counts_at_once(name: str) -> None:
    assert prove(PROVED[name]) == ""


@pytest.mark.parametrize("stages", [2, 7, 16])
def test_the_number_of_stages_does_not_matter(stages: int) -> None:
    protocol: Protocol = gemm.cooperative(stages, 1)
    assert prove(protocol) == ""
