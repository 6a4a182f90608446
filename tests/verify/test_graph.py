"""The parametric proof on the event graph: what it proves, and what it must never prove."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from museum import EXHIBITS

from tilewright.base.expr import Const, Expr, sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.align_roles import product_graph_of
from tilewright.protocol.edit import replaced, spots, step_at
from tilewright.protocol.graph import graph_of
from tilewright.protocol.model import Buffer, By, If, Loop, Node, Protocol, Step, Symbol
from tilewright.protocol.text import from_text
from tilewright.verify import check
from tilewright.verify.model_checker import adversarial, exhaust
from tilewright.verify.parametric import prove

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "examples"), str(ROOT / "tools")]

from protocols import attention, blackwell, cp_async, gemm  # noqa: E402

import agree  # noqa: E402
from campaign.variants import pipeline  # noqa: E402

pytestmark = pytest.mark.sample(1)

EXAMPLES = {
    "cooperative": gemm.cooperative(4, 2),
    "cooperative, one tile": gemm.cooperative(4, 2, persistent=False),
    "cooperative, three consumers": gemm.cooperative(3, 3),
    "ping-pong": gemm.pingpong(4),
    "multicast": gemm.multicast(4),
    "attention": attention.forward(2, 2),
    "attention, no turns": attention.forward(2, 1, ordered=False),
}


SMALL = {
    "cooperative": gemm.cooperative(2, 1),
    "ping-pong": gemm.pingpong(2),
    "multicast": gemm.multicast(2),
    "attention, no turns": attention.forward(2, 1, ordered=False),
    "Blackwell": blackwell.gemm(2),
    "cp.async": cp_async.producer_warps(2),
}


def proved(protocol: Protocol) -> bool:
    return isinstance(prove(protocol), Proved)


def why_open(protocol: Protocol) -> str:
    answer = prove(protocol)
    assert isinstance(answer, Unknown)
    return answer.reason


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_proved_for_all_trip_counts_at_once(name: str) -> None:
    assert proved(EXAMPLES[name])


@pytest.mark.parametrize("stages", [1, 2, 7, 16])
def test_the_number_of_stages_does_not_matter(stages: int) -> None:
    assert proved(gemm.multicast(stages))
    # with one stage the cooperative loop, which releases a step late, waits for itself
    assert proved(gemm.cooperative(stages, 1)) == (stages > 1)


# -- the product graph -------------------------------------------------------------------------------------------------
def test_the_product_graph_of_a_persistent_loop() -> None:
    """A guard on the first iteration peels it; one on the count splits the tiles into empty ones and others."""
    product = product_graph_of(gemm.cooperative(4, 1))
    assert [x.counter for x in product.loops] == ["t", "k"]
    assert [x.outermost for x in product.loops] == [True, False]
    assert len(product.blocks) == 8
    assert sum(f.source == f.target for f in product.edges) == 1


def test_rings_follow_the_loops_that_turn_them() -> None:
    graph = graph_of(gemm.pingpong(4))
    assert not isinstance(graph, str)
    waits = [s for blocks in graph.sites for code in blocks for s in code if isinstance(s.step.op, ops.Wait)]
    assert len(waits) == 8  # of the producer in both turns, of each consumer in its own; first iterations apart
    for site in waits:
        assert isinstance(site.step.op, ops.Wait)
        assert graph.awaited(site, site.step.op).iv == frozenset((1,))


def test_roles_that_share_a_ring_go_round_the_same_loops() -> None:
    b = gemm.cooperative(2, 1)
    renamed = tuple(replace(s, name="other") if s.name == "kt" else s for s in b.symbols)
    consumer = b.roles[1]

    def other(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for n in nodes:
            if isinstance(n, Loop):
                end = sym("other") if n.end == sym("kt") else n.end
                n = replace(n, end=end, body=other(n.body))
            elif isinstance(n, If):
                n = replace(n, condition=n.condition.substitute({"kt": sym("other")}))
            out.append(n)
        return tuple(out)

    odd = replace(
        b, roles=(b.roles[0], replace(consumer, body=other(consumer.body))), symbols=(*b.symbols, *renamed[1:])
    )
    assert not proved(odd)


def test_roles_that_share_nothing_may_go_round_loops_of_their_own() -> None:
    """Two pipelines in one kernel, each with its own trip count and its own loop over tiles."""
    p = pipeline(2, 2, 2, persistent=True, style="delayed", store=True)

    def mine(e: Expr) -> Expr:
        return e.substitute({"kt": sym("kt2"), "tiles": sym("tiles2"), "t": sym("t2")})

    def other(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for n in nodes:
            match n:
                case Loop():
                    out.append(
                        replace(n, counter={"t": "t2"}.get(n.counter, n.counter), end=mine(n.end), body=other(n.body))
                    )
                case If():
                    out.append(If(mine(n.condition), other(n.then), other(n.otherwise)))
                case Step():
                    out.append(replace(n, op=_elsewhere(n.op)))
        return tuple(out)

    roles = (*p.roles, *(replace(r, name=f"{r.name}2", body=other(r.body)) for r in p.roles))
    both = replace(
        p,
        roles=roles,
        buffers=(*p.buffers, *(replace(b, name=f"{b.name}2", offset=b.offset + 200_000) for b in p.buffers)),
        barriers=(*p.barriers, *(replace(b, name=f"{b.name}2") for b in p.barriers)),
        symbols=(*p.symbols, Symbol("tiles2"), Symbol("kt2", per="t2")),
    )
    assert proved(both)
    late_fill = replaced(both, next(s for s, x in spots(both) if s.role == 2 and isinstance(x.op, ops.Wait)))
    assert not proved(late_fill)


def _elsewhere(item: Any) -> Any:
    """An op on the second pipeline's barriers, buffers and named barriers."""
    match item:
        case Expr():
            return item
        case ops.Slot() | ops.MbarrierInit():
            return replace(item, barrier=f"{item.barrier}2")
        case ops.Region():
            return replace(item, buffer=f"{item.buffer}2")
        case ops.BarSync():
            return replace(item, id=item.id + 7)
        case tuple():
            return tuple(map(_elsewhere, item))
        case _ if hasattr(item, "__dataclass_fields__"):
            return replace(item, **{f: _elsewhere(getattr(item, f)) for f in item.__dataclass_fields__})
        case _:
            return item


