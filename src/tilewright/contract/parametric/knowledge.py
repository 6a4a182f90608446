"""What each class of threads knows at each place of the common word, for every trip count at once.

A *mark* stands for all executions of a run of ops by one class of threads in one stretch, or for the completions of one
asynchronous op. What is known of a mark is a row of thresholds:

    V[u]   executions at most ``now(u) - V[u]`` turns of unit u after the start are past
    F      all executions in earlier stretches of the word are past      (0 yes, 1 no)
    I      those, and the one in the stretch where we stand

Each number speaks of every word, so a row is sound for all trip counts. Knowledge flows along program order, through
phases of barriers and through thread barriers; where several pasts are possible the worst counts, where knowledge is
joined the best. The equations are solved from "everything is known" downwards: each claim about an execution rests on
claims about executions before it in time, so any solution is sound (``docs/contracts.md``, parametric proof).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.contract.parametric.ways import FAR, Link, Ways
from tilewright.contract.threads import Group, groups_of, runs
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph, Site, Unit
from tilewright.protocol.model import By
from tilewright.protocol.word import NoWord

Rows = NDArray[np.int32]
"""Thresholds: last axis the units, then F, then I; the axis before the marks."""

MAX_STATEMENTS = 150_000
"""Places times marks; beyond, solving would take seconds."""

S, M, F, X, FENCED, DONE, GROUP0 = range(7)
"""Segments of knowledge as in ``contract.state``; then of the class itself: what it fenced, which of its groups are
done, and which were committed at least 1, 2, ... groups ago (from ``GROUP0`` on)."""
T = 4
"""In what ``released`` hands on: the part behind tcgen05 fences."""

GROUPS: dict[type[object], str] = {
    ops.Wgmma: "wgmma",
    ops.TmaStore: "bulk",
    ops.Tcgen05Ld: "ld",
    ops.Tcgen05St: "st",
}
COMMITS = {ops.WgmmaCommit: "wgmma", ops.BulkCommit: "bulk"}
CUTS = (
    ops.Arrive, ops.ArriveExpectTx, ops.TmaLoad, ops.BarSync, ops.BarArrive, ops.CtaSync, ops.Wgmma,
    ops.FenceProxyAsync, ops.ClusterArrive, ops.Tcgen05Commit, ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter,
    ops.CpAsyncArrive,
)  # fmt: skip
"""Ops at which what a class did before becomes known apart from what it does after."""


ASKED = (
    ops.Wait, ops.Arrive, ops.ArriveExpectTx, ops.ExpectTx, ops.BarSync, ops.CtaSync, ops.MbarrierInit,
    ops.FenceMbarrierInit, ops.Tcgen05Commit, ops.Tcgen05Alloc, ops.Tcgen05Dealloc, ops.CpAsync,
    ops.CpAsyncArrive,
)  # fmt: skip
"""Ops of which others ask whether they are past, beside accesses to memory."""


@dataclass(frozen=True, eq=False)
class Class:
    """Threads of a role in one CTA that run the same code; ``code`` per stretch."""

    index: int
    party: int
    group: Group
    cta: int
    code: tuple[tuple[Site, ...], ...]

    @property
    def role(self) -> tuple[str, int]:
        """Role and CTA."""
        return self.group.role, self.cta

    def sites(self) -> Iterator[Site]:
        """All ops the class executes."""
        for code in self.code:
            yield from code


class Knowledge:
    """The equations of one protocol and their solution."""

    def __init__(self, graph: EventGraph):
        self.graph = graph
        self.word = graph.word
        self.n = len(self.word.stretches)
        self.classes = self._classes()
        self.units: list[Unit] = []
        self._own: dict[tuple[int, int, int], Rows] = {}
        self._issues: dict[tuple[int, int, int], Rows] = {}
        self.lower = False
        self.before: dict[tuple[int, int, int], Rows] = {}
        self.reading: dict[tuple[int, int, int], Rows] = {}
        self._released: dict[tuple[int, int, int, bool], tuple[Rows, Rows]] = {}
        self._handed: dict[tuple[int, int, int, Link], tuple[Rows, Rows]] = {}
        self._carried: dict[tuple[int, int, tuple[int, ...]], tuple[Rows, Rows]] = {}
        self._flowed: dict[int, tuple[list[Rows], list[Rows]]] = {}
        self._seen: dict[tuple[int, int], tuple[Rows, dict[tuple[int, int, int], Rows]]] = {}
        self._passed: dict[frozenset[int], NDArray[np.bool_]] = {}
        self._left: dict[int, list[Rows]] = {}

    # -- classes and marks --------------------------------------------------------------------------------------------
    def _classes(self) -> tuple[Class, ...]:
        out: list[Class] = []
        for p, (role, cta) in enumerate(self.word.parties):
            if any(s.step.by is By.THREAD_ZERO for code in self.graph.sites[p] for s in code):
                raise NoWord("steps of thread zero")
            for group in groups_of(role):
                mine = runs(group.kind)
                code = tuple(tuple(s for s in code if s.step.by in mine) for code in self.graph.sites[p])
                out.append(Class(len(out), p, group, cta, code))
        return tuple(out)

    def prepare(self, units: list[Unit]) -> None:
        """Numbers the marks and measures the word, once all indices are known."""
        self.units = units
        self.j = len(units)
        self.whole, self.here = self.j, self.j + 1
        self.mark: dict[tuple[int, int, int], int] = {}
        self.done: dict[tuple[int, int, int], int] = {}
        self.finished: dict[tuple[int, int, int], tuple[int, ...]] = {}
        """Per class, stretch and position: own marks of the stretch that are complete before the op there."""
        stretch_of: list[int] = []
        owner_of: list[int] = []
        self.engine_marks: dict[tuple[int, str], list[int]] = {}
        for c in self.classes:
            for s, code in enumerate(c.code):
                current, complete = -1, list[int]()
                for i, site in enumerate(code):
                    self.finished[c.index, s, i] = tuple(complete)
                    if self._asked_about(site):
                        if current < 0:
                            current = len(stretch_of)
                            stretch_of.append(s)
                            owner_of.append(c.index)
                        self.mark[c.index, s, i] = current
                    if current >= 0 and (isinstance(site.step.op, CUTS) or i + 1 == len(code)):
                        complete.append(current)
                        current = -1
                self.finished[c.index, s, len(code)] = tuple(complete)
        self.events = len(stretch_of)
        for c in self.classes:
            for s, code in enumerate(c.code):
                for i, site in enumerate(code):
                    engine = GROUPS.get(type(site.step.op))
                    if engine is not None:
                        self.done[c.index, s, i] = len(stretch_of)
                        self.engine_marks.setdefault((c.index, engine), []).append(len(stretch_of))
                        stretch_of.append(s)
                        owner_of.append(c.index)
        self.stretch_of = np.array(stretch_of, np.intp)
        self.owner_of = np.array(owner_of, np.intp)
        self.e = len(stretch_of)
        if len(self.classes) * self.n * self.e > MAX_STATEMENTS:
            raise NoWord(f"{len(self.classes)} classes, {self.n} stretches and {self.e} marks are too many")
        self.ways = Ways(self.word, units)
        self._measure()
        waits = [s.step.op for c in self.classes for s in c.sites()]
        depth = max([op.pending + 1 for op in waits if isinstance(op, ops.WgmmaWait | ops.BulkWait)], default=1)
        self.tensor = any(b.space is Space.TMEM for b in self.graph.protocol.buffers)
        self.groups_end = GROUP0 + depth
        end = self.groups_end
        self.handed_over, self.before_fence, self.after_fence, self.unfenced = range(end, end + 4)
        """With tensor memory: what the fences of tcgen05 hand over; own ops before the last before-fence, and before
        the last after-fence; what was handed over and is not behind an after-fence yet."""
        self.rows = self.groups_end + (4 if self.tensor else 0)

    def _asked_about(self, site: Site) -> bool:
        """Whether other ops may ask if this one is past."""
        match site.step.op:
            case ops.Read(region) | ops.Write(region):
                return self.graph.protocol.buffer(region.buffer).space is not Space.REGISTER
            case ops.TmaLoad() | ops.Wgmma():
                return True
            case op:
                return isinstance(op, ASKED)

    def _measure(self) -> None:
        """What the shape of the word implies for thresholds."""
        n, least = self.n, self.ways.least
        self.leaving, self.entering = self.ways.leaving, self.ways.entering
        marks = self.stretch_of
        since = np.moveaxis(least[:, marks, :], 0, -1)  # [mark, stretch, unit]
        until = np.moveaxis(least[:, :, marks], 0, -1)  # [stretch, mark, unit]
        self.covers = np.moveaxis(since, 1, 0)
        """Per stretch and mark: thresholds up to which all earlier executions are covered."""
        self.same = marks[None, :] == np.arange(n)[:, None]
        self.other = ~self.same
        self.never = ~self.ways.reaches.T[:, marks]
        """Per stretch and mark: no execution comes before."""
        self.from_here = np.where(until >= FAR, -FAR, 1 - until).astype(np.int32)
        self.from_before = np.where(self.same[..., None], np.maximum(self.from_here, 1), self.from_here)

    # -- rows ---------------------------------------------------------------------------------------------------------
    def closed(self, rows: Rows, s: int) -> Rows:
        """``rows`` with what follows from the shape of the word, as they stand in stretch ``s``.

        Each implication has one premise, so the least and the greatest of closed rows are closed.
        """
        j, covers = self.j, self.covers[s]
        here = rows[..., j + 1] <= 0
        for u in range(j):
            here |= rows[..., u] <= 0
        whole = here | (rows[..., j] <= 0) | self.never[s]
        for u in range(j):
            whole |= rows[..., u] <= covers[:, u]
        here |= whole & self.other[s]
        out = np.empty_like(rows)
        for u in range(j):
            least = np.where(here, self.from_here[s, :, u], np.where(whole, self.from_before[s, :, u], FAR))
            np.minimum(rows[..., u], least, out=out[..., u])
        np.logical_not(whole, out=out[..., j])
        np.logical_not(here, out=out[..., j + 1])
        return out

    def closed_row(self, row: list[int], s: int, of: int) -> Rows:
        """``closed`` for a single row about executions in stretch ``of``."""
        j, same = self.j, s == of
        until, since = self.ways.least[:, s, of], self.ways.least[:, of, s]
        here = row[j + 1] <= 0 or any(v <= 0 for v in row[:j])
        whole = (
            row[j] <= 0 or here or not self.ways.reaches[of, s] or any(v <= w for v, w in zip(row, since, strict=False))
        )
        here = here or (whole and not same)
        out = np.array(row, np.int32)
        for u in range(j):
            after = -FAR if until[u] >= FAR else 1 - int(until[u])
            if here:
                out[u] = min(row[u], after)
            elif whole:
                out[u] = min(row[u], max(after, 1) if same else after)
        out[j], out[j + 1] = not whole, not here
        return out

    def moved(self, rows: Rows, source: int, target: int, growth: tuple[int, ...], between: frozenset[int]) -> Rows:
        """``rows`` of a place in ``source`` as they read at a later one in ``target``."""
        j = self.j
        out = np.empty_like(rows)
        if j:
            grown = np.minimum(rows[..., :j] + np.array(growth, np.int32), FAR)
            out[..., :j] = np.where(grown < -FAR // 2, -FAR, grown)
        left = self.same[source]
        out[..., j] = np.where(left, rows[..., j + 1], rows[..., j])
        if between:
            passed = self._passed.get(between)
            if passed is None:
                passed = self._passed[between] = np.isin(self.stretch_of, list(between))
            out[..., j] |= passed
        out[..., j + 1] = 1
        return self.closed(out, target)

    def nothing(self, *shape: int) -> Rows:
        """Rows that say nothing."""
        out = np.full((*shape, self.e, self.j + 2), FAR, np.int32)
        out[..., self.j :] = 1
        return out

    def own(self, c: Class, s: int, i: int) -> Rows:
        """What program order tells the class before op ``i`` of a stretch: all its own earlier ops."""
        found = self._own.get((c.index, s, i))
        if found is None:
            found = self.nothing()
            mine = (self.owner_of == c.index) & (np.arange(self.e) < self.events)
            found[mine, self.j] = 0
            found[list(self.finished[c.index, s, i]), self.j + 1] = 0
            found = self._own[c.index, s, i] = self.closed(found, s)
        return found

    def marks_of(self, c: Class) -> list[int]:
        """The marks of a class's ops."""
        return [int(e) for e in np.flatnonzero(self.owner_of[: self.events] == c.index)]

    # -- solving ------------------------------------------------------------------------------------------------------
    def solve(self, acquire: Callable[[Class, int, int, Rows], Rows], laps: set[int]) -> None:
        """Solves the equations. ``acquire(class, stretch, position, rows)`` gives the rows after an op that learns
        from others; it asks ``released`` for what they hand on. ``laps``: how far behind waits look."""
        likely = {-FAR, 0, 1, *laps, *(n + 1 for n in laps), FAR}
        self.steps = np.array(sorted(likely), np.int32)
        everything = np.full((len(self.classes), self.rows, self.e, self.j + 2), -FAR, np.int32)
        everything[..., self.j :] = 0
        self.acquire = acquire
        self.entry = [everything] * self.n
        self.leave = [everything] * self.n
        for c in self.classes:
            for s in range(self.n):
                self.before |= {(c.index, s, i): everything[c.index] for i in range(len(c.code[s]) + 1)}
        order = self._order()
        # from above, then giving up what still creeps, then winning back what holds nevertheless
        for self.lower, rounds in ((False, 2), (True, 60), (False, 30)):
            self._flowed.clear()
            self._seen.clear()
            settled = False
            while rounds and not settled:
                changes = [self._stretch(s) for s in order]
                settled = not any(changes)
                rounds -= 1
            if self.lower and not settled:
                raise NoWord("knowledge does not settle")
            if not self.lower and settled:
                return

    def _order(self) -> list[int]:
        """Stretches, those before others first as far as loops allow."""
        done: list[int] = []
        seen: set[int] = set()

        def visit(s: int) -> None:
            seen.add(s)
            for x, _ in self.leaving[s]:
                if x not in seen:
                    visit(x)
            done.append(s)

        for s in self.word.starts:
            if s not in seen:
                visit(s)
        return done[::-1]

    def _stretch(self, s: int) -> bool:
        """Computes one stretch anew as far as anything it rests on changed; whether it changed itself."""
        now = self._arriving(s)
        changed = False
        left: list[Rows] = []
        for c in self.classes:
            key, rows = (c.index, s), now[c.index]
            seen = self._seen.get(key)
            if seen is not None and seen[0] is rows and all(self.before[at] is x for at, x in seen[1].items()):
                left.append(self.before[c.index, s, len(c.code[s])])
                continue
            if self.lower:
                rows = self._given_up(rows, self.before[c.index, s, 0])
            self.reading = {}
            changed |= self._through(c, s, rows)
            self._seen[key] = now[c.index], self.reading
            left.append(self.before[c.index, s, len(c.code[s])])
        if any(a is not b for a, b in zip(left, self._left.get(s, ()), strict=False)) or s not in self._left:
            self._left[s] = left
            self.leave[s] = np.stack(left)
        return changed

    def _arriving(self, s: int) -> list[Rows]:
        """What all classes know on entry to a stretch; the same object as long as it is the same."""
        sources = [self.leave[x] for x, _ in self.entering[s]]
        found = self._flowed.get(s)
        if found is None or any(a is not b for a, b in zip(sources, found[0], strict=True)):
            ways = [self._along(x, s, turned) for x, turned in self.entering[s]]
            if s in self.word.starts:
                ways.append(self.closed(self.nothing(len(self.classes), self.rows), s))
            now = np.maximum.reduce(ways)
            old = None if found is None else found[1]
            rows = [
                now[i] if old is None or not np.array_equal(now[i], old[i]) else old[i]
                for i in range(len(self.classes))
            ]
            found = self._flowed[s] = (sources, rows)
        return found[1]

    def _along(self, source: int, target: int, turned: tuple[int, ...]) -> Rows:
        """What all classes know on leaving ``source``, on entry to ``target``."""
        rows = self.leave[source]
        cached = self._carried.get((source, target, turned))
        if cached is None or cached[0] is not rows:
            moved = self.moved(rows, source, target, turned, frozenset())
            cached = self._carried[source, target, turned] = rows, moved
        return cached[1]

    def _through(self, c: Class, s: int, rows: Rows) -> bool:
        changed = self._keep(c, s, 0, rows)
        for i, site in enumerate(c.code[s]):
            rows = self.before[c.index, s, i]
            op = site.step.op
            match op:
                case ops.FenceProxyAsync():
                    rows = rows.copy()
                    rows[FENCED] = np.minimum(rows[FENCED], self.own(c, s, i + 1))
                    rows[X] = np.minimum(rows[X], rows[M])
                case ops.WgmmaCommit() | ops.BulkCommit():
                    rows = self._commit(c, s, i, rows, COMMITS[type(op)])
                case ops.BulkWait():
                    rows = self._retire(c, rows, "bulk", op.pending)
                case ops.Tcgen05WaitLd():
                    rows = self._retire(c, self._commit(c, s, i, rows, "ld"), "ld", 0)
                case ops.Tcgen05WaitSt():
                    rows = self._retire(c, self._commit(c, s, i, rows, "st"), "st", 0)
                case ops.Tcgen05FenceBefore() | ops.Tcgen05Commit():
                    rows = rows.copy()
                    rows[self.before_fence] = np.minimum(rows[self.before_fence], self._own_and_done(c, s, i, rows))
                case ops.Tcgen05FenceAfter():
                    rows = rows.copy()
                    rows[self.after_fence] = np.minimum(rows[self.after_fence], self.own(c, s, i + 1))
                    rows[self.handed_over] = np.minimum(rows[self.handed_over], rows[self.unfenced])
                case ops.WgmmaWait():
                    rows = self.acquire(c, s, i, self._retire(c, rows, "wgmma", op.pending))
                case ops.Wait() | ops.BarSync() | ops.CtaSync() | ops.ClusterWait():
                    rows = self.acquire(c, s, i, rows)
                case _:
                    self.before[c.index, s, i + 1] = rows
                    continue
            if self.lower:
                rows = self._given_up(rows, self.before[c.index, s, i + 1])
            changed |= self._keep(c, s, i + 1, rows)
        return changed

    def _keep(self, c: Class, s: int, i: int, rows: Rows) -> bool:
        """Stores rows unless they are what is stored; whether they are new."""
        old = self.before[c.index, s, i]
        if rows is old or np.array_equal(rows, old):
            return False
        self.before[c.index, s, i] = rows
        return True

    def _given_up(self, now: Rows, before: Rows) -> Rows:
        """``before``; where ``now`` says less, the next of the thresholds that may hold."""
        if now is before or bool((now <= before).all()):
            return before
        j = self.j
        out = np.maximum(now, before)
        risen = now[..., :j] > before[..., :j]
        if risen.any():
            steps = self.steps
            out[..., :j][risen] = steps[np.searchsorted(steps, out[..., :j][risen])]
        return out

    def _commit(self, c: Class, s: int, i: int, rows: Rows, engine: str) -> Rows:
        marks = self.engine_marks.get((c.index, engine), [])
        rows = rows.copy()
        for k in range(self.groups_end - 1, GROUP0, -1):
            rows[k, marks] = rows[k - 1, marks]
        rows[GROUP0, marks] = self._issued(c, s, i)[marks]
        return rows

    def _issued(self, c: Class, s: int, i: int) -> Rows:
        """Which asynchronous ops program order puts before op ``i`` of a stretch."""
        found = self._issues.get((c.index, s, i))
        if found is None:
            found = self.nothing()
            for (owner, stretch, at), mark in self.done.items():
                if owner == c.index:
                    found[mark, self.j] = 0
                    found[mark, self.j + 1] = 0 if stretch != s or at < i else 1
            found = self._issues[c.index, s, i] = self.closed(found, s)
        return found

    def _retire(self, c: Class, rows: Rows, engine: str, pending: int) -> Rows:
        marks = self.engine_marks.get((c.index, engine), [])
        rows = rows.copy()
        rows[DONE, marks] = np.minimum(rows[DONE, marks], rows[GROUP0 + pending, marks])
        return rows

    def released(self, c: Class, s: int, i: int, memory: bool = True) -> Rows:
        """What an arrival by op ``i`` hands on: rows S, M, F, X. The op itself is past then, too."""
        rows = self.reading[c.index, s, i] = self.before[c.index, s, i]
        cached = self._released.get((c.index, s, i, memory))
        if cached is not None and cached[0] is rows:
            return cached[1]
        own = self.own(c, s, i + 1)
        done = rows[DONE]
        out = np.empty((5 if self.tensor else 4, self.e, self.j + 2), np.int32)
        if self.tensor:
            fenced = np.minimum(rows[self.before_fence], rows[self.unfenced])
            if isinstance(c.code[s][i].step.op, ops.Tcgen05Commit):  # implies the before-fence
                fenced = np.minimum(fenced, self._own_and_done(c, s, i, rows))
            out[T] = np.minimum(rows[self.handed_over], fenced)
        out[S] = np.minimum(np.minimum(rows[S], own), done)
        if memory:
            out[M] = np.minimum(np.minimum(rows[M], own), done)
            out[F] = np.minimum(rows[F], rows[FENCED])
            out[X] = np.minimum(rows[X], rows[FENCED])
        else:
            out[M:] = self.nothing(len(out) - 1)
        self._released[c.index, s, i, memory] = rows, out
        return out

    def _own_and_done(self, c: Class, s: int, i: int, rows: Rows) -> Rows:
        """The class's own ops up to this one, and of its asynchronous ones those that are done."""
        return np.minimum(self.own(c, s, i + 1), rows[DONE])

    def handed(self, told: Rows, source: int, target: int, link: Link) -> Rows:
        """``released`` rows as they read at the end of a link; those of one arrival once for all who learn of it."""
        key = id(told), source, target, link
        cached = self._handed.get(key)
        if cached is None or cached[0] is not told:
            cached = self._handed[key] = told, self.moved(told, source, target, link.growth, link.between)
        return cached[1]
