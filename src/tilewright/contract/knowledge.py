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

from tilewright.contract.threads import Group, groups_of, runs
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph, Site, Unit
from tilewright.protocol.model import By
from tilewright.protocol.word import NoWord

Rows = NDArray[np.int32]
"""Thresholds: last axis the units, then F, then I; the axis before the marks."""

FAR = 1 << 20
"""A threshold that says nothing; its negative says everything."""

S, M, F, X, FENCED, DONE, GROUP0 = range(7)
"""Segments of knowledge as in ``contract.state``; then of the class itself: what it fenced, which of its groups are
done, and which were committed at least 1, 2, ... groups ago (from ``GROUP0`` on)."""

GROUPS: dict[type[object], str] = {ops.Wgmma: "wgmma", ops.TmaStore: "bulk"}
COMMITS = {ops.WgmmaCommit: "wgmma", ops.BulkCommit: "bulk"}
CUTS = (
    ops.Arrive, ops.ArriveExpectTx, ops.TmaLoad, ops.BarSync, ops.BarArrive, ops.CtaSync, ops.Wgmma,
    ops.FenceProxyAsync, ops.ClusterArrive,
)  # fmt: skip
"""Ops at which what a class did before becomes known apart from what it does after."""


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


@dataclass(frozen=True)
class Link:
    """From one place to a later one: by how much each unit grows at most, and which stretches may lie between."""

    growth: tuple[int, ...]
    between: frozenset[int]


