"""The table of effects: what each op does is stated once, the provers read it, and the model checker does not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from effect_mutants import Case, alterations, cases, extra, samples, shown
from tilewright.protocol import ops
from tilewright.protocol.effects import QUEUES, Await, Commit, Pool, Retire, Strong, Sync, TensorLife
from tilewright.verify.model_checker import exhaust

pytestmark = pytest.mark.sample(1)

SHOWN = [
    ("Arrive", "drop 0 Signal"),
    ("Arrive", "0 Signal.arrivals = +1"),
    ("Arrive", "0 Signal.release = NOTHING"),
    ("Arrive", "0 Signal.scope = CLUSTER"),
    ("ArriveExpectTx", "drop 1 Signal"),
    ("Wait", "drop 0 Await"),
    ("Wait", "0 Await.acquire = True"),
    ("Wait", "0 Await.parity = 1"),
    ("MbarrierInit", "drop 0 BarrierLife"),
    ("Write", "drop 0 Access"),
    ("Write", "0 Access.part = THREAD"),
    ("Read", "0 Access.part = THREAD"),
    ("TmaStore", "1 Access.mode = WRITE"),
    ("TmaStore", "1 Access.stage = SOURCE"),
    ("TmaStore", "drop 1 Access"),
    ("BulkCommit", "0 Commit.queue = cp.async"),
    ("BulkWait", "0 Retire.stage = DONE"),
    ("BulkWait", "0 Retire.pending = +1"),
    ("TensormapReplace", "drop 0 Access"),
    ("TensormapAcquire", "drop 0 Fence"),
    ("ClusterArrive", "0 Sync.release = True"),
    ("ClusterArrive", "drop 0 Sync"),
    ("ClusterWait", "drop 0 Sync"),
    ("Tcgen05WaitSt", "drop 1 Retire"),
    ("Tcgen05FenceBefore", "drop 0 Fence"),
    ("Tcgen05FenceAfter", "drop 0 Fence"),
    ("Tcgen05Commit", "1 Signal.after = None"),
    ("Tcgen05Alloc", "drop 0 TensorLife"),
    ("Tcgen05Dealloc", "drop 0 TensorLife"),
    ("AtomAdd", "drop 0 Strong"),
    ("AtomAdd", "drop 1 Access"),
    ("AtomAdd", "0 Strong.does = SET"),
    ("AtomAdd", "0 Strong.value = 2"),
    ("AtomAdd", "0 Strong.sem = ACQ_REL"),
    ("AtomAdd", "0 Strong.scope = GPU"),
    ("FlagStore", "0 Strong.does = ADD"),
    ("FlagStore", "0 Strong.sem = RELEASE"),
    ("SpinWait", "drop 0 Strong"),
    ("SpinWait", "0 Strong.sem = ACQUIRE"),
    ("FenceAcqRel", "drop 0 MemoryFence"),
    ("FenceAcqRel", "0 MemoryFence.scope = GPU"),
]
"""Of each kind of effect some alterations; ``tools/effect_mutants.py`` makes them all."""


@pytest.fixture(scope="module")
def small() -> list[Case]:
    return cases(extra())


@pytest.mark.parametrize(("op", "what"), SHOWN, ids=lambda x: x)
def test_an_altered_effect_sets_prover_and_model_checker_at_odds(op: str, what: str, small: list[Case]) -> None:
    found = [x for x in alterations(samples(small)) if x.op.__name__ == op and x.what.startswith(what)]
    assert found
    assert all(shown(x, small) for x in found[:1])


def test_the_model_checker_does_not_read_effects(small: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    before = [exhaust(case.protocol, lambda name, at: 1) for case in small]

    def read(op: ops.Op) -> None:
        raise AssertionError(f"the effects of {type(op).__name__} were read")

    for kind in ops.ALL:
        monkeypatch.setattr(kind, "effects", property(read))
    after = [exhaust(case.protocol, lambda name, at: 1) for case in small]
    assert [(x.states, x.complete) for x in before] == [(x.states, x.complete) for x in after]


def blocking(op: ops.Op) -> Iterator[int]:
    """Positions of effects that may block."""
    for i, effect in enumerate(op.effects):
        match effect:
            case Await(blocks=True) | Sync(waits=True) | Pool() | TensorLife(begins=True) | Strong():
                yield i
            case Retire(queue) if queue.collective:
                yield i
            case _:
                pass


def test_what_may_block_is_the_first_effect_of_its_op(small: list[Case]) -> None:
    """An op that blocks is executed anew, so nothing of it may have happened."""
    found = {i for listed in samples(small).values() for op in listed for i in blocking(op)}
    assert found == {0}


def test_queues_stay_what_they_are_when_ops_are_copied() -> None:
    for queue in QUEUES:
        assert pickle.loads(pickle.dumps(Commit(queue))).queue is queue
