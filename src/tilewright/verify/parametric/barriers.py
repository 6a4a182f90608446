"""The rules of barriers: initialised, one phase after the other, no lap ahead of a wait, no use twice."""

from __future__ import annotations

from tilewright.protocol.effects import BarrierLife, BarrierScope, Fence, Order, Signal, Sync
from tilewright.protocol.product_graph import OutsideFragment, repeats
from tilewright.protocol.well_formed import MAX_ARRIVALS
from tilewright.verify.parametric.classes import Ref
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.marks import Segment
from tilewright.verify.parametric.matching import BarrierUse, PhaseUse
from tilewright.verify.parametric.thread_barriers import sync_of


def init_sites(facts: PreparedProtocol) -> None:
    for ref, life in facts.k.effects.of(BarrierLife):
        slots = facts.protocol.barrier(life.barrier).slots
        if (
            (life.slots is not None and life.slots < slots)
            or repeats(facts.graph.product, ref.s)
            or ref.c.group.size > 1
        ):
            raise OutsideFragment(f"a partial or repeated init of {life.barrier}")
        facts.inits.setdefault((ref.c.cta, life.barrier), []).append(ref)
    for array in {**facts.inits, **facts.bars}:  # one that nobody uses must not be initialised twice either
        refs = facts.inits.get(array, [])
        if len({r.s for r in refs}) != len(refs) or {r.s for r in refs} != set(facts.graph.product.starts):
            raise OutsideFragment(f"{array[1]} is not initialised once at the start")


def check_barrier(facts: PreparedProtocol, use: BarrierUse) -> None:
    name = use.array[1]
    if sum(f.bytes for f in use.expects) > MAX_ARRIVALS:
        raise OutsideFragment(f"{name} expects more bytes than a phase counts")
    for ref in use.users:
        _visible(facts, ref, use)
    for piece in [*use.waits, *(p for f in [*use.signals, *use.expects] for p in f.pieces)]:
        if not _phase_known(facts, use, piece.ref, piece.number - use.slots):
            raise OutsideFragment(f"{name}: the phase before that of {piece.ref.name} may be incomplete")
    for piece in use.waits:
        _not_lapped(facts, use, piece)
    for family in use.expects:
        for piece in family.pieces:
            if not any(x.arrivals for x in piece.ref.op.of(Signal)):
                _expected_in_time(facts, use, piece)


def _visible(facts: PreparedProtocol, ref: Ref, use: BarrierUse) -> None:
    past = facts.k.levels.past
    for init in facts.inits[use.array]:
        fences = [
            r
            for r, fence in facts.k.effects.of(Fence)
            if fence.order is Order.MBARRIER_INIT and r.c is init.c and r.s == init.s and r.i > init.i
        ]
        if init.c is ref.c:
            if past.holds(facts.mine(ref, init)):
                continue
        elif any(facts.knows(ref, Segment.SCHEDULE, f, past) for f in fences):
            continue
        elif not fences and facts.protocol.cluster == 1 and facts.knows(ref, Segment.MEMORY, init, past):
            facts.unfenced.add(use.array[1])
            continue
        raise OutsideFragment(f"the initialisation of {use.array[1]} is not fenced before {ref.name}")


def _phase_known(facts: PreparedProtocol, use: BarrierUse, ref: Ref, number: int) -> bool:
    """Whether the phase ``now + number`` is complete before the op, in every schedule."""
    if not use.iv and number < 0:
        return True
    for cover in use.covers:
        if _exist(facts, use, cover.pieces, ref.s, number) and all(
            any(
                facts.knows(ref, Segment.SCHEDULE, at, facts.upto(use.iv, w.number - number), own=True)
                for at in use.alike[w.ref.site]
            )
            for w in _of_use(facts, use, cover.pieces, ref.s, number)
        ):
            return True
    if use.landings:
        return False
    return all(
        _exist(facts, use, f.pieces, ref.s, number)
        and all(
            facts.knows(ref, Segment.SCHEDULE, p.ref, facts.upto(use.iv, p.number - number))
            for p in _of_use(facts, use, f.pieces, ref.s, number)
        )
        for f in use.arrivals
    )


def _of_use(
    facts: PreparedProtocol, use: BarrierUse, pieces: tuple[PhaseUse, ...], s: int, number: int
) -> list[PhaseUse]:
    """Of the ops of a family those that may be the one for use ``now + number``, seen from block ``s``."""
    if not use.iv:
        return list(pieces)
    iv, coexist = facts.column[use.iv], facts.k.paths.coexist
    return [p for p in pieces if coexist(p.ref.s, s, iv, p.number - number)]


def _exist(facts: PreparedProtocol, use: BarrierUse, pieces: tuple[PhaseUse, ...], s: int, number: int) -> bool:
    """Whether the product has come to the op among ``pieces`` that is for phase ``now + number``."""
    if not use.iv:
        return facts.passed({p.ref.s for p in pieces}, s)
    return number <= facts.reached(use, pieces, s)


def _not_lapped(facts: PreparedProtocol, use: BarrierUse, wait: PhaseUse) -> None:
    """Phase n + slots completes only after the wait for phase n returned."""
    if not use.iv:
        if any(p.number != 0 for f in use.signals for p in f.pieces):
            raise OutsideFragment(f"{use.array[1]} goes round without a counter")
        if wait.number < 0:
            # it passes on the fresh barrier only as long as phase 0 is not complete
            raise OutsideFragment(f"{use.array[1]} may complete a phase before {wait.ref.name} returns")
        return
    for family in use.signals:
        if all(
            facts.releases(p.ref, wait.ref, facts.upto(use.iv, use.slots + wait.number - p.number))
            for p in family.pieces
            if facts.k.paths.coexist(wait.ref.s, p.ref.s, facts.column[use.iv], use.slots + wait.number - p.number)
        ):
            return
    raise OutsideFragment(f"{use.array[1]} may go round before {wait.ref.name} returns")


def _expected_in_time(facts: PreparedProtocol, use: BarrierUse, expect: PhaseUse) -> None:
    for family in use.arrivals:
        if all(facts.releases(p.ref, expect.ref, facts.upto(use.iv, expect.number - p.number)) for p in family.pieces):
            return
    raise OutsideFragment(f"bytes of {use.array[1]} may be expected after its last arrival")


def check_recycled(facts: PreparedProtocol, ref: Ref) -> None:
    """The use before is complete: someone who took part in it returned."""
    barrier = facts.syncs[ref]
    if sync_of(ref).scope is BarrierScope.CLUSTER:
        _paired(ref)
        return
    if ref.c.index in barrier.waiting:
        return  # its own class did, by program order
    for other in barrier.ops:
        try:
            found, same = barrier.partner(ref, other, 1)
        except OutsideFragment:
            continue
        refs = found if same else [r for rs in barrier.ops[other].values() for r in rs]
        if not all(sync_of(r).waits for r in refs):
            continue
        own = facts.k.classes[other] is ref.c
        question = facts.k.levels.past if same else facts.k.levels.earlier
        if all(facts.knows(ref, Segment.SCHEDULE, r, question, own) for r in refs):
            return
    raise OutsideFragment(f"{barrier.label} may be entered again before {ref.name}")


def _paired(ref: Ref) -> None:
    for i in range(ref.i + 1, len(ref.c.code[ref.s])):
        sync = next((x for x in Ref(ref.c, ref.s, i).op.of(Sync) if x.scope is BarrierScope.CLUSTER), None)
        if sync is not None and not sync.arrives:
            return
        if sync is not None:
            break
    raise OutsideFragment("a cluster arrive without its wait in the same block")