class Knowledge:
    """The equations of one protocol and their solution."""

    def __init__(self, graph: EventGraph):
        self.graph = graph
        self.word = graph.word
        self.n = len(self.word.stretches)
        self.classes = self._classes()
        self.units: list[Unit] = []
        self._own: dict[tuple[int, int, int], Rows] = {}
        self._links: dict[tuple[int, int, int, int], Link | None] = {}
        self._ways: dict[tuple[int, int], frozenset[int]] = {}
        self.settled = self.lower = False

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
                    if current < 0:
                        current = len(stretch_of)
                        stretch_of.append(s)
                        owner_of.append(c.index)
                    self.mark[c.index, s, i] = current
                    if isinstance(site.step.op, CUTS) or i + 1 == len(code):
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
        self._measure()
        waits = [s.step.op for c in self.classes for s in c.sites()]
        depth = max([op.pending + 1 for op in waits if isinstance(op, ops.WgmmaWait | ops.BulkWait)], default=1)
        self.rows = GROUP0 + depth
        self.depth = depth

    def _measure(self) -> None:
        """Fewest turns of each unit between stretches: over at least one flow, and from the start."""
        n, j = self.n, self.j
        least = np.full((j, n, n), FAR, np.int32)
        self.leaving: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(n)]
        self.entering: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(n)]
        for f in self.word.flows:
            turns = tuple(len(u.intersection(f.turns)) for u in self.units)
            self.leaving[f.source].append((f.target, turns))
            self.entering[f.target].append((f.source, turns))
            for k in range(j):
                least[k, f.source, f.target] = min(least[k, f.source, f.target], turns[k])
        for via in range(n):
            np.minimum(least, least[:, :, via, None] + least[:, None, via, :], out=least)
        self.least = np.minimum(least, FAR)
        marks = self.stretch_of
        since = np.moveaxis(self.least[:, marks, :], 0, -1)  # [mark, stretch, unit]
        until = np.moveaxis(self.least[:, :, marks], 0, -1)  # [stretch, mark, unit]
        self.covers = np.moveaxis(since, 1, 0)
        """Per stretch and mark: thresholds up to which all earlier executions are covered."""
        self.same = marks[None, :] == np.arange(n)[:, None]
        self.from_here = np.where(until >= FAR, -FAR, 1 - until)
        self.from_before = np.where(self.same[..., None], np.maximum(self.from_here, 1), self.from_here)
        starts = list(self.word.starts)
        self.earliest = np.minimum(self.least[:, starts, :].min(axis=1, initial=FAR), FAR)
        for s in starts:
            self.earliest[:, s] = 0

    # -- rows ---------------------------------------------------------------------------------------------------------
    def closed(self, rows: Rows, s: int) -> Rows:
        """``rows`` with what follows from the shape of the word, as they stand in stretch ``s``."""
        j = self.j
        v = rows[..., :j]
        here = (rows[..., j + 1] <= 0) | (v <= 0).any(axis=-1)
        whole = (rows[..., j] <= 0) | here | (v <= self.covers[s]).any(axis=-1)
        here = here | (whole & ~self.same[s])
        out = np.empty_like(rows)
        v = np.minimum(v, np.where(whole[..., None], self.from_before[s], FAR))
        out[..., :j] = np.minimum(v, np.where(here[..., None], self.from_here[s], FAR))
        out[..., j] = ~whole
        out[..., j + 1] = ~here
        return out

    def moved(self, rows: Rows, source: int, target: int, growth: tuple[int, ...], between: frozenset[int]) -> Rows:
        """``rows`` of a place in ``source`` as they read at a later one in ``target``."""
        j = self.j
        out = np.empty_like(rows)
        if j:
            grown = rows[..., :j] + np.array(growth, np.int32)
            out[..., :j] = np.where(grown > FAR // 2, FAR, np.maximum(grown, -FAR))
        left = self.same[source]
        out[..., j] = np.where(left, rows[..., j + 1], rows[..., j])
        if between:
            out[..., j] |= np.isin(self.stretch_of, list(between))
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

    # -- links --------------------------------------------------------------------------------------------------------
    def link(self, source: int, target: int, unit: int, turns: int) -> Link | None:
        """The ways from ``source`` to a later stretch ``target`` on which ``unit`` turns exactly that often."""
        key = source, target, unit, turns
        if key not in self._links:
            self._links[key] = self._link(*key)
        return self._links[key]

    def _link(self, source: int, target: int, unit: int, turns: int) -> Link | None:
        if turns < 0:
            return None
        if turns > 2:
            # far apart: what else may have turned is not measured
            growth = tuple(turns if k == unit else FAR for k in range(self.j))
            return Link(growth, frozenset(range(self.n)))
        start, goal = (source, 0), (target, turns)
        after = self._reach(start, lambda x: self.leaving[x], unit, turns, 1)
        before = self._reach(goal, lambda x: self.entering[x], unit, 0, -1)
        if goal not in after:
            return None
        on_path = (after | {start}) & (before | {goal})
        between = frozenset(s for s, _ in after & before)
        growth = [0] * self.j
        longest: dict[tuple[int, int], list[int]] = {start: [0] * self.j}
        for step in range(len(on_path) + 1):
            changed = False
            for at in list(longest):
                for following, turned in self.leaving[at[0]]:
                    x = (following, at[1] + turned[unit])
                    if x not in on_path:
                        continue
                    value = [min(a + b, FAR) for a, b in zip(longest[at], turned, strict=True)]
                    if step == len(on_path):
                        value = [FAR if a > b else a for a, b in zip(value, longest.get(x, value), strict=True)]
                    old = longest.get(x)
                    new = value if old is None else [max(a, b) for a, b in zip(old, value, strict=True)]
                    if new != old:
                        longest[x] = new
                        changed = True
            if not changed:
                break
        else:
            growth = [FAR] * self.j
        growth = [max(a, b) for a, b in zip(growth, longest[goal], strict=True)]
        growth[unit] = turns
        return Link(tuple(growth), between)

    def path(self, source: int, target: int, avoiding: frozenset[int]) -> Link | None:
        """The ways from ``source`` to a later stretch ``target`` that pass none of ``avoiding`` in between."""

        after = self._open_ways({x for x, _ in self.leaving[source]}, self.leaving, avoiding)
        if target not in after:
            return None
        before = self._open_ways({x for x, _ in self.entering[target]}, self.entering, avoiding)
        inside = (after & before) - avoiding
        longest = {source: (0,) * self.j}
        goal: tuple[int, ...] | None = None
        for _ in range(len(inside) + 2):
            changed = False
            for at, value in list(longest.items()):
                for x, turned in self.leaving[at]:
                    new = tuple(min(a + b, FAR) for a, b in zip(value, turned, strict=True))
                    if x == target:
                        new = new if goal is None else tuple(map(max, goal, new))
                        changed |= new != goal
                        goal = new
                        new = tuple(min(a + b, FAR) for a, b in zip(value, turned, strict=True))
                    if x in inside:
                        old = longest.get(x)
                        new = new if old is None else tuple(map(max, old, new))
                        changed |= new != old
                        longest[x] = new
            if not changed:
                break
        else:
            goal = (FAR,) * self.j
        return Link(goal or (FAR,) * self.j, frozenset(inside))

    def _open_ways(
        self, first: set[int], flows: list[list[tuple[int, tuple[int, ...]]]], avoiding: frozenset[int]
    ) -> set[int]:
        """All stretches from ``first`` on along ``flows``; ways end at those to be avoided."""
        found, pending = set(first), [s for s in first if s not in avoiding]
        while pending:
            for x, _ in flows[pending.pop()]:
                if x not in found:
                    found.add(x)
                    if x not in avoiding:
                        pending.append(x)
        return found

    def parted(self, source: int, target: int, by: int) -> bool:
        """Whether every way from ``source`` to a later ``target`` passes stretch ``by`` in between."""
        found = self._ways.get((source, by))
        if found is None:
            found, pending = set[int](), [source]
            while pending:
                for x, _ in self.leaving[pending.pop()]:
                    if x not in found:
                        found.add(x)
                        if x != by:
                            pending.append(x)
            found = self._ways[source, by] = frozenset(found)
        return target not in found or target == by

    def _reach(
        self, start: tuple[int, int], flows: Callable[[int], list[tuple[int, tuple[int, ...]]]], unit: int, stop: int,
        sign: int,
    ) -> set[tuple[int, int]]:  # fmt: skip
        """Places over at least one flow, ``unit`` counted up (or down) to ``stop``."""
        seen: set[tuple[int, int]] = set()
        pending = [start]
        while pending:
            s, k = pending.pop()
            for x, turned in flows(s):
                y = (x, k + sign * turned[unit] if unit >= 0 else k)
                if (y[1] <= stop if sign > 0 else y[1] >= stop) and y not in seen:
                    seen.add(y)
                    pending.append(y)
        return seen

    # -- solving ------------------------------------------------------------------------------------------------------
    def solve(self, acquire: Callable[[Class, int, int, Rows], Rows]) -> None:
        """Solves the equations. ``acquire(class, stretch, position, rows)`` gives the rows after an op that learns
        from others; it reads ``self.before``."""
        count = len(self.classes)
        self.before: dict[tuple[int, int, int], Rows] = {}
        shape = (count, self.rows, self.e, self.j + 2)
        everything = np.full(shape, -FAR, np.int32)
        everything[..., self.j :] = 0
        entry = [everything for _ in range(self.n)]
        leave = [everything for _ in range(self.n)]
        for c in self.classes:
            for s in range(self.n):
                for i in range(len(c.code[s]) + 1):
                    self.before[c.index, s, i] = everything[c.index]
        # from above, then giving up what still creeps, then winning back what holds nevertheless; see the docstring
        for lower, rounds in ((False, 4), (True, 30), (False, 30)):
            self.lower = lower
            for _ in range(rounds):
                self.settled = True
                for s in range(self.n):
                    ways = [self.moved(leave[x], x, s, turned, frozenset()) for x, turned in self.entering[s]]
                    if s in self.word.starts:
                        ways.append(self.closed(self.nothing(count, self.rows), s))
                    now = np.maximum.reduce(ways)
                    if lower:
                        now = self._given_up(now, entry[s])
                    self.settled &= bool(np.array_equal(now, entry[s]))
                    entry[s] = now
                    leave[s] = np.stack([self._through(c, s, now[c.index], acquire) for c in self.classes])
                if self.settled:
                    break
            if lower and not self.settled:
                raise NoWord("knowledge does not settle")
            if self.settled and not lower:
                return

    def _through(self, c: Class, s: int, rows: Rows, acquire: Callable[[Class, int, int, Rows], Rows]) -> Rows:
        for i, site in enumerate(c.code[s]):
            self._store(c, s, i, rows)
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
                case ops.WgmmaWait():
                    rows = acquire(c, s, i, self._retire(c, rows, "wgmma", op.pending))
                case ops.Wait() | ops.BarSync() | ops.CtaSync() | ops.ClusterWait():
                    rows = self.closed(acquire(c, s, i, rows), s)
                case _:
                    continue
            if self.lower:
                rows = self._given_up(rows, self.before[c.index, s, i + 1])
        self._store(c, s, len(c.code[s]), rows)
        return rows

    def _given_up(self, now: Rows, before: Rows) -> Rows:
        """``before``, and nothing where ``now`` says less."""
        out = np.where(now > before, FAR, before)
        out[..., self.j :] = np.maximum(now, before)[..., self.j :]
        return out

    def _store(self, c: Class, s: int, i: int, rows: Rows) -> None:
        self.settled &= bool(np.array_equal(self.before[c.index, s, i], rows))
        self.before[c.index, s, i] = rows

    def _commit(self, c: Class, s: int, i: int, rows: Rows, engine: str) -> Rows:
        marks = self.engine_marks.get((c.index, engine), [])
        rows = rows.copy()
        for k in range(self.rows - 1, GROUP0, -1):
            rows[k, marks] = rows[k - 1, marks]
        issued = self.nothing()
        for (owner, stretch, at), mark in self.done.items():
            if owner == c.index and mark in marks:
                issued[mark, self.j] = 0
                issued[mark, self.j + 1] = 0 if stretch != s or at < i else 1
        rows[GROUP0, marks] = self.closed(issued, s)[marks]
        return rows

    def _retire(self, c: Class, rows: Rows, engine: str, pending: int) -> Rows:
        marks = self.engine_marks.get((c.index, engine), [])
        rows = rows.copy()
        rows[DONE, marks] = np.minimum(rows[DONE, marks], rows[GROUP0 + pending, marks])
        return rows

    def released(self, c: Class, s: int, i: int, memory: bool = True) -> Rows:
        """What an arrival by op ``i`` hands on: rows S, M, F, X. The op itself is past then, too."""
        rows = self.before[c.index, s, i]
        own = self.own(c, s, i + 1)
        done = rows[DONE]
        out = np.empty((4, self.e, self.j + 2), np.int32)
        out[S] = np.minimum(np.minimum(rows[S], own), done)
        if not memory:
            out[M:] = self.nothing(3)
            return out
        out[M] = np.minimum(np.minimum(rows[M], own), done)
        out[F] = np.minimum(rows[F], rows[FENCED])
        out[X] = np.minimum(rows[X], rows[FENCED])
        return out