def test_a_warp_sync_is_waited_for_by_all_and_teaches_nothing() -> None:
    p = gemm.cooperative(2, 1)
    spot = next(s for s, x in spots(p) if s.role == 1 and isinstance(x.op, ops.Wait))
    synced = replaced(p, spot, step_at(p, spot), Step(ops.WarpSync()))
    assert proved(synced)
    alone = replaced(p, spot, step_at(p, spot), Step(ops.WarpSync(), By.ELECTED))
    assert not proved(alone)


# -- what must not be proved -------------------------------------------------------------------------------------------
UNNEEDED = {"Blackwell": {ops.Tcgen05FenceAfter, ops.Tcgen05Relinquish}}
"""Either after-fence of the MMA thread makes up for the other; the epilogue's is tried below."""


@pytest.mark.parametrize("name", SMALL)
def test_no_synchronising_op_can_be_dropped(name: str) -> None:
    protocol = SMALL[name]
    for spot, step in spots(protocol):
        if ops.only_orders(step.op) and type(step.op) not in UNNEEDED.get(name, ()):
            unfenced = isinstance(step.op, ops.FenceMbarrierInit) and protocol.cluster == 1  # MBR022 warns
            assert proved(replaced(protocol, spot)) == unfenced, step


def late(protocol: Protocol, kind: type[object], role: str) -> Protocol:
    """The first op of a kind in a role behind the one after it."""
    where = [s for s, step in spots(protocol) if protocol.roles[s.role].name == role]
    at = next(n for n, s in enumerate(where) if isinstance(step_at(protocol, s).op, kind))
    first, second = step_at(protocol, where[at]), step_at(protocol, where[at + 1])
    return replaced(replaced(protocol, where[at], second), where[at + 1], first)


