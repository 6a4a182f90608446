"""Conditions at the end of a class or a CTA."""

from __future__ import annotations

from tilewright.protocol.effects import Access, Queue, Signal
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.parametric.accesses import TRACKED
from tilewright.verify.parametric.classes import Ref
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.marks import Segment
from tilewright.verify.parametric.matching import BarrierUse, PhaseFamily


def check_end(facts: PreparedProtocol) -> None:
    k = facts.k
    for c in k.classes:
        for s in facts.graph.product.ends:
            end = Ref(c, s, len(c.code[s]))
            for mark in k.marks.completions[c.index]:
                if not facts.says_itself(end, "done", mark, k.levels.past):
                    raise OutsideFragment(f"{c.group.label} may end with groups in flight")
    for use in facts.bars.values():
        for landing in use.landings:
            if not _all_waited_for(facts, use, landing):
                raise OutsideFragment(f"copies tracked by {use.array[1]} may be in flight at the end")
    tracked = {ref: x.queue for ref, x in k.effects.of(Access) if x.queue in TRACKED}
    for ref, queue in tracked.items():
        if not _waited_for(facts, ref, queue):
            raise OutsideFragment(f"{ref.name} may be in flight at the end")
    _peers(facts)


def _peers(facts: PreparedProtocol) -> None:
    """A CTA that others touch runs by then, and ends only after they did."""
    touched = [
        (ref, array[0])
        for ref in dict.fromkeys(ref for ref, _ in facts.k.effects.of(Signal))
        for array, use in facts.bars.items()
        if ref in use.users
    ]
    accessed = [(a.ref, a.peer) for series in facts.accesses.series() for a in series if a.peer is not None]
    for ref, target in accessed:
        if not _runs(facts, target, ref):
            raise OutsideFragment(f"CTA {target} may not run yet when {ref.name} touches it")
    for ref, target in dict.fromkeys([*touched, *accessed]):
        if target != ref.c.cta and not all(_outlives(facts, target, s, ref) for s in facts.graph.product.ends):
            raise OutsideFragment(f"CTA {target} may end before {ref.name} touches it")


def _runs(facts: PreparedProtocol, target: object, ref: Ref) -> bool:
    """Whether an op knows that an event which a CTA reaches on every path to it has happened."""
    return any(
        facts.passed({mark.block}, ref.s)
        and any(facts.says(ref, x, mark, facts.k.levels.past) for x in (Segment.SCHEDULE, Segment.MEMORY))
        for c in facts.k.classes
        if c.cta == target
        for mark in facts.k.marks.events[c.index]
    )


def _outlives(facts: PreparedProtocol, target: object, s: int, ref: Ref) -> bool:
    """Whether a CTA that ends in block ``s`` knows that an op is past."""
    mark = facts.k.marks.event[ref.c.index, ref.s, ref.i]
    return any(
        facts.says(Ref(c, s, len(c.code[s])), Segment.SCHEDULE, mark, facts.k.levels.past)
        for c in facts.k.classes
        if c.cta == target
    )


def _all_waited_for(facts: PreparedProtocol, use: BarrierUse, family: PhaseFamily) -> bool:
    """Whether, wherever the product ends, some class has waited for every phase that a family took."""
    ends = [-1 - e for e in facts.graph.product.ends]
    return any(all(e in family.lead and c.lead[e] >= family.lead[e] for e in ends) for c in use.covers)


def _waited_for(facts: PreparedProtocol, ref: Ref, queue: Queue | None) -> bool:
    """Whether, on every path to the end, a commit follows whose phase some class waits for."""
    ends = facts.graph.product.ends
    for use in facts.bars.values():
        for family in use.arrivals:
            if not _all_waited_for(facts, use, family):
                continue
            for piece in family.pieces:
                commit = piece.ref
                if commit.c is ref.c and any(x.after is queue for x in commit.op.of(Signal)):
                    if commit.s == ref.s and commit.i > ref.i:
                        return True
                    if commit.s != ref.s and all(facts.k.paths.separated(ref.s, e, commit.s) for e in ends):
                        return True
    return False
