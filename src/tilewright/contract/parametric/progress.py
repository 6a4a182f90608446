"""Every wait can complete: all it needs is earlier in the word, or beside it and then without a circle."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.contract.parametric.facts import Facts
from tilewright.contract.parametric.learning import cluster_arrive
from tilewright.contract.parametric.matching import (
    Ref,
    refs_of,
)
from tilewright.contract.parametric.registers import givers
from tilewright.protocol import ops
from tilewright.protocol.word import NoWord


def check_progress(facts: Facts) -> None:
    """No wait waits, through others, for itself: all it needs is earlier in the word, or in the same stretch and
    then without a circle."""
    needs: dict[Ref, list[Ref]] = {}
    for ref in refs_of(facts.k, lambda op: True):
        after = needs.setdefault(ref, [])
        match ref.op:
            case ops.Wait():
                after += _needed_arrivals(facts, ref)
            case ops.BarSync() | ops.CtaSync():
                after += _needed_partners(facts, ref)
            case ops.ClusterWait():
                after += _needed_partners(facts, cluster_arrive(ref))
            case ops.WgmmaWait() | ops.WarpSync():
                # the role's other threads must be there; a warp's sync is not taken to teach anything
                after += [
                    Ref(d, ref.s, i)
                    for d in facts.k.classes
                    if d.role == ref.c.role and d is not ref.c
                    for i in range(len(d.code[ref.s]))
                    if d.code[ref.s][i] == ref.site
                ]
            case ops.Setmaxnreg():
                after += givers(facts, ref)
            case _:
                pass
    # an op is reached when the one before it is done
    state: dict[Ref, int] = {}

    def visit(ref: Ref) -> None:
        stack: list[tuple[Ref, Iterator[Ref]]] = [(ref, iter(())), (ref, _edges(ref, needs))]
        state[ref] = 1
        while stack:
            at, edges = stack[-1]
            following = next(edges, None)
            if following is None:
                stack.pop()
                state[at] = 2
            elif state.get(following) == 1:
                raise NoWord(f"{at.name} waits in a circle")
            elif following not in state:
                state[following] = 1
                stack.append((following, _edges(following, needs)))

    for ref in needs:
        if ref not in state:
            visit(ref)


def _edges(ref: Ref, needs: dict[Ref, list[Ref]]) -> Iterator[Ref]:
    if ref.i:
        yield Ref(ref.c, ref.s, ref.i - 1)
    for other in needs[ref]:
        if other.i:
            yield Ref(other.c, other.s, other.i - 1)


def _needed_arrivals(facts: Facts, ref: Ref) -> list[Ref]:
    use, wait = facts.wait_of[ref]
    out: list[Ref] = []
    if not use.signals and (use.unit or wait.number >= 0):
        raise NoWord(f"nobody arrives on {use.array[1]}")
    for family in use.signals:
        ahead = wait.number - family.lead[ref.s]
        if ahead < 0:
            continue
        here = family.at(ref.s)
        if ahead >= len(here):
            raise NoWord(f"{ref.name} on {use.array[1]} waits for what comes later")
        out += [p.ref for p in here[: ahead + 1]]
    return out


def _needed_partners(facts: Facts, ref: Ref) -> list[Ref]:
    barrier = facts.syncs[ref]
    out: list[Ref] = []
    for other in barrier.ops:
        found, same = barrier.partner(ref, other)
        if same:
            out += found
    return out
