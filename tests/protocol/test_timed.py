"""Timed runs: waits end when what they wait for is there, engines are queues, a wait for nothing is told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from examples.protocols import attention, blackwell, cp_async, gemm, grouped, split_k

from tilewright.base.expr import sym
from tilewright.hw import engine_prices as engine
from tilewright.hw.spaces import Space
from tilewright.protocol import Protocol
from tilewright.protocol.model import Buffer, By, Loop, MbarrierArray, Role, Step, Symbol
from tilewright.protocol.ops import ArriveExpectTx, Region, Slot, TmaLoad, Wait, Wgmma, WgmmaCommit, WgmmaWait
from tilewright.protocol.prices import COPIES, PRODUCTS
from tilewright.protocol.timed import Activity, TimedRun, run_timed

STAGE = 32768


def copy_and_multiply(parity: int = 0) -> Protocol:
    """One stage is copied, waited for, and multiplied by twice."""
    full = Slot("full")
    stage = Region("ab", sym("zero"), STAGE)
    producer = (Step(ArriveExpectTx(full, STAGE), By.ELECTED), Step(TmaLoad(stage, full), By.ELECTED))
    product = Step(Wgmma(Region("acc", sym("zero"), 256), (stage,)))
    consumer = (
        Step(Wait(full, sym("zero") + parity)),
        Loop("k", sym("zero"), sym("zero") + 2, 1, (product,)),
        Step(WgmmaCommit()),
        Step(WgmmaWait()),
    )
    return Protocol(
        "one",
        (Role("producer", 128, producer), Role("consumer", 128, consumer)),
        (Buffer("ab", Space.SHARED, STAGE), Buffer("acc", Space.REGISTER, 256)),
        (MbarrierArray("full", 1, 1),),
        (Symbol("zero"),),
    )


def spans(run: TimedRun, lane: str, doing: Activity) -> list[tuple[float, float]]:
    return [(s.begin, s.end) for s in run.spans if s.lane == lane and s.doing is doing]


def test_a_wait_ends_when_the_bytes_are_there_and_products_follow_one_another() -> None:
    run = run_timed(copy_and_multiply(), {"zero": 0})
    ((copied_from, copied),) = spans(run, COPIES, Activity.COPY)
    assert copied - copied_from == pytest.approx(STAGE / engine.COPY_BYTES_PER_CYCLE)
    waited, multiplied = spans(run, "consumer", Activity.WAIT)
    assert waited[1] == copied
    first, second = spans(run, PRODUCTS, Activity.PRODUCT)
    assert first[0] >= copied
    assert second[0] == first[1] == first[0] + STAGE / engine.TENSOR_BYTES_PER_CYCLE
    assert multiplied[1] == second[1] + engine.TENSOR_LATENCY_CYCLES
    assert not run.stuck


def test_a_wait_for_a_phase_that_never_comes_is_reported() -> None:
    run = run_timed(copy_and_multiply(parity=1), {"zero": 0})
    assert not run.stuck, "the phase before the first counts as complete"
    missing = copy_and_multiply()
    consumer = missing.roles[1]
    run = run_timed(Protocol("none", (consumer,), missing.buffers, missing.barriers, missing.symbols), {"zero": 0})
    assert run.stuck == ("consumer: full[0]",)


@pytest.mark.parametrize(
    "build",
    [
        attention.forward,
        blackwell.gemm,
        cp_async.multistage,
        cp_async.producer_warps,
        gemm.cooperative,
        gemm.multicast,
        gemm.pingpong,
        grouped.tensormap_update,
        split_k.dsmem_reduce,
    ],
)
@pytest.mark.parametrize("trips", [0, 1, 5])
def test_protocols_that_hold_never_get_stuck(build: Callable[[], Protocol], trips: int) -> None:
    protocol = build()
    run = run_timed(protocol, {s.name: max(s.least, trips * s.multiple_of) for s in protocol.symbols})
    assert not run.stuck
    for lane in (COPIES, PRODUCTS):
        busy = sorted((s.begin, s.end) for s in run.spans if s.lane == lane)
        assert all(a[1] <= b[0] for a, b in pairwise(busy)), "an engine does one thing at a time"


def test_a_deep_ring_runs_as_fast_as_its_slowest_engine() -> None:
    """Cooperative GEMM: 32 KiB a stage through the copy path, two products of the whole stage: the products decide."""
    run = run_timed(gemm.cooperative(), {"tiles": 1, "kt": 40})
    busy = [s for s in run.spans if s.lane == PRODUCTS]
    inside = busy[10:70]
    work = sum(s.end - s.begin for s in inside)
    assert work / (inside[-1].end - inside[0].begin) > 0.95
