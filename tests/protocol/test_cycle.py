"""The critical cycle against closed forms and against a timed run, which knows no graph."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from support.pipeline_roles import fill
from tilewright.protocol import Build, Protocol, Step, ops
from tilewright.protocol.cycle import CriticalCycle, critical_cycle
from tilewright.protocol.graph import graph_of
from tilewright.protocol.prices import Cost
from tilewright.protocol.timed import run_timed

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from protocols import attention, gemm

COPY, LATENCY, WORK = 100.0, 700.0, 90.0


def ring(stages: int) -> Protocol:
    """One producer, one consumer that reads each stage."""
    b = Build("ring")
    kt = b.symbol("kt")
    data = b.pipeline("a", stages, 1024, consumers=1)
    fill(b, data, kt)
    with b.role("consumer", 32) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(data.consumer_wait(k))
            c.one(data.read(k))
            c.one(data.consumer_release(k))
    return b.protocol()


def prices(step: Step) -> Cost:
    match step.op:
        case ops.TmaLoad():
            return Cost(0.0, "copies", COPY, LATENCY)
        case ops.Read():
            return Cost(WORK)
        case _:
            return Cost(0.0)


def only(protocol: Protocol) -> CriticalCycle:
    graph = graph_of(protocol)
    assert not isinstance(graph, str)
    (found,) = critical_cycle(graph, prices)
    return found


@pytest.mark.parametrize("stages", range(1, 14))
def test_a_pipeline_is_bounded_by_its_latency_its_engine_or_its_consumer(stages: int) -> None:
    found = only(ring(stages))
    around = (COPY + LATENCY + WORK) / stages
    assert math.isclose(found.cycles, max(COPY, WORK, around))
    assert found.iterations == (stages if around > COPY else 1)
    assert any(who == "copies" for who, _ in found.events)


@pytest.mark.parametrize(
    "protocol",
    [gemm.cooperative(4, 2), gemm.pingpong(4), attention.forward(2, 2)],
    ids=["cooperative", "ping-pong", "attention"],
)
def test_loops_bound_by_tensor_cores_take_what_a_timed_run_takes(protocol: Protocol) -> None:
    def cycles(trips: int) -> float:
        return run_timed(protocol, {s.name: 1 if s.name == "tiles" else trips for s in protocol.symbols}).cycles

    graph = graph_of(protocol)
    assert not isinstance(graph, str)
    slope = (cycles(60) - cycles(40)) / 20
    for found in critical_cycle(graph):
        assert found.cycles == pytest.approx(slope)
        assert {who for who, _ in found.events} == {"tensor cores"}


def test_a_loop_that_waits_for_itself_never_completes() -> None:
    """The loop releases a stage one step late, so a ring of one stage is never free."""
    graph = graph_of(gemm.cooperative(1, 1))
    assert not isinstance(graph, str)
    (found,) = critical_cycle(graph)
    assert found.cycles == float("inf")
    assert ("producer", "Wait ab_empty") in found.events


def test_links_name_the_users_line_and_add_up() -> None:
    graph = graph_of(gemm.cooperative(4, 2))
    assert not isinstance(graph, str)
    (found,) = critical_cycle(graph)
    assert sum(link.cycles for link in found.links) == pytest.approx(found.cycles * found.iterations)
    assert sum(link.iterations for link in found.links) == found.iterations
    assert all(link.where is not None and link.where.file.endswith("gemm.py") for link in found.links)