@pytest.mark.parametrize("kind", [ops.Wait, ops.Tcgen05FenceAfter, ops.Tcgen05WaitLd, ops.Tcgen05FenceBefore])
def test_tensor_memory_is_read_behind_its_wait_and_fence(kind: type[object]) -> None:
    assert not proved(late(SMALL["Blackwell"], kind, "epilogue"))


def wrong_stage(step: Step) -> tuple[Step, ...]:
    assert isinstance(step.op, ops.Arrive)
    return (replace(step, op=replace(step.op, bar=replace(step.op.bar, index=(step.op.bar.index + 1) % 2))),)


def other_parity(step: Step) -> tuple[Step, ...]:
    assert isinstance(step.op, ops.Wait)
    return (replace(step, op=replace(step.op, parity=1 - step.op.parity)),)


def fewer_bytes(step: Step) -> tuple[Step, ...]:
    assert isinstance(step.op, ops.ArriveExpectTx)
    return (replace(step, op=replace(step.op, bytes=step.op.bytes - 16)),)


def one_more_in_flight(step: Step) -> tuple[Step, ...]:
    assert isinstance(step.op, ops.WgmmaWait)
    return (replace(step, op=replace(step.op, pending=step.op.pending + 1)),)


def twice(step: Step) -> tuple[Step, ...]:
    return step, step


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        (ops.Arrive, wrong_stage),
        (ops.Wait, other_parity),
        (ops.ArriveExpectTx, fewer_bytes),
        (ops.WgmmaWait, one_more_in_flight),
        (ops.Arrive, twice),
        (ops.ArriveExpectTx, twice),
        (ops.TmaLoad, twice),
        (ops.BarArrive, twice),
    ],
    ids=lambda x: x.__name__,
)
@pytest.mark.parametrize("name", ["cooperative", "ping-pong"])
def test_wrong_ops_are_not_proved(name: str, kind: type[object], edit: object) -> None:
    protocol = SMALL[name]
    for spot, step in spots(protocol):
        if isinstance(step.op, kind):
            assert not proved(replaced(protocol, spot, *edit(step))), spot  # type: ignore[operator]


def test_ping_pong_needs_its_order_barriers() -> None:
    """Without them a consumer may look at a phase while the other's, a lap before, is still open."""
    protocol = EXAMPLES["ping-pong"]
    bare = protocol
    for spot, step in [*spots(protocol)][::-1]:
        match step.op:
            case ops.BarSync(id) | ops.BarArrive(id) if id.constant in (3, 4):
                bare = replaced(bare, spot)
            case _:
                pass
    assert "may be incomplete" in why_open(bare)
    finding = exhaust_some(bare, kt=3, tiles=3)
    assert finding


def exhaust_some(protocol: Protocol, kt: int, tiles: int) -> bool:
    """Whether random schedules of one instance show harm."""

    def sizes(name: str, _: int) -> int:
        return tiles if name == "tiles" else kt

    return adversarial(protocol, sizes, runs=60, seed=1).finding is not None


def test_counters_that_restart_with_every_tile_are_not_proved() -> None:
    """The ring's parity starts anew with every tile although its phases do not."""
    protocol = gemm.cooperative(2, 1)
    roles = tuple(replace(r, body=tuple(_restarted(n) for n in r.body), counters=(("g", 0),)) for r in protocol.roles)
    assert not proved(replace(protocol, roles=roles))


def _restarted(node: Node) -> Node:
    if not isinstance(node, Loop):
        return node
    back = Step(ops.Advance("g", -sym("kt")))
    return replace(node, body=(*node.body, back))


