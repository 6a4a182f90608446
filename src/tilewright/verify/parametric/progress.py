"""Proves that every wait completes: everything it needs is earlier in the product, or concurrent without a cycle."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from tilewright.protocol import effects
from tilewright.protocol.effects import Await, BarrierScope, Effect, Pool, Retire, Sync
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.parametric.classes import Class, Ref
from tilewright.verify.parametric.evaluation_order import cluster_arrive
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.registers import givers

_BLOCKING = Await, Sync, Retire, Pool


def check_progress(facts: PreparedProtocol) -> None:
    """No wait waits, through others, for itself: all it needs is earlier in the product, or in the same block and
    then without a circle."""
    needs: dict[Ref, list[Ref]] = {}
    for c in facts.k.classes:
        for s, code in enumerate(c.ops):
            for i, op in enumerate(code):
                first = op.effects[0] if op.effects else None
                if isinstance(first, _BLOCKING) and (found := _needs(facts, Ref(c, s, i), first)):
                    needs[Ref(c, s, i)] = found
    # an op is reached when the one before it is done; ops that need nobody are done when they are reached
    chains: dict[tuple[Class, int], list[int]] = {}
    for ref in needs:
        chains.setdefault((ref.c, ref.s), []).append(ref.i)

    def reached_after(ref: Ref) -> Iterator[Ref]:
        for other in (ref, *needs[ref]):
            chain = chains.get((other.c, other.s), [])
            before = bisect_left(chain, other.i)
            if before:
                yield Ref(other.c, other.s, chain[before - 1])

    state: dict[Ref, int] = {}

    def visit(ref: Ref) -> None:
        stack = [(ref, reached_after(ref))]
        state[ref] = 1
        while stack:
            at, edges = stack[-1]
            following = next(edges, None)
            if following is None:
                stack.pop()
                state[at] = 2
            elif state.get(following) == 1:
                raise OutsideFragment(f"{at.name} waits in a circle")
            elif following not in state:
                state[following] = 1
                stack.append((following, reached_after(following)))

    for ref in needs:
        if ref not in state:
            visit(ref)


def _needs(facts: PreparedProtocol, ref: Ref, effect: Effect) -> list[Ref]:
    """The ops of the same iteration of the block that an op waits for; what blocks is an op's first effect."""
    match effect:
        case Await():
            return _needed_arrivals(facts, ref)
        case Sync(BarrierScope.CTA, waits=True):
            return list(facts.syncs[ref].beside(ref))
        case Sync(BarrierScope.CLUSTER, waits=True):
            arrive = cluster_arrive(ref)
            return list(facts.syncs[arrive].beside(arrive))
        case Retire(effects.WGMMA) | Sync(BarrierScope.WARP):
            # the role's other threads must be there; a warp's sync is not taken to acquire anything
            classes = (d for d in facts.k.classes if d.role == ref.c.role and d is not ref.c)
            places = ((d, facts.position.get((d.index, ref.site))) for d in classes)
            return [Ref(d, *place) for d, place in places if place is not None]
        case Pool():
            return givers(facts, ref, effect)
        case _:
            return []


def _needed_arrivals(facts: PreparedProtocol, ref: Ref) -> list[Ref]:
    use, wait = facts.wait_of[ref]
    out: list[Ref] = []
    if not use.signals and (use.iv or wait.number >= 0):
        raise OutsideFragment(f"nobody arrives on {use.array[1]}")
    for family in use.signals:
        ahead = wait.number - family.lead[ref.s]
        if ahead < 0:
            continue
        here = family.at(ref.s)
        if ahead >= len(here):
            raise OutsideFragment(f"{ref.name} on {use.array[1]} waits for what comes later")
        out += [p.ref for p in here[: ahead + 1]]
    return out
