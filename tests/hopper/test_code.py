"""Emitted code: assembled without spills or serialised wgmma, and PTX that holds what the IR says, no more, no less."""

from __future__ import annotations

import pytest

import tilewright as tw
from support import products as p
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate

pytestmark = pytest.mark.sample(2)

CASES: list[tuple[tw.Kernel, dict[str, int], Candidate]] = [
    (p.nt, {"bm": 128, "bn": 256}, Candidate(2)),
    (p.tt, {"bm": 128, "bn": 192}, Candidate(2)),
    (p.biased, {"bm": 128, "bn": 256}, Candidate(2)),
    (p.attention, {}, Candidate(1)),
    (p.nt, {"bm": 24, "bn": 20, "bk": 12}, Candidate(1)),
]


@pytest.mark.parametrize(("kernel", "extents", "candidate"), CASES)
def test_code_assembles_as_planned(kernel: tw.Kernel, extents: dict[str, int], candidate: Candidate) -> None:
    found = p.lower(kernel, candidate, "bf16", 16, None, **extents)
    assert not isinstance(found, Refused), found.reason
    emitted = emit_kernel(found.scheduled.kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(found.scheduled.kernel, assembled.ptx) == ()
