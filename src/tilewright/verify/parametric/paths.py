"""Paths through a product: how often induction variables advance between two blocks, at least and at most."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from math import gcd
from operator import add
from typing import TypeAlias, TypeVar

import numpy as np

from tilewright.protocol.graph import InductionVariable
from tilewright.protocol.product_graph import ProductGraph

FAR = 1 << 20
"""The threshold without information; its negative is full information."""

Counted: TypeAlias = tuple[int, int]
"""A block, and how often an induction variable has advanced on the path to it."""

N = TypeVar("N", bound=Hashable)

FAR_APART = 2
"""Iterations; what else may have advanced in more is not measured."""


@dataclass(frozen=True)
class PathBound:
    """From one place to a later one: by how much each iv grows at most, and which blocks may lie between."""

    growth: tuple[int, ...]
    between: frozenset[int]


class Paths:
    """Distances in a product. ``least[u, a, b]``: fewest iterations of iv u from block a to a later b;
    ``earliest[u, s]``: from the start."""

    def __init__(self, product: ProductGraph, ivs: list[InductionVariable]):
        self.n, self.j = len(product.blocks), len(ivs)
        self._links: dict[tuple[int, int, int, int], PathBound | None] = {}
        self._paths: dict[tuple[int, int, frozenset[int]], PathBound | None] = {}
        self._after: dict[tuple[int, int, int], set[tuple[int, int]]] = {}
        self._reached_around: dict[tuple[int, int], frozenset[int]] = {}
        n, j = len(product.blocks), len(ivs)
        least = np.full((j, n, n), FAR, np.int32)
        self.leaving: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(n)]
        self.entering: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(n)]
        for f in product.edges:
            iterations = tuple(len(u.intersection(f.advances)) for u in ivs)
            self.leaving[f.source].append((f.target, iterations))
            self.entering[f.target].append((f.source, iterations))
            for k in range(j):
                least[k, f.source, f.target] = min(least[k, f.source, f.target], iterations[k])
        self.reaches = np.zeros((n, n), np.bool_)
        """Whether one block can be reached from another."""
        for f in product.edges:
            self.reaches[f.source, f.target] = True
        for via in range(n):
            self.reaches |= self.reaches[:, via, None] & self.reaches[None, via, :]
            np.minimum(least, least[:, :, via, None] + least[:, None, via, :], out=least)
        self.least = np.minimum(least, FAR)
        self.iterations: list[list[list[int]]] = np.moveaxis(self.least, 0, -1).tolist()
        """The same by source, target and induction variable."""
        starts = list(product.starts)
        self.earliest = np.minimum(self.least[:, starts, :].min(axis=1, initial=FAR), FAR)
        for s in starts:
            self.earliest[:, s] = 0
        self._residues = [self._periodic(k, starts) for k in range(j)]
        self.order = self._in_order(starts)
        """Blocks, those before others first as far as loops allow."""

    def _in_order(self, starts: Sequence[int]) -> list[int]:
        done: list[int] = []
        seen: set[int] = set()

        def visit(s: int) -> None:
            seen.add(s)
            for x, _ in self.leaving[s]:
                if x not in seen:
                    visit(x)
            done.append(s)

        for s in starts:
            if s not in seen:
                visit(s)
        return done[::-1]

    def _periodic(self, iv: int, starts: Sequence[int]) -> tuple[int, list[int]]:
        """A period, and per block the iterations of an iv so far modulo it, the same on every way (period 1: they tell
        nothing)."""
        advanced: dict[int, int] = dict.fromkeys(starts, 0)
        pending, period = list(starts), 0
        while pending:
            at = pending.pop()
            for x, iterations in self.leaving[at]:
                value = advanced[at] + iterations[iv]
                if x not in advanced:
                    advanced[x] = value
                    pending.append(x)
                else:
                    period = gcd(period, advanced[x] - value)
        return period, [advanced.get(s, 0) for s in range(self.n)]

    def residue(self, s: int, iv: int, period: int) -> tuple[int, int]:
        """The iterations of an iv so far wherever the product is in a block, modulo a divisor of ``period``, which is
        first."""
        own, advanced = self._residues[iv]
        common = gcd(own, period)
        return common, advanced[s] % common if common else advanced[s]

    def linked(self, source: int, target: int, iv: int, iterations: int) -> bool:
        """Whether there is such a ``link``."""
        if iterations > FAR_APART:
            period, advanced = self._residues[iv]
            apart = advanced[target] - advanced[source] - iterations
            return apart % period == 0 if period else apart == 0
        return iterations >= 0 and (target, iterations) in self._from(source, iv, iterations)

    def coexist(self, source: int, target: int, iv: int, iterations: int) -> bool:
        """Whether the product may be in one block and in the other, earlier or later, with so many ``iterations`` of an
        induction variable in between (negative: the other comes first)."""
        if iterations < 0:
            return self.linked(target, source, iv, -iterations)
        if iterations > 0:
            return self.linked(source, target, iv, iterations)
        return source == target or self.linked(source, target, iv, 0) or self.linked(target, source, iv, 0)

    def link(self, source: int, target: int, iv: int, iterations: int) -> PathBound | None:
        """The paths from ``source`` to a later block ``target`` on which ``iv`` advances exactly that often."""
        key = source, target, iv, iterations
        if key not in self._links:
            self._links[key] = self._link(*key)
        return self._links[key]

    def _link(self, source: int, target: int, iv: int, iterations: int) -> PathBound | None:
        if not self.linked(source, target, iv, iterations):
            return None
        if iterations > FAR_APART:
            growth = tuple(iterations if k == iv else FAR for k in range(self.j))
            return PathBound(growth, frozenset(range(self.n)))
        start, goal = (source, 0), (target, iterations)
        after = self._from(source, iv, iterations)
        before = self._reach(goal, lambda x: self.entering[x], iv, 0, -1)
        on_path = (after | {start}) & (before | {goal})
        between = frozenset(s for s, _ in after & before)

        def onwards(at: Counted) -> Iterator[tuple[Counted, tuple[int, ...]]]:
            return (((x, at[1] + advanced[iv]), advanced) for x, advanced in self.leaving[at[0]])

        growth = list(self._longest(start, goal, on_path, onwards))
        growth[iv] = iterations
        return PathBound(tuple(growth), between)

    def path(self, source: int, target: int, avoiding: frozenset[int]) -> PathBound | None:
        """The paths from ``source`` to a later block ``target`` that pass none of ``avoiding`` in between."""
        key = source, target, avoiding
        if key not in self._paths:
            self._paths[key] = self._path(*key)
        return self._paths[key]

    def _path(self, source: int, target: int, avoiding: frozenset[int]) -> PathBound | None:

        after = self._open_paths({x for x, _ in self.leaving[source]}, self.leaving, avoiding)
        if target not in after:
            return None
        before = self._open_paths({x for x, _ in self.entering[target]}, self.entering, avoiding)
        inside = (after & before) - avoiding
        return PathBound(self._longest(source, target, inside, lambda at: self.leaving[at]), frozenset(inside))

    def _longest(
        self, start: N, goal: N, inside: Set[N], edges: Callable[[N], Iterable[tuple[N, tuple[int, ...]]]]
    ) -> tuple[int, ...]:
        """How often each iv advances at most on paths from ``start`` to ``goal`` through places ``inside``; FAR for all
        where that has no bound: where one advances in a cycle."""
        nothing = (0,) * self.j
        out = {at: list(edges(at)) for at in (start, *inside)}
        longest: dict[N, tuple[int, ...]] = {start: nothing}
        found: tuple[int, ...] = nothing
        for cycle in _components(start, {at: [x for x, _ in to if x in inside] for at, to in out.items()}):
            members = set(cycle)
            value = reduce(_greatest, (longest[at] for at in cycle if at in longest))
            for at in cycle:
                for x, advanced in out[at]:
                    if x in inside and x in members and advanced != nothing:
                        return (FAR,) * self.j
                    new = tuple(map(add, value, advanced))
                    if x == goal:
                        found = _greatest(found, new)
                    if x in inside and x not in members:
                        longest[x] = _greatest(longest[x], new) if x in longest else new
        return found

    def _open_paths(
        self, first: set[int], edges: list[list[tuple[int, tuple[int, ...]]]], avoiding: frozenset[int]
    ) -> set[int]:
        """All blocks from ``first`` on along ``edges``; paths end at those to be avoided."""
        found, pending = set(first), [s for s in first if s not in avoiding]
        while pending:
            for x, _ in edges[pending.pop()]:
                if x not in found:
                    found.add(x)
                    if x not in avoiding:
                        pending.append(x)
        return found

    def separated(self, source: int, target: int, by: int) -> bool:
        """Whether every path from ``source`` to a later ``target`` passes block ``by`` in between."""
        found = self._reached_around.get((source, by))
        if found is None:
            found, pending = set[int](), [source]
            while pending:
                for x, _ in self.leaving[pending.pop()]:
                    if x not in found:
                        found.add(x)
                        if x != by:
                            pending.append(x)
            found = self._reached_around[source, by] = frozenset(found)
        return target not in found or target == by

    def _from(self, source: int, iv: int, iterations: int) -> set[tuple[int, int]]:
        """The places after ``source``, with how often ``iv`` has advanced, up to ``iterations``."""
        key = source, iv, iterations
        found = self._after.get(key)
        if found is None:
            found = self._after[key] = self._reach((source, 0), lambda x: self.leaving[x], iv, iterations, 1)
        return found

    def _reach(
        self, start: tuple[int, int], edges: Callable[[int], list[tuple[int, tuple[int, ...]]]], iv: int, stop: int,
        sign: int,
    ) -> set[tuple[int, int]]:  # fmt: skip
        """Places over at least one edge, ``iv`` counted up (or down) to ``stop``."""
        seen: set[tuple[int, int]] = set()
        pending = [start]
        while pending:
            s, k = pending.pop()
            for x, advanced in edges(s):
                y = (x, k + sign * advanced[iv] if iv >= 0 else k)
                if (y[1] <= stop if sign > 0 else y[1] >= stop) and y not in seen:
                    seen.add(y)
                    pending.append(y)
        return seen


def _greatest(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return a if a == b else tuple(map(max, a, b))


def _components(start: N, edges: Mapping[N, Sequence[N]]) -> list[list[N]]:
    """The strongly connected components that are reached from ``start``, each before those after it (Tarjan,
    Depth-first search and linear graph algorithms, 1972)."""
    number: dict[N, int] = {start: 0}
    low = {start: 0}
    open_, inside = [start], {start}
    pending = [(start, iter(edges[start]))]
    found: list[list[N]] = []
    while pending:
        at, rest = pending[-1]
        for x in rest:
            if x not in number:
                number[x] = low[x] = len(number)
                open_.append(x)
                inside.add(x)
                pending.append((x, iter(edges[x])))
                break
            if x in inside:
                low[at] = min(low[at], number[x])
        else:
            pending.pop()
            if pending:
                low[pending[-1][0]] = min(low[pending[-1][0]], low[at])
            if low[at] == number[at]:
                first = open_.index(at) if open_[-1] != at else len(open_) - 1
                found.append(open_[first:])
                inside.difference_update(open_[first:])
                del open_[first:]
    return found[::-1]
