"""The order in which facts about a block are computed: each op after those it depends on."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.protocol.effects import Await, BarrierScope, Sync
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.parametric.classes import Class, Ref
from tilewright.verify.parametric.facts import PreparedProtocol

END = 1 << 30
"""Behind all ops of a block."""


def in_evaluation_order(facts: PreparedProtocol, s: int, left: dict[Class, list[int]]) -> Iterator[Ref]:
    """The ops of a block that acquire, each after those of its iteration whose releases it acquires, if possible."""
    next_of = {c: found[0] if found else END for c, found in left.items()}
    at = dict.fromkeys(left, 0)
    needed: dict[Class, list[Ref]] = {}
    moved = True
    while moved:
        moved = False
        for c, found in left.items():
            while at[c] < len(found):
                ref = Ref(c, s, found[at[c]])
                if c not in needed:
                    needed[c] = list(_needed(facts, ref))
                if any(next_of[other.c] < other.i for other in needed[c]):
                    break
                yield ref
                del needed[c]
                at[c] += 1
                next_of[c] = found[at[c]] if at[c] < len(found) else END
                moved = True
    for c, found in left.items():
        yield from (Ref(c, s, i) for i in found[at[c] :])


def _needed(facts: PreparedProtocol, ref: Ref) -> Iterator[Ref]:
    """The ops of the same iteration and block that an op depends on."""
    for effect in ref.op.effects:
        match effect:
            case Await():
                use, wait = facts.wait_of[ref]
                for family in use.releasing:
                    ahead = wait.number - family.lead[ref.s]
                    if ahead >= 0:
                        yield family.at(ref.s)[ahead].ref
            case Sync(scope, waits=True) if scope is not BarrierScope.WARP:
                ref = cluster_arrive(ref) if scope is BarrierScope.CLUSTER else ref
                yield from facts.syncs[ref].beside(ref)
            case _:
                pass


def cluster_arrive(ref: Ref) -> Ref:
    """The arrive that a cluster wait belongs to: the op's own last one in the same block."""
    for i in range(ref.i - 1, -1, -1):
        found = Ref(ref.c, ref.s, i)
        sync = next((x for x in found.op.of(Sync) if x.scope is BarrierScope.CLUSTER), None)
        if sync is not None and sync.arrives:
            return found
        if sync is not None:
            break
    raise OutsideFragment("a cluster wait without its arrive")