def test_a_trip_count_of_one_role_alone_is_not_proved() -> None:
    protocol = gemm.multicast(2)
    first = protocol.roles[0]
    inner = first.body[-3]
    assert isinstance(inner, Loop)
    shorter = replace(inner, end=sym("fewer"))
    body = (*first.body[:-3], shorter, *first.body[-2:])
    odd = replace(
        protocol, roles=(replace(first, body=body), *protocol.roles[1:]), symbols=(*protocol.symbols, Symbol("fewer"))
    )
    assert not proved(odd)


def test_advances_by_one_thread_are_no_counter_of_the_others() -> None:
    protocol = gemm.multicast(2)
    for spot, step in [*spots(protocol)]:
        if isinstance(step.op, ops.Advance) and spot.role == 1:
            protocol = replaced(protocol, spot, replace(step, by=By.ELECTED))
    assert "advanced by other threads" in why_open(protocol)


@pytest.mark.parametrize("name", EXHIBITS)
def test_no_bug_of_the_museum_is_proved(name: str) -> None:
    """Not even those that the lenient policy lets pass."""
    assert not proved(EXHIBITS[name].build(False))


def test_twins_of_the_museum_are_never_worse_off() -> None:
    """Some mended twins are within the fragment; the count may only grow."""
    assert sum(proved(x.build(True)) for x in EXHIBITS.values()) >= 15


def test_tiny_protocols_that_are_proved_are_good() -> None:
    """Against the model checker, which knows nothing of words and thresholds; ``tools/graph_agree.py`` does it at
    length."""
    rng, judged = Random(11), 0
    for slots, total in ((1, 3), (2, 3), (2, 4)):
        pool = [*agree.programs(total)]
        for words in rng.sample(pool, min(250, len(pool))):
            p = agree.protocol(*words, slots)
            if proved(p):
                judged += 1
                for kt in (0, 1, 2, 3, 5):
                    outcome = exhaust(p, lambda *_, kt=kt: kt, max_states=20_000)
                    assert outcome.finding is None, p
    assert judged > 20


FREED_EARLY = """
protocol("freed_early", cluster=1, registers_per_thread=168)
symbol("kt")
buffer("p", "tmem", 64, offset=0, initialised=False)
buffer("o", "tmem", 64, offset=64, initialised=False)
buffer("v", "shared", 1024, offset=0, initialised=True)
mbarrier("p_full", 1, 128)
mbarrier("p_empty", 1, 1)
mbarrier("o_full", 1, 1)
mbarrier("o_empty", 1, 128)
with role("mma", 32):
    all(Tcgen05Alloc("p"))
    all(Tcgen05Alloc("o"))
    elected(MbarrierInit("p_full"))
    elected(MbarrierInit("p_empty"))
    elected(MbarrierInit("o_full"))
    elected(MbarrierInit("o_empty"))
    elected(FenceMbarrierInit())
    all(CtaSync())
    for k in range(0, kt, 1):
        elected(Wait(Slot("o_empty"), (k + 1) % 2))
        elected(Wait(Slot("p_full"), k % 2))
        elected(Tcgen05FenceAfter())
        elected(Tcgen05Mma(Region("o", 0, 64), (Region("p", 0, 64), Region("v", 0, 1024))))
        elected(Tcgen05Commit(Slot("p_empty")))
        elected(Tcgen05Commit(Slot("o_full")))
    all(Tcgen05Dealloc("p"))
    all(BarSync(2, 288))
    all(Tcgen05Dealloc("o"))
with role("softmax", 128):
    all(CtaSync())
    for k in range(0, kt, 1):
        all(Wait(Slot("p_empty"), (k + 1) % 2))
        all(Tcgen05FenceAfter())
        all(Tcgen05St(Region("p", 0, 64)))
        all(Tcgen05WaitSt())
        all(Tcgen05FenceBefore())
        all(Arrive(Slot("p_full")))
    all(Tcgen05WaitSt())
    all(BarArrive(2, 288))
with role("correction", 128):
    all(CtaSync())
    for k in range(0, kt, 1):
        all(Wait(Slot("o_full"), k % 2))
        all(Tcgen05FenceAfter())
        all(Tcgen05Ld(Region("o", 0, 64)))
        all(Tcgen05WaitLd())
        all(Tcgen05FenceBefore())
        all(Arrive(Slot("o_empty")))
    all(Tcgen05WaitLd())
    all(BarArrive(2, 288))
"""


