"""Whether an access is over, visible and fenced when another one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.protocol.effects import CP_ASYNC, WGMMA, Queue, Signal
from tilewright.verify.parametric.accesses import TRACKED, ClassAccess, same_stages
from tilewright.verify.parametric.classes import Ref
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.marks import OpRun, Segment
from tilewright.verify.parametric.matching import BarrierUse, PhaseUse
from tilewright.verify.parametric.paths import FAR
from tilewright.verify.parametric.statements import Question, Row

Seen = Callable[[PreparedProtocol, Ref, BarrierUse, PhaseUse], list[Row]]
"""What an op knows of a wait, by the classes that execute it."""


class AccessOrder:
    """Answers about pairs of accesses."""

    def __init__(self, facts: PreparedProtocol):
        self.facts, self.k = facts, facts.k
        self._acquired: dict[tuple[object, ...], list[Row]] = {}
        self._completions: dict[ClassAccess, list[tuple[int, OpRun]]] = {}
        self._known: dict[ClassAccess, int] = {}
        self._slots: dict[ClassAccess, tuple[int | None, int | None, int | None]] = {}
        self._alike: dict[ClassAccess, int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        segments = Segment.MEMORY, Segment.WRITER_FENCED, Segment.FENCED
        self._plain = [facts.k.slots[segment] for segment in segments]

    def before(self, x: ClassAccess, y: ClassAccess, laps: int) -> bool:
        """At ``y`` every execution of ``x`` on its bytes is done that comes before: with ``laps`` 0 that of the same
        use (or iteration) too, with 1 those of earlier ones. A class forgets nothing within a block, so what holds at
        one access of a series holds at the later ones."""
        question = self._question(x, y, laps)
        return self._synchronous(x, y, question) if x.generic else self._asynchronous(x, y, question)

    def written(self, x: ClassAccess, y: ClassAccess) -> bool:
        """At the read ``y`` the write ``x`` of the same use (or iteration) is done: in time, where ``before`` asks for
        no order, too."""
        if not self.before(x, y, 0):
            return False
        if not self.unasked(x, y):
            return True
        return x.ref.c is y.ref.c and self._question(x, y, 0).holds(self.facts.mine(y.ref, x.ref))

    def unasked(self, x: ClassAccess, y: ClassAccess) -> bool:
        """Whether no order is needed: threads access their own parts, warps their own lanes, or a queue is in order."""
        if x.generic:
            return x.private and y.private and x.ref.c.party == y.ref.c.party and not y.reaches
        if x.queue is None or y.queue is None:
            return False
        if x.queue is y.queue and x.queue.in_order and x.ref.c is y.ref.c:
            return True
        lanes = x.queue.tensor_memory and y.queue.tensor_memory
        return lanes and x.ref.c is not y.ref.c and x.ref.c.role == y.ref.c.role

    def _question(self, x: ClassAccess, y: ClassAccess, laps: int) -> Question:
        one, two = x.place.index, y.place.index
        if one is not None and two is not None and same_stages(x.place, y.place):
            return self.facts.upto(one.iv, one.offset - two.offset + laps * x.place.stages)
        return self.k.levels.past if laps == 0 and x.ref.s == y.ref.s else self.k.levels.earlier

    def _asynchronous(self, x: ClassAccess, y: ClassAccess, question: Question) -> bool:
        if x.frees:
            if x.ref.c is y.ref.c:
                return question.holds(self.facts.mine(y.ref, x.ref))
            return self.facts.knows(y.ref, Segment.MEMORY, x.ref, question)
        if x.queue is None:
            return any(question.holds(row) for row in self._landed(x, y))
        if x.queue is y.queue is CP_ASYNC and x.ref.c.role == y.ref.c.role:
            return True  # each thread copies its own part
        if x.queue is y.queue and x.queue.in_order and x.ref.c is y.ref.c:
            return True
        if x.queue in TRACKED:
            if x.queue is CP_ASYNC:
                seen = _copy_seen if y.reaches else _plainly(_segment(y))
            else:
                seen = _tensor_seen if _fenced(x, y) else _plainly(_segment(y))
            return any(question.holds(row) for row in self._committed(x, y, x.queue, seen))
        return self._tensor(x, y, question) if x.queue.tensor_memory else self._grouped(x, y, question)

    def _synchronous(self, x: ClassAccess, y: ClassAccess, question: Question) -> bool:
        register, reaches = x.register, y.reaches
        same_role = x.ref.c.party == y.ref.c.party
        own = register or (x.private and y.private and same_role)
        if own and not reaches:
            return True
        mine = x.ref.c is y.ref.c and (own or x.ref.c.group.size == 1)
        if mine and not question.holds(self.facts.mine(y.ref, x.ref)):
            return False
        if register:
            return mine
        if mine:
            mark = self._mark(x)
            return mark is not None and (not reaches or self.facts.says_itself(y.ref, "fenced", mark, question))
        visible, by_writer, fenced = self._slots.get(x) or self._slots_of(x)
        known = self._known.get(y)
        if known is None:
            known = self._known[y] = self.k.at(y.ref.c, y.ref.s, y.ref.i)
        known >>= question.plane * self.k.statements.n
        if visible is None or not known >> visible & 1:
            return False
        if not reaches or (by_writer is not None and known >> by_writer & 1):
            return True
        if x.writes and not y.writes:
            return False  # a fence of the reader's is left to the canonical runs: it is refuted, or told when lenient
        return fenced is not None and bool(known >> fenced & 1)

    def _mark(self, x: ClassAccess) -> OpRun | None:
        return self.k.marks.event.get((x.ref.c.index, x.ref.s, x.ref.i))

    def _slots_of(self, x: ClassAccess) -> tuple[int | None, int | None, int | None]:
        """The slots that state that an access by threads is visible, and that it is ordered by a proxy fence of its own
        threads or of any threads."""
        mark = self._mark(x)
        visible, by_writer, fenced = (segment.get(mark) if mark is not None else None for segment in self._plain)
        found = self._slots[x] = visible, by_writer, fenced
        return found

    def alike(self, x: ClassAccess) -> int:
        """A key that accesses by threads share if answers about bytes outside ring buffers distinguish them only by
        their order in the code of their class."""
        found = self._alike.get(x)
        if found is None:
            k, (c, s, i) = self.k, x.ref
            seen: tuple[object, ...] = (x,)
            if x.generic and x.place.index is None:
                known = k.places[c.index][s][i], k.own[c.index].at(s, i)
                seen = x.kind, x.effect.proxy, x.place.memory[0], s, self._mark(x), *known
            found = self._alike[x] = self._numbers.setdefault(seen, len(self._numbers))
        return found

    def _grouped(self, x: ClassAccess, y: ClassAccess, question: Question) -> bool:
        if x.register and x.queue is y.queue:
            return True
        segment = _segment(y)
        for d, mark in self._marks_of(x):
            # one thread's wait speaks for its own stores only
            if d == y.ref.c.index and (x.queue is WGMMA or y.ref.c.group.size == 1):
                if self.facts.says_itself(y.ref, "done", mark, question):
                    return True
            elif self.facts.says(y.ref, segment, mark, question):
                return True
        return False

    def _marks_of(self, x: ClassAccess) -> list[tuple[int, OpRun]]:
        """The completions of an access in groups, by the classes that may wait for them."""
        found = self._completions.get(x)
        if found is None:
            found = self._completions[x] = []
            for d in self.k.classes:
                if d.role == x.ref.c.role and (x.queue is WGMMA or d is x.ref.c):
                    place = self.facts.position.get((d.index, x.ref.site))
                    if place is not None:
                        found.append((d.index, self.k.marks.done[d.index, place[0], place[1]]))
        return found

    def _tensor(self, x: ClassAccess, y: ClassAccess, question: Question) -> bool:
        lanes = y.queue is not None and y.queue.tensor_memory
        if lanes and x.ref.c is not y.ref.c and x.ref.c.role == y.ref.c.role:
            return True  # each warp reaches its own lanes
        mark = self.k.marks.done[x.ref.c.index, x.ref.s, x.ref.i]
        if x.ref.c is y.ref.c and (lanes or y.ref.c.group.size == 1):
            return self.facts.says_itself(y.ref, "done", mark, question)
        return self.facts.says(y.ref, Segment.TENSOR if _fenced(x, y) else _segment(y), mark, question)

    # -- what waits tell ----------------------------------------------------------------------------------------------
    def _landed(self, x: ClassAccess, y: ClassAccess) -> list[Row]:
        """What waits on the barrier of a copy show of its completion."""
        assert x.landing is not None
        key = x.landing, x.ref.s, y.ref, _segment(y)
        found = self._acquired.get(key)
        if found is None:
            array, number = x.landing
            use, seen = self.facts.bars[array], _plainly(_segment(y))
            found = self._acquired[key] = list(self._waited(x.ref.s, use, number, y.ref, seen))
        return found

    def _committed(self, x: ClassAccess, y: ClassAccess, queue: Queue, seen: Seen) -> Iterator[Row]:
        """What waits show of an op that a later commit (or arrival for its copies) of its threads tracks."""
        for use in self.facts.bars.values():
            pieces = [p for f in use.arrivals for p in f.pieces if any(e.after is queue for e in p.ref.op.of(Signal))]
            for piece in pieces:
                ref = piece.ref
                if ref.c is not x.ref.c or (ref.s == x.ref.s and ref.i < x.ref.i):
                    continue
                for row in self._waited(ref.s, use, piece.number, y.ref, seen):
                    if ref.s == x.ref.s:
                        yield row
                    elif self._covered(x.ref.s, y.ref.s, ref.s, row):
                        yield self.k.closed_row([FAR] * len(self.k.ivs) + [0, 1], y.ref.s, x.ref.s)

    def _covered(self, at: int, here: int, commit: int, row: Row) -> bool:
        """Whether commits in another block, known by ``row``, come after all executions in block ``at`` so far."""
        if commit == here:
            return self.k.levels.past.holds(row)
        return at != here and self.k.levels.earlier.holds(row) and self.k.paths.separated(at, here, commit)

    def _waited(self, of: int, use: BarrierUse, number: int, y: Ref, seen: Seen) -> Iterator[Row]:
        """What waits for a barrier tell, at ``y``, of an op in block ``of`` that completes on it in the phase of its
        use ``number``."""
        k, facts = self.k, self.facts
        for cover in use.covers:
            row = [FAR] * len(k.ivs) + [1, 1]
            pieces = cover.pieces
            if use.iv:
                # of waits that alternate, those that may be for a phase of the op
                column = facts.column[use.iv]
                pieces = tuple(w for w in pieces if k.paths.coexist(of, w.ref.s, column, number - w.number)) or pieces
            known = [(w, seen(facts, y, use, w)) for w in pieces]
            if use.iv:
                column = facts.column[use.iv]
                behind = max(min(r[column] for r in rows) - w.number for w, rows in known)
                row[column] = max(behind, -facts.reached(use, cover.pieces, y.s)) + number
            elif facts.passed({w.ref.s for w in cover.pieces}, y.s) and all(
                any(map(k.levels.past.holds, rows)) for _, rows in known
            ):
                row[len(k.ivs) :] = 0, 0
            yield k.closed_row(row, y.s, of)


def _segment(y: ClassAccess) -> Segment:
    """An access by threads needs the effect on memory; the asynchronous proxy that the other one is over."""
    return Segment.MEMORY if y.generic else Segment.SCHEDULE


def _fenced(x: ClassAccess, y: ClassAccess) -> bool:
    return x.place.memory[0] == "tmem" and not y.frees


def _plainly(segment: Segment) -> Seen:
    return lambda facts, ref, use, wait: facts.seen(ref, segment, use, wait)


def _tensor_seen(facts: PreparedProtocol, ref: Ref, use: BarrierUse, wait: PhaseUse) -> list[Row]:
    """Behind tcgen05 fences: handed over so, or seen by the thread itself before its last after-fence."""
    return _rows_of(facts, ref, use, wait, "after", Segment.TENSOR)


def _copy_seen(facts: PreparedProtocol, ref: Ref, use: BarrierUse, wait: PhaseUse) -> list[Row]:
    """Behind a proxy fence: cp.async writes through the generic proxy."""
    return _rows_of(facts, ref, use, wait, "fenced", Segment.FENCED)


def _rows_of(
    facts: PreparedProtocol, ref: Ref, use: BarrierUse, wait: PhaseUse, own: str, released: Segment
) -> list[Row]:
    return [
        facts.row_of_own(ref, own, w) if w.c is ref.c else facts.row(ref, released, w) for w in use.alike[wait.ref.site]
    ]
