"""Queries of the rules: uses of barriers, accesses, and what a class knows of an op at another op."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from tilewright.protocol.effects import WGMMA, Access
from tilewright.protocol.graph import EventGraph, InductionVariable
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.parametric.accesses import ClassAccesses, accesses_of
from tilewright.verify.parametric.classes import Class, Ref
from tilewright.verify.parametric.happens_before import HappensBefore
from tilewright.verify.parametric.marks import OpRun, Segment
from tilewright.verify.parametric.matching import Array, BarrierUse, PhaseUse, barrier_uses
from tilewright.verify.parametric.paths import FAR
from tilewright.verify.parametric.statements import Question, Row
from tilewright.verify.parametric.thread_barriers import thread_barriers

NEAR = range(-2, 4)
"""Iterations around the present one, or around one lap ago, for which thresholds are distinguished."""

MAX_ITERATIONS = 8
"""How many iterations back ``PreparedProtocol.reached`` searches for an op."""


class Issue(NamedTuple):
    """A wgmma of a class: once its ``completion`` is known, so are the runs that another class of the role has
    ``issued`` with it, and all ``earlier`` runs of that class."""

    completion: OpRun
    issued: list[OpRun]
    earlier: list[OpRun]


class PreparedProtocol:
    """A protocol with everything computed that queries need."""

    def __init__(self, graph: EventGraph):
        self.graph, self.protocol = graph, graph.protocol
        self._mine: dict[tuple[Ref, Ref], Row] = {}
        self._rows: dict[tuple[int, int], Row] = {}
        self._issuing: dict[Class, dict[OpRun, tuple[int, int]]] = {}
        self._passed: dict[tuple[frozenset[int], int], bool] = {}
        self._reached: dict[tuple[InductionVariable, tuple[PhaseUse, ...], int], int] = {}
        self.inits: dict[Array, list[Ref]] = {}
        self.unfenced: set[str] = set()
        """Barriers that other threads than the initialising one use, with no fence behind the initialisation."""
        self.k = HappensBefore(graph)
        self.bars = barrier_uses(graph, self.k)
        self.syncs, self.barriers = thread_barriers(graph, self.k)
        self.accesses = ClassAccesses(accesses_of(graph, self.k.classes, self.bars))
        ivs = [u for u in graph.ivs if u]
        self.k.prepare(ivs, [self._thresholds(u) for u in ivs], *self.accesses.asked())
        self.column = {u: i for i, u in enumerate(self.k.ivs)}
        self.wait_of = {p.ref: (use, p) for use in self.bars.values() for p in use.waits}
        self.position = {
            (c.index, site): (s, i)
            for c in self.k.classes
            for s, code in enumerate(c.code)
            for i, site in enumerate(code)
        }

    def _thresholds(self, iv: InductionVariable) -> set[int]:
        """What rules may ask for: now, or the lap of a ring before, a few iterations more or less."""
        laps = {0}
        laps |= {-w.number for use in self.bars.values() if use.iv == iv for w in use.waits}
        laps |= {
            a.place.stages for a, *_ in self.accesses.series() if a.place.index is not None and a.place.index.iv == iv
        }
        return {lap + near for lap in laps for near in NEAR}

    # -- what a class knows at a place --------------------------------------------------------------------------------
    def says(self, ref: Ref, segment: Segment, mark: OpRun, question: Question) -> bool:
        """Whether the class knows so much of a mark just before the op."""
        k = self.k
        slot = k.slots[segment].get(mark)
        if slot is None:
            return False
        return bool(k.at(ref.c, ref.s, ref.i) >> question.plane * k.statements.n + slot & 1)

    def says_itself(self, ref: Ref, section: str, mark: OpRun, question: Question) -> bool:
        """The same of a mark of the class's own, in a section of what it knows of itself."""
        own = self.k.own[ref.c.index]
        slot = own.sections[section][mark]
        return bool(own.at(ref.s, ref.i) >> question.plane * own.statements.n + slot & 1)

    def mine(self, ref: Ref, other: Ref) -> Row:
        """What program order says of an op of the same class."""
        found = self._mine.get((ref, other))
        if found is None:
            row = [FAR] * len(self.k.ivs) + [0, 0 if other.s == ref.s and other.i < ref.i else 1]
            found = self._mine[ref, other] = self.k.closed_row(row, ref.s, other.s)
        return found

    def knows(self, ref: Ref, segment: Segment, other: Ref, question: Question, own: bool = False) -> bool:
        """What the class of an op knows of another op, for the whole class that executes that one."""
        if other.c is ref.c and (own or ref.c.group.size == 1) and question.holds(self.mine(ref, other)):
            return True
        mark = self.k.marks.event.get((other.c.index, other.s, other.i))
        return mark is not None and self.says(ref, segment, mark, question)

    def releases(self, ref: Ref, other: Ref, question: Question) -> bool:
        """Whether an arrival releases so much of another op."""
        k = self.k
        slot = k.slots[Segment.SCHEDULE][k.marks.event[other.c.index, other.s, other.i]]
        released = k.at(ref.c, ref.s, ref.i) | k.released(ref.c, ref.s, ref.i)
        return bool(released >> question.plane * k.statements.n + slot & 1)

    def seen(self, ref: Ref, segment: Segment, use: BarrierUse, wait: PhaseUse) -> list[Row]:
        """What an op knows of a wait, one row for each class that executes it."""
        return [self._seen(ref, segment, w) for w in use.alike[wait.ref.site]]

    def _seen(self, ref: Ref, segment: Segment, wait: Ref) -> Row:
        row = self.row(ref, segment, wait)
        return list(map(min, row, self.mine(ref, wait))) if wait.c is ref.c else row

    def row(self, ref: Ref, segment: Segment, other: Ref) -> Row:
        """All that an op knows of another."""
        k = self.k
        variable = k.places[ref.c.index][ref.s][ref.i]
        slot = k.slots[segment][k.marks.event[other.c.index, other.s, other.i]]
        found = self._rows.get((variable, slot))
        if found is None:
            found = self._rows[variable, slot] = k.statements.row(k.values[variable], slot)
        return found

    def row_of_own(self, ref: Ref, section: str, other: Ref) -> Row:
        """All that a class knows of an op of its own, in a section of what it knows of itself."""
        own = self.k.own[ref.c.index]
        slot = own.sections[section][self.k.marks.event[other.c.index, other.s, other.i]]
        return own.statements.row(own.at(ref.s, ref.i), slot)

    def upto(self, iv: InductionVariable, bound: int) -> Question:
        """All executions up to ``bound`` iterations before now; without an induction variable, all until now."""
        return self.k.levels.upto(self.column[iv], bound) if iv else self.k.levels.past

    # -- paths through the product ------------------------------------------------------------------------------------
    def reached(self, use: BarrierUse, pieces: tuple[PhaseUse, ...], s: int) -> int:
        """The product has come to the ops among ``pieces`` for all uses up to ``now + reached`` where we stand in block
        ``s``; each use has one of them. -FAR: none for sure.

        Rows may say more: that executions still to come are past, of which there are none. They must not be
        released to another op as if there were one.
        """
        key = use.iv, pieces, s
        found = self._reached.get(key)
        if found is None:
            found = self._reached[key] = self._reach(use, pieces, s)
        return found

    def _reach(self, use: BarrierUse, pieces: tuple[PhaseUse, ...], s: int) -> int:
        iv, held = self.column[use.iv], dict[int, int]()
        for piece in pieces:
            held[piece.ref.s] = max(piece.number, held.get(piece.ref.s, piece.number))
        least, seen, pending = FAR, set[tuple[int, int]](), [(s, 0)]
        while pending:
            at, iterations = pending.pop()
            if (at, iterations) in seen:
                continue
            seen.add((at, iterations))
            if iterations > MAX_ITERATIONS:
                return -FAR
            if at in held:
                least = min(least, held[at] - iterations)
                continue
            if at in self.graph.product.starts:
                least = min(least, -1 - iterations)
            pending += [(source, iterations + bool(advanced[iv])) for source, advanced in self.k.paths.entering[at]]
        return least

    def passed(self, there: Set[int], s: int) -> bool:
        """Whether every path from the start to block ``s`` passes one of ``there``, which may include ``s``."""
        key = frozenset(there), s
        found = self._passed.get(key)
        if found is None:
            found = self._passed[key] = self.passed_since(self.graph.product.starts, there, s, frozenset())
        return found

    def passed_since(self, since: Iterable[int], there: Set[int], s: int, iv: InductionVariable) -> bool:
        """The same for the paths from blocks ``since`` on which ``iv`` does not advance."""
        seen, pending = set[int](), [*since]
        while pending:
            at = pending.pop()
            if at in there or at in seen:
                continue
            if at == s:
                return False
            seen.add(at)
            pending += [f.target for f in self.graph.product.leaving[at] if not iv.intersection(f.advances)]
        return True

    def issues(self, ref: Ref) -> Iterator[Issue]:
        """What the completions of a class's wgmma tell of the other classes of its role."""
        k = self.k
        if ref.c not in self._issuing:
            found = k.effects.of(Access)
            done = {
                k.marks.done[x.c.index, x.s, x.i]: (x.s, x.i) for x, a in found if x.c is ref.c and a.queue is WGMMA
            }
            self._issuing[ref.c] = done  # by the last of each run
        for mark, (s, i) in self._issuing[ref.c].items():
            for d in k.classes:
                if d is ref.c or d.role != ref.c.role:
                    continue
                place = self.position.get((d.index, ref.c.code[s][i]))
                if place is None:
                    raise OutsideFragment("wgmma by part of a role")
                runs = k.marks.events[d.index]
                issued = [m for m in runs if m.block == s and m.end <= place[1] + 1]
                if s == ref.s:
                    yield Issue(mark, issued, runs)
                else:
                    yield Issue(mark, issued, [m for m in runs if self._issued_after(m.block, s, ref.s)])

    def _issued_after(self, at: int, s: int, here: int) -> bool:
        return at not in (s, here) and self.k.paths.separated(at, here, s)