def test_waits_that_never_come_tell_of_nothing() -> None:
    """All waits for p_empty are past after the loop, but none was for the last commit: its product may still read p."""
    protocol = from_text(FREED_EARLY)
    assert not proved(protocol)
    assert isinstance(check(protocol), Refuted)


def test_a_barrier_without_uses_is_initialised_once() -> None:
    p = pipeline(1, 2, 1, persistent=False, style="generic", store=False)
    p = replace(p, barriers=(*p.barriers, replace(p.barriers[0], name="unused")))
    spot = next(s for s, x in spots(p) if isinstance(x.op, ops.MbarrierInit))
    one = Step(ops.MbarrierInit("unused"), By.ELECTED)
    assert proved(replaced(p, spot, step_at(p, spot), one))
    assert not proved(replaced(p, spot, step_at(p, spot), one, one))


def test_a_barrier_that_stays_open_orders_nothing() -> None:
    """Half of its threads arrive once and nobody waits: as in a kernel whose gate is closed."""
    p = pipeline(1, 2, 1, persistent=False, style="generic", store=False)
    role = p.roles[-1]

    def behind(*more: Node) -> Protocol:
        return replace(p, roles=(*p.roles[:-1], replace(role, body=(*role.body, *more))))

    arrive = Step(ops.BarArrive(Const(5), 2 * role.threads), By.ALL)
    assert proved(behind(arrive))
    assert isinstance(check(behind(arrive)), Proved)
    assert not proved(behind(arrive, arrive))
    assert not proved(behind(Loop("again", Const(0), sym("kt"), 1, (arrive,))))
    assert not proved(behind(Step(ops.BarSync(Const(5), 2 * role.threads), By.ALL)))


def test_tensor_memory_without_uses_need_not_be_allocated() -> None:
    p = pipeline(1, 2, 1, persistent=False, style="generic", store=False)
    unused = Buffer("acc", Space.TMEM, 64)
    assert proved(replace(p, buffers=(*p.buffers, unused)))
    role = p.roles[-1]
    load = Step(ops.Tcgen05Ld(ops.Region("acc", Const(0), Const(64))), By.ALL)
    assert not proved(
        replace(p, buffers=(*p.buffers, unused), roles=(*p.roles[:-1], replace(role, body=(*role.body, load))))
    )


CASES = """
protocol("cases", cluster=1)
symbol("tiles")
symbol("copies", most=1{per})
buffer("panel", "shared", 1024, offset=0, initialised=False)
with role("consumer", 128):
    for tile in range(0, tiles, 1):
        if copies == 1:
            elected(BulkWait(read=True))
            all(CtaSync())
            all(Write(Region("panel", 0, 1024)))
            all(FenceProxyAsync(space="shared"))
            all(CtaSync())
            elected(TmaStore(Region("panel", 0, 1024)))
            elected(BulkCommit())
        else:
            all(CtaSync())
            all(Write(Region("panel", 0, 1024)))
            all(CtaSync())
            all(Read(Region("panel", 0, 1024)))
    elected(BulkWait())
"""


def test_a_symbol_of_few_values_is_proved_value_by_value() -> None:
    """Tiles that threads store need not wait for copies, if there are none in the same run."""
    assert proved(from_text(CASES.format(per="")))
    varying = from_text(CASES.format(per=', per="tile"'))
    assert not proved(varying)
    assert isinstance(check(varying), Refuted)
