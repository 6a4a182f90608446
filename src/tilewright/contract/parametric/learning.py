"""What an op teaches the class that executes it: phases, meetings of threads, issued groups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.contract.parametric.facts import Facts, Issue
from tilewright.contract.parametric.knowledge import DONE, FAR, Class, F, M, Rows, S, X
from tilewright.contract.parametric.matching import (
    BarrierUse,
    Family,
    Piece,
    Ref,
)
from tilewright.contract.parametric.meetings import ThreadBarrier
from tilewright.protocol import ops
from tilewright.protocol.word import NoWord


def acquire(facts: Facts, c: Class, s: int, i: int, rows: Rows) -> Rows:
    """The rows after an op that learns from others."""
    ref = Ref(c, s, i)
    rows = rows.copy()
    match ref.op:
        case ops.Wait():
            _acquire_phase(facts, ref, ref.op, rows)
        case ops.BarSync() | ops.CtaSync():
            _acquire_sync(facts, ref, facts.syncs[ref], rows)
        case ops.ClusterWait():
            arrive = cluster_arrive(ref)
            _acquire_sync(facts, arrive, facts.syncs[arrive], rows)
        case ops.WgmmaWait():
            _acquire_issues(facts, ref, rows)
        case _:
            raise AssertionError(ref.op)
    return rows


def _acquire_phase(facts: Facts, ref: Ref, op: ops.Wait, rows: Rows) -> None:
    use, wait = facts.wait_of[ref]
    for family in use.teachers:
        chosen = _segments(facts) if family in use.arrivals else [S]
        ways: list[Rows] = []
        for piece, told in _told(facts, family, wait, use, op):
            known = rows[chosen]
            if piece is not None and len(family.pieces) > 1:
                known = _elsewhere(facts, known, piece, wait, use)
            ways.append(np.minimum(known, told[: len(chosen)]))
        if ways:
            rows[chosen] = np.maximum.reduce(ways)


def _segments(facts: Facts) -> list[int]:
    """The rows that an acquire adds to, in the order in which they are handed on."""
    return [S, M, F, X, facts.k.unfenced] if facts.k.tensor else [S, M, F, X]


def _elsewhere(facts: Facts, rows: Rows, piece: Piece, wait: Piece, use: BarrierUse) -> Rows:
    """``rows`` when ``piece`` made the awaited arrival: the iteration of that use went through its stretches, so of
    others there is no execution in it, and all before it is all until it."""
    column = facts.column[use.unit]
    absent = facts.absent.get(piece)
    if absent is None:
        absent = facts.absent[piece] = np.array(
            [not _together(facts, int(s), piece, column) for s in facts.k.stretch_of], np.bool_
        )
    out = rows.copy()
    out[..., column] -= (rows[..., column] == 1 - wait.number) & absent
    return out


def _together(facts: Facts, s: int, piece: Piece, column: int) -> bool:
    """Whether a stretch may be passed while the unit stands at the use that ``piece`` is for."""
    link, there, turns = facts.k.ways.link, piece.ref.s, piece.number
    if turns > 0:
        return link(there, s, column, turns) is not None
    if turns < 0:
        return link(s, there, column, -turns) is not None
    return s == there or link(s, there, column, 0) is not None or link(there, s, column, 0) is not None


def _told(
    facts: Facts, family: Family, wait: Piece, use: BarrierUse, op: ops.Wait
) -> Iterator[tuple[Piece | None, Rows]]:
    """What the family's arrival in the awaited phase may hand on, as it reads at the wait, by who made it."""
    s = wait.ref.s
    ahead = wait.number - family.lead[s]
    if ahead >= 0:
        yield None, _handed(facts, family.at(s)[ahead], use, op)
        return
    fresh = _may_be_fresh(facts, use, s, wait.number)
    if not use.unit:
        for piece in family.pieces if not fresh else ():
            link = facts.k.ways.path(piece.ref.s, s, frozenset())
            if link is not None:
                told = _handed(facts, piece, use, op)
                yield None, facts.k.handed(told, piece.ref.s, s, link)
        return
    unit = facts.column[use.unit]
    for piece in family.pieces:
        link = facts.k.ways.link(piece.ref.s, s, unit, piece.number - wait.number)
        if link is None:
            continue
        told = _handed(facts, piece, use, op)
        if not fresh:
            yield piece, facts.k.handed(told, piece.ref.s, s, link)
            continue
        # a wait that passes on a fresh barrier teaches nothing: keep only what speaks of no execution then
        growth = tuple(g if u == unit else FAR for u, g in enumerate(link.growth))
        moved = facts.k.moved(told, piece.ref.s, s, growth, frozenset(range(facts.k.n)))
        kept = facts.k.nothing(*moved.shape[:-2])
        first = facts.k.ways.earliest[unit, facts.k.stretch_of]
        kept[..., unit] = np.maximum(moved[..., unit], -wait.number - first)
        yield piece, facts.k.closed(kept, s)


