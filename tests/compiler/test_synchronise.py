"""Synchronisation taken out of the example protocols and put back: proved, minimal, no dearer than by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.pipeline_roles import fill
from support.slow import rest_slow
from tilewright.base.verdict import Proved
from tilewright.compiler.synchronise import prover, synthesised, unneeded_syncs
from tilewright.protocol import Build
from tilewright.protocol import ops as o
from tilewright.protocol.edit import replaced, spots, step_at
from tilewright.schedule.synchronise import cost, stripped, synchronised
from tilewright.schedule.synchronise.cost import is_sync
from tilewright.verify import check

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from synthesise_syncs import EXAMPLES

pytestmark = pytest.mark.sample(1)

QUICK = ("one tile", "multicast", "multistage", "cp.async producer", "split-K", "grouped", "Blackwell")
"""The others take seconds: ``python tools/synthesise_syncs.py`` does all."""


@pytest.mark.parametrize("name", rest_slow(QUICK, ["multistage", "cp.async producer", "split-K", "multicast"]))
def test_synchronisation_is_put_back(name: str) -> None:
    by_hand = EXAMPLES[name]()
    bare = stripped(by_hand)
    assert not isinstance(check(bare), Proved)
    found = synthesised(by_hand)
    assert found.protocol is not None, found.violation
    assert stripped(found.protocol) == bare
    assert isinstance(check(found.protocol), Proved)
    assert cost(found.protocol) <= cost(by_hand)


@pytest.mark.parametrize("name", ["one tile", "cp.async producer"])
def test_what_is_put_back_is_minimal(name: str) -> None:
    found = synthesised(EXAMPLES[name]()).protocol
    assert found is not None
    prove = prover()
    for spot, step in spots(found):
        if is_sync(found.roles[spot.role], step):
            assert prove(replaced(found, spot)) is not None, step


def test_unneeded_syncs_are_found() -> None:
    """A second wait for the same stage, and a fence that no generic access needs."""
    b = Build("idle")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 64, consumers=32)
    fill(b, ring, kt, (o.FenceProxyAsync(),))
    with b.role("consumer", 32) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            c.all(ring.consumer_wait(k))
            c.all(ring.read(k))
            c.all(o.FenceProxyAsync())
            c.all(ring.consumer_release(k))
    protocol = b.protocol()
    idle = [type(step_at(protocol, spot).op) for spot in unneeded_syncs(protocol)]
    # of each pair one can go: either fence is enough in front of the copy, either wait in front of the read
    assert idle == [o.FenceMbarrierInit, o.FenceProxyAsync, o.Wait, o.Wait, o.FenceProxyAsync]


def test_what_no_wait_can_repair_is_reported() -> None:
    b = Build("short")
    data, full = b.buffer("data", 64), b.mbarrier("full", count=2)
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.ArriveExpectTx(full[0], 64))
        a.one(o.TmaLoad(data.whole, full[0]))
        a.one(o.Wait(full[0], o.Const(0)))
    found = synchronised(stripped(b.protocol()), prover())
    assert found.protocol is None
    assert found.violation is not None
    assert found.violation.code == "MBR024"
