"""Independent steps: what may change places, what may not, and that swaps keep every verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from support.pipeline_roles import fill
from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.synchronise import with_late_waits
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, Step
from tilewright.protocol import ops as o
from tilewright.protocol.edit import Insertion, NodePath, inserted, replaced, spots, without
from tilewright.protocol.independence import equivalent, independent
from tilewright.verify import check
from tilewright.verify.reorder import reordering

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from protocols import attention, cp_async, gemm, split_k

C = o.Const


def bench() -> Build:
    b = Build("bench")
    for name in ("x", "y"):
        b.buffer(name, 128, initialised=True)
        b.mbarrier(f"{name}_bar", 2)
    b.buffer("regs", 64, Space.REGISTER)
    return b


def region(name: str, begin: int = 0) -> o.Region:
    return o.Region(name, C(begin), 64)


def bar(name: str) -> o.Slot:
    return o.Slot(f"{name}_bar", C(0))


COMMUTE: list[tuple[o.Op, o.Op]] = [
    (o.TmaLoad(region("x"), bar("x")), o.TmaLoad(region("x", 64), bar("x"))),
    (o.Wait(bar("x"), C(0)), o.Wait(bar("y"), C(0))),
    (o.Read(region("x")), o.Read(region("x"))),
    (o.Write(region("x")), o.Write(region("y"))),
    (o.Write(region("regs")), o.Read(region("y"))),
    (o.Wait(bar("x"), C(0)), o.WgmmaFence()),
    (o.Advance("n"), o.Arrive(bar("x"))),
]
CONFLICT: list[tuple[o.Op, o.Op]] = [
    (o.Read(region("x")), o.Write(region("x", 0))),
    (o.Wait(bar("x"), C(0)), o.Read(region("x"))),
    (o.Read(region("x")), o.Arrive(bar("x"))),
    (o.Arrive(bar("x")), o.Arrive(bar("y"))),
    (o.Arrive(bar("x")), o.Wait(bar("y"), C(0))),
    (o.Write(region("x")), o.FenceProxyAsync()),
    (o.ArriveExpectTx(bar("x"), 64), o.TmaLoad(region("x"), bar("x"))),
    (o.Advance("n"), o.Wait(o.Slot("x_bar", sym("n") % 2), C(0))),
    (o.WgmmaFence(), o.Wgmma(region("regs"), (region("x"),))),
    (o.BulkCommit(), o.BulkWait(0)),
    (o.TestWait(bar("x"), C(0)), o.Wait(bar("x"), C(0), peeked=True)),
    (o.BarSync(C(1), 128), o.Read(region("x"))),
    (o.Wait(bar("x"), C(0)), o.FenceProxyAsync()),
    (o.Wait(bar("x"), C(0)), o.Tcgen05FenceAfter()),
]


@pytest.mark.parametrize(("first", "second"), COMMUTE)
def test_independent(first: o.Op, second: o.Op) -> None:
    assert independent(_declared(), Step(first), Step(second))
    assert independent(_declared(), Step(second), Step(first))


@pytest.mark.parametrize(("first", "second"), CONFLICT)
def test_dependent(first: o.Op, second: o.Op) -> None:
    assert not independent(_declared(), Step(first), Step(second))
    assert not independent(_declared(), Step(second), Step(first))


def _declared() -> Protocol:
    b = bench()
    with b.role("a", 128):
        pass
    return b.protocol()


def swaps(p: Protocol) -> Iterator[Protocol]:
    """Every protocol with two neighbouring independent steps swapped."""
    found = list(spots(p))
    for (one, first), (two, second) in pairwise(found):
        neighbours = one.role == two.role and one.path[:-1] == two.path[:-1] and two.path[-1] == one.path[-1] + 1
        if neighbours and first != second and independent(p, first, second):
            yield replaced(replaced(p, one, second), two, first)


BASES = {
    "one tile": gemm.cooperative(2, 1, persistent=False),
    "split-K": split_k.dsmem_reduce(2),
    "cp.async": cp_async.producer_warps(2),
}


@pytest.mark.parametrize("name", BASES)
def test_swaps_keep_the_proof(name: str) -> None:
    base = BASES[name]
    found = list(swaps(base))
    assert found
    for p in found:
        assert isinstance(check(p), Proved)
        assert all(equivalent(base, x, y) for x, y in zip(base.roles, p.roles, strict=True))


def test_swaps_keep_refutations() -> None:
    """Of a protocol without its proxy fence, or with one wait less, every swap is as bad."""
    base = BASES["split-K"]
    for kind in (o.FenceProxyAsync, o.Wait):
        spot = next(s for s, step in spots(base) if isinstance(step.op, kind))
        for p in swaps(without(base, frozenset((spot,)))):
            assert isinstance(check(p), Refuted)


def test_other_orders_are_other_traces() -> None:
    base = BASES["one tile"]
    found = list(spots(base))
    other = 0
    for (one, first), (two, second) in pairwise(found):
        if one.role == two.role and one.path[:-1] == two.path[:-1] and not independent(base, first, second):
            p = replaced(replaced(base, one, second), two, first)
            other += not equivalent(base, base.roles[one.role], p.roles[one.role])
    assert other > 10


def test_waits_move_to_where_they_are_needed() -> None:
    b = Build("late")
    kt = b.symbol("kt")
    ring = b.pipeline("a", 2, 64, consumers=32)
    regs = b.buffer("regs", 64, Space.REGISTER)
    fill(b, ring, kt)
    with b.role("idle", 96) as i:
        b.sync(i)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            c.all(o.WgmmaFence())
            c.all(o.Wgmma(regs.whole, (ring.stage(k),)))
            c.all(o.WgmmaCommit())
            c.all(o.WgmmaWait(0))
            with c.when(sym("k") >= 0):
                c.per_warp(ring.consumer_release(k))
    b._barriers[1] = replace(b._barriers[1], count=4)  # pyright: ignore[reportPrivateUsage]
    protocol = b.protocol()
    moved = with_late_waits(protocol)
    assert moved is not None
    later, certificate = moved
    body = later.role("consumer").body[1].body  # pyright: ignore[reportAttributeAccessIssue]
    assert [type(s.op) for s in body[:3]] == [o.WgmmaFence, o.Wait, o.Wgmma]
    assert certificate.obligations[-1].name == "order of independent steps"


def test_more_than_an_order_is_no_reordering() -> None:
    base = BASES["one tile"]
    more = inserted(base, (Insertion(NodePath(1, (0,)), Step(o.FenceProxyAsync())),))
    assert isinstance(check(more), Proved)
    assert reordering(base, more) is None
    assert reordering(base, base) is not None


def test_attention_waits_late() -> None:
    assert with_late_waits(attention.forward(2, 1, ordered=False)) is not None