def _may_be_fresh(facts: Facts, use: BarrierUse, s: int, number: int) -> bool:
    if not use.unit:
        return number < 0
    return int(facts.k.ways.earliest[facts.column[use.unit], s]) + number < 0


def _handed(facts: Facts, piece: Piece, use: BarrierUse, wait: ops.Wait) -> Rows:
    op, ref = piece.ref.op, piece.ref
    if isinstance(op, ops.TmaLoad):
        return facts.k.released(ref.c, ref.s, ref.i, memory=False)
    if isinstance(op, ops.Tcgen05Commit):
        return facts.k.released(ref.c, ref.s, ref.i)
    assert isinstance(op, ops.Arrive | ops.ArriveExpectTx | ops.CpAsyncArrive)
    memory = getattr(op, "release", True)
    if use.array[0] != ref.c.cta:
        memory = memory and ops.Scope.CTA not in (getattr(op, "scope", ops.Scope.CTA), wait.scope)
    return facts.k.released(ref.c, ref.s, ref.i, memory)


def _acquire_sync(facts: Facts, ref: Ref, barrier: ThreadBarrier, rows: Rows) -> None:
    for other, ops_of in barrier.ops.items():
        found, same = barrier.partner(ref, other)
        if same:
            told = _arrived(facts, found[0])
        else:
            stretches = frozenset(s for s, refs in ops_of.items() if refs)
            ways: list[Rows] = []
            for x in found:
                link = facts.k.ways.path(x.s, ref.s, stretches)
                if link is not None:
                    ways.append(facts.k.handed(_arrived(facts, x), x.s, ref.s, link))
            if not ways:
                continue
            told = np.maximum.reduce(ways)
        chosen = _segments(facts)
        rows[chosen] = np.minimum(rows[chosen], told)


def _arrived(facts: Facts, ref: Ref) -> Rows:
    memory = ref.op.release if isinstance(ref.op, ops.ClusterArrive) else True
    return facts.k.released(ref.c, ref.s, ref.i, memory)


def cluster_arrive(ref: Ref) -> Ref:
    """The arrive that a cluster wait belongs to: the op's own last one in the same stretch."""
    for i in range(ref.i - 1, -1, -1):
        found = Ref(ref.c, ref.s, i)
        if isinstance(found.op, ops.ClusterArrive):
            return found
        if isinstance(found.op, ops.ClusterWait):
            break
    raise NoWord("a cluster wait without its arrive")


def _acquire_issues(facts: Facts, ref: Ref, rows: Rows) -> None:
    """A group is done only when every warp has issued its part: the others' issues are past, and with an issue all that
    its threads did before."""
    k = facts.k
    plan = facts.issue_plans.get(ref)
    if plan is None:
        plan = facts.issue_plans[ref] = list(_issue_plan(facts, ref))
    reached = False
    for x in plan:
        rows[S, x.issued] = np.minimum(rows[S, x.issued], rows[DONE, x.mark])
        if rows[DONE, x.mark, x.flag] == 0:
            rows[S, x.earlier, k.whole] = 0
            reached = True
    if reached:
        rows[S] = k.closed(rows[S], ref.s)


def _issue_plan(facts: Facts, ref: Ref) -> Iterator[Issue]:
    k = facts.k
    for (c, s, i), mark in k.done.items():
        site = ref.c.code[s][i] if c == ref.c.index else None
        if site is None or not isinstance(site.step.op, ops.Wgmma):
            continue
        for d in k.classes:
            if d is ref.c or d.role != ref.c.role:
                continue
            place = facts.position.get((d.index, site))
            if place is None:
                raise NoWord("wgmma by part of a role")
            issued = list(k.finished[d.index, s, place[1] + 1])
            marks = k.marks_of(d)
            if s == ref.s:
                yield Issue(mark, k.here, issued, marks)
            else:
                earlier = [e for e in marks if _issued_after(facts, int(k.stretch_of[e]), s, ref.s)]
                yield Issue(mark, k.whole, issued, earlier)


def _issued_after(facts: Facts, at: int, s: int, here: int) -> bool:
    return at not in (s, here) and facts.k.ways.parted(at, here, s)
