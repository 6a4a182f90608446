"""Accumulators: which registers and lanes hold them, and what each instruction does with what they held."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import IntAttr

import tilewright as tw
from support import products as p
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.schedule import distribute
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport import asynchronous as a


def lowered(kernel: tw.Kernel, candidate: Candidate | None = None, **keywords: object) -> p.Lowered:
    found = p.lower(kernel, candidate or Candidate(1, stages=2), **keywords)  # pyright: ignore[reportArgumentType]
    assert not isinstance(found, Refused), found.reason
    return found


def instructions(found: p.Lowered) -> list[a.Wgmma]:
    return [op for op in found.scheduled.kernel.walk() if isinstance(op, a.Wgmma)]


@pytest.mark.parametrize(
    ("kernel", "adds"), [(p.nt, [1, 1, 1, 1]), (p.scaled_rows, [0, 1, 1, 1])], ids=["sum", "fresh"]
)
def test_what_accumulators_held_is_added_or_ignored_as_the_program_says(kernel: tw.Kernel, adds: list[int]) -> None:
    found = lowered(kernel)
    ops = instructions(found)
    assert [op.scale_d.data for op in ops] == adds * (len(ops) // len(adds))
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    for op in ops:
        held = op.scale_d
        op.attributes["scale_d"] = IntAttr(1 - held.data)
        answer = prove_copies(found.tile, found.scheduled.kernel)
        assert isinstance(answer, Refuted)
        assert "what the accumulators held" in answer.witness
        op.attributes["scale_d"] = held


@pytest.mark.parametrize(("name", "other"), [("ROW_LANES", (2, 4, 3)), ("COLUMN_LANES", (1, 0)), ("WARP_BITS", (6, 5))])
def test_another_order_of_lanes_is_no_accumulator(name: str, other: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribute, name, other)
    with pytest.raises(AssertionError):
        lowered(p.nt)


@pytest.mark.parametrize(("warpgroups", "rows"), [(1, 128), (2, 128), (2, 256), (3, 192)])
def test_blocks_and_warpgroups_lie_as_instructions_leave_them(warpgroups: int, rows: int) -> None:
    assert instructions(lowered(p.nt, Candidate(warpgroups, stages=2), bm=rows, bn=40))
