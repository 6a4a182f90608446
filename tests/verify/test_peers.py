"""Bytes of other CTAs of a cluster, read and written by threads: the event graph proves what does no harm.

Each step that orders the accesses is left out in turn: the event graph leaves the protocol open, and the model checker
shows what breaks.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.base.verdict import Proved, Refuted
from tilewright.protocol import Protocol, from_text
from tilewright.protocol import ops as o
from tilewright.protocol.edit import spots, without
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust
from tilewright.verify.parametric import METHOD, prove

PULLED = """protocol("pulled", cluster=2)
buffer("x", "shared", 64)
with role("r", 32):
    all(Write(Region("x", 0, 64)))
    all(ClusterArrive())
    all(ClusterWait())
    all(Read(Region("x", 0, 64, cta=1 - cta)))
    all(ClusterArrive())
    all(ClusterWait())
"""
PUSHED = """protocol("pushed", cluster=2)
buffer("x", "shared", 64)
with role("r", 32):
    all(ClusterArrive())
    all(ClusterWait())
    all(Write(Region("x", 0, 64, cta=1 - cta)))
    all(ClusterArrive())
    all(ClusterWait())
    all(Read(Region("x", 0, 64)))
"""
REPEATED = """protocol("repeated", cluster=2)
symbol("n")
buffer("x", "shared", 64)
with role("r", 32):
    for i in range(0, n, 1):
        all(Write(Region("x", 0, 64)))
        all(ClusterArrive())
        all(ClusterWait())
        all(Read(Region("x", 0, 64, cta=1 - cta)))
        all(ClusterArrive())
        all(ClusterWait())
"""
REGISTERS = """protocol("registers", cluster=2, registers_per_thread=168)
symbol("n")
buffer("x", "shared", 64)
with role("producer", 128):
    all(Setmaxnreg({given}))
    for i in range(0, n, 1):
        all(ClusterArrive())
        all(ClusterWait())
    all(ClusterArrive())
    all(ClusterWait())
with role("consumer", 128):
    all(Setmaxnreg({taken}))
    for i in range(0, n, 1):
        all(ClusterArrive())
        all(ClusterWait())
    all(Write(Region("x", 0, 64, cta=cta)))
    all(ClusterArrive())
    all(ClusterWait())
"""
TEXTS = {"pulled": PULLED, "pushed": PUSHED, "repeated": REPEATED}


@pytest.mark.parametrize("name", TEXTS)
def test_accesses_between_cluster_barriers_are_proved_by_the_event_graph(name: str) -> None:
    protocol = from_text(TEXTS[name])
    proof = check(protocol)
    assert isinstance(proof, Proved), proof
    assert {o.method for o in proof.obligations} == {METHOD}
    assert exhaust(protocol, lambda symbol, at: 2).finding is None


def _barriers(protocol: Protocol) -> list[Protocol]:
    """The protocol without each of its cluster barriers: the arrival and the wait behind it."""
    places = [
        [spot for spot, step in spots(protocol) if isinstance(step.op, kind)]
        for kind in (o.ClusterArrive, o.ClusterWait)
    ]
    return [without(protocol, frozenset(pair)) for pair in zip(*places, strict=True)]


@pytest.mark.parametrize("name", TEXTS)
def test_each_cluster_barrier_is_missed(name: str) -> None:
    for mutant in _barriers(from_text(TEXTS[name])):
        assert not isinstance(prove(mutant), Proved)
        assert exhaust(mutant, lambda symbol, at: 2).finding is not None
        assert isinstance(check(mutant), Refuted)


def test_a_relaxed_arrival_hands_no_memory_on() -> None:
    relaxed = from_text(PULLED.replace("ClusterArrive()", "ClusterArrive(release=False)", 1))
    assert not isinstance(prove(relaxed), Proved)
    assert exhaust(relaxed, lambda symbol, at: 2).finding is not None


def test_a_fence_of_shared_memory_of_the_own_cta_does_not_cover_bytes_of_a_peer() -> None:
    """Left open: the copy overwrites what a peer has read behind ``fence.proxy.async.shared::cta``."""
    text = """protocol("overwritten", cluster=2)
buffer("x", "shared", 64, initialised=True)
mbarrier("full", 1, 1)
with role("r", 32):
    elected(MbarrierInit("full"))
    elected(FenceMbarrierInit())
    all(ClusterArrive())
    all(ClusterWait())
    all(Read(Region("x", 0, 64, cta=1 - cta)))
    all(FenceProxyAsync({space}))
    all(ClusterArrive())
    all(ClusterWait())
    elected(ArriveExpectTx(Slot("full", 0), 64))
    elected(TmaLoad(Region("x", 0, 64), Slot("full", 0)))
    all(Wait(Slot("full", 0), 0))
    all(ClusterArrive())
    all(ClusterWait())
"""
    assert isinstance(prove(from_text(text.format(space=""))), Proved)
    assert not isinstance(prove(from_text(text.format(space='space="shared"'))), Proved)


def test_registers_are_given_up_where_they_are_taken() -> None:
    """With no step and with some the roles begin in different blocks of the product; each takes what it gives."""
    fits = from_text(REGISTERS.format(given=96, taken=240))
    assert isinstance(prove(fits), Proved), prove(fits)
    assert not isinstance(prove(from_text(REGISTERS.format(given=104, taken=240))), Proved)


def test_registers_of_two_blocks_are_not_added_up() -> None:
    """Given up behind the loop they do not serve who takes them before it."""
    text = REGISTERS.format(given=96, taken=240)
    late = text.replace("    all(Setmaxnreg(96))\n", "", 1).replace(
        "    all(ClusterArrive())\n    all(ClusterWait())\nwith",
        "    all(Setmaxnreg(96))\n    all(ClusterArrive())\n    all(ClusterWait())\nwith",
        1,
    )
    assert late != text
    protocol = from_text(late)
    assert not isinstance(prove(protocol), Proved)
    assert not isinstance(
        prove(replace(protocol, symbols=tuple(replace(s, least=1) for s in protocol.symbols))), Proved
    )
