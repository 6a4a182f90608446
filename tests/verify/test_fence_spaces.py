"""A proxy fence orders the accesses of its state space: in the event graph, the canonical runs and the model
checker."""

from __future__ import annotations

from pathlib import Path

import pytest
from protocols import gemm

from tilewright.base.verdict import Proved, Refuted
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, from_text
from tilewright.protocol import ops as o
from tilewright.protocol.edit import rewritten
from tilewright.protocol.model import Step, steps
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust
from tilewright.verify.parametric import prove


def fenced_by(protocol: Protocol, space: o.FenceSpace) -> Protocol:
    """The protocol with all its proxy fences of one space."""

    def edit(_: object, step: Step) -> tuple[Step, ...]:
        return (Step(o.FenceProxyAsync(space), step.by) if isinstance(step.op, o.FenceProxyAsync) else step,)

    return rewritten(protocol, edit)


def staged(also: Space | None = None) -> Protocol:
    """Threads fill a stage that a bulk store takes; between, they write ``also`` elsewhere."""
    b = Build("staged")
    kt = b.symbol("kt")
    ring = b.pipeline("x", stages=2, stage_bytes=128, consumers=1)
    y = None if also is None else b.buffer("y", 64, also, offset=512)
    with b.role("a", 32) as a:
        b.init(a)
        with a.loop("k", kt) as k:
            a.one(ring.producer_acquire(k))
            a.one(o.Write(ring.stage(k)))
            if y is not None:
                a.one(o.Write(y.whole))
            a.one(o.FenceProxyAsync())
            a.one(o.Arrive(ring.full[k % 2]))
    with b.role("s", 32) as s:
        b.sync(s)
        with s.loop("k", kt) as k:
            s.one(ring.consumer_wait(k))
            s.one(o.TmaStore(ring.stage(k)))
            s.one(o.BulkCommit())
            s.one(o.BulkWait(0, read=True))
            s.one(ring.consumer_release(k))
    return b.protocol()


@pytest.mark.parametrize("space", o.FenceSpace)
def test_the_event_graph_knows_which_space_a_fence_orders(space: o.FenceSpace) -> None:
    """Without the IR's fence of shared memory alone in the fragment, kernels would leave the proved set."""
    protocol = fenced_by(staged(), space)
    covers = space is not o.FenceSpace.GLOBAL
    assert isinstance(prove(protocol), Proved) is covers
    assert isinstance(check(protocol), Proved if covers else Refuted)


@pytest.mark.parametrize("space", o.FenceSpace)
def test_the_other_sides_fence_is_of_a_space_too(space: o.FenceSpace) -> None:
    """Readers that fence before they release, as every compiled pipeline with threads that read its stages."""
    protocol = fenced_by(staged_reads(), space)
    covers = space is not o.FenceSpace.GLOBAL
    assert isinstance(prove(protocol), Proved) is covers
    assert isinstance(check(protocol), Proved if covers else Refuted)


def staged_reads() -> Protocol:
    b = Build("staged reads")
    kt = b.symbol("kt")
    ring = b.pipeline("x", stages=2, stage_bytes=128, consumers=32)
    with b.role("p", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
    with b.role("c", 32) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            c.all(ring.read(k))
            c.all(o.FenceProxyAsync())
            c.all(ring.consumer_release(k))
    return b.protocol()


@pytest.mark.parametrize(("also", "proved"), [(Space.SHARED, True), (Space.GLOBAL, False)])
def test_a_run_of_accesses_to_two_spaces_is_behind_no_fence_of_one(also: Space, proved: bool) -> None:
    """The event graph speaks of runs of accesses; the canonical runs tell the accesses apart."""
    protocol = fenced_by(staged(also), o.FenceSpace.SHARED)
    assert isinstance(prove(protocol), Proved) is proved
    assert isinstance(check(protocol), Proved)


@pytest.mark.parametrize("space", o.FenceSpace)
def test_the_model_checker_agrees(space: o.FenceSpace) -> None:
    for protocol in (staged(), staged_reads()):
        outcome = exhaust(fenced_by(protocol, space), lambda name, at: 3)
        assert (outcome.finding is None) is (space is not o.FenceSpace.GLOBAL)


@pytest.mark.parametrize("space", [o.FenceSpace.ALL, o.FenceSpace.SHARED])
def test_a_known_kernel_is_proved_in_either_form(space: o.FenceSpace) -> None:
    assert isinstance(prove(fenced_by(gemm.cooperative(2, 2), space)), Proved)


COMPILED = sorted((Path(__file__).parents[1] / "data/protocols").glob("*.txt"))


@pytest.mark.parametrize("path", COMPILED, ids=lambda p: p.stem)
def test_what_is_emitted_is_what_is_proved(path: Path) -> None:
    """Kernels emit fence.proxy.async.shared::cta; their protocols, as extracted, say so and are proved at once."""
    protocol = from_text(path.read_text())
    fences = [s.op for role in protocol.roles for s in steps(role.body) if isinstance(s.op, o.FenceProxyAsync)]
    assert all(f.space is o.FenceSpace.SHARED for f in fences)
    assert isinstance(prove(protocol), Proved)
