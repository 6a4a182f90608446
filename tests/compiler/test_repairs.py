"""Repairs of tile accesses as compiled: what was not legal as asked is after the repair, and the result is the same."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright.base.dtypes import bf16
from tilewright.base.expr import sym
from tilewright.base.verdict import Legal, Proved, Repairs
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Swizzle
from tilewright.legal.facts import Facts
from tilewright.legal.repair_types import Change
from tilewright.legal.repairs import repairs_of
from tilewright.legal.tma import TileAccess
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.simulate import run_steps
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)


def planned(align: int, staged: bool | None = None, **extents: int) -> PlannedKernel:
    facts = CallFacts(tuple((name, TensorFacts(1, align)) for name in "abc"))
    asked = replace(p.request(p.nt, **extents), facts=facts, schedule=tw.Schedule(staged=staged))
    return plan(asked).variants[0]


def agrees(variant: PlannedKernel, m: int, n: int, k: int) -> bool:
    """The result in the simulator against float64, on rows of exactly the extents."""
    rng = np.random.default_rng(m + n + k)
    left, right = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k)))
    out = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    run_steps(variant.steps, variant.scratch, {"a": left, "b": right, "c": out}, symbols={"M": m, "N": n, "K": k})
    return np.allclose(out.astype(float), left.astype(float) @ right.astype(float).T, rtol=2**-7, atol=2**-7)


def offered(tile: tuple[int, int], stride: int, swizzles: tuple[Swizzle, ...] = (Swizzle.B128,)) -> set[Change]:
    access = TileAccess(bf16, (4100, 4100), (stride, 1), 0, tile, swizzles=swizzles)
    return {repair.fields.change for repair in repairs_of(access, Facts())}


def test_padded_rows() -> None:
    assert Change.PAD in offered((64, 64), 4100)
    variant = planned(2, staged=True)
    a_verdict = variant.verdicts(SM90A)[0]
    assert isinstance(a_verdict.answer, Repairs)
    assert check_descriptors(variant.transport).faults == ()
    assert len(variant.steps) == 3
    assert agrees(variant, 65, 63, 101)


def test_loads_by_threads() -> None:
    assert Change.LOADS in offered((64, 64), 4100)
    variant = planned(2, staged=False)
    assert not any(isinstance(op, a.TmaLoad) for op in variant.transport.walk())
    assert any(isinstance(op, a.LoadStore) for op in variant.transport.walk())
    assert agrees(variant, 65, 63, 101)


def test_copies_by_threads_that_do_not_wait() -> None:
    access = TileAccess(bf16, (4100, 4100), (4100, 1), 0, (64, 64), swizzles=(Swizzle.B128,))
    assert any(r.fields.change is Change.CP_ASYNC for r in repairs_of(access, Facts()))
    variant = planned(4, staged=False)
    assert {op.copy_bytes for op in variant.transport.walk() if isinstance(op, a.CpAsync)} == {4}
    assert agrees(variant, 65, 62, 102)


def test_two_warpgroups_share_what_they_stage() -> None:
    found = p.lower(p.nt, Candidate(2, copies=False), "bf16", 2, bm=128, bn=64)
    assert not isinstance(found, Refused)
    lowered = found.scheduled.kernel
    (role,) = (op for op in lowered.walk() if isinstance(op, a.Role))
    assert role.threads.data == 256
    assert isinstance(prove_protocols(lowered), Proved)
    for op in lowered.walk():
        if isinstance(op, t.SharedWrite):  # both warpgroups write the same bytes
            op.attributes["offset"] = ExprAttr.of(op.offset.expr.substitute({t.THREAD: sym(t.THREAD) % 128}))
    assert not isinstance(prove_protocols(lowered), Proved)


@pytest.mark.parametrize(
    ("depth", "boxes", "swizzle"), [(128, 2, Swizzle.B128), (32, 1, Swizzle.B64), (16, 1, Swizzle.B32)]
)
def test_split_boxes_and_other_swizzles(depth: int, boxes: int, swizzle: Swizzle) -> None:
    change = Change.SPLIT_BOX if boxes > 1 else Change.SWIZZLE
    assert change in offered((64, depth), 4104)
    variant = planned(16, bk=depth)
    assert all(isinstance(v.answer, Legal) for v in variant.verdicts(SM90A))
    copies = [op for op in variant.transport.walk() if isinstance(op, a.TmaLoad)]
    assert len(copies) == 2 * boxes
    maps = [op.map.owner for op in copies]
    assert all(isinstance(m, a.TensorMap) and m.numbers.swizzle is swizzle for m in maps)
    assert agrees(variant, 65, 64, 3 * 64 + 8)
