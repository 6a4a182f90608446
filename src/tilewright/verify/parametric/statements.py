"""Statements about marks as the bits of one integer, so that a whole place of the product is joined or met in one step.

A *mark* stands for all executions of a run of ops by one class of threads in one block, or for the completions of an
asynchronous op. What may be said of a mark:

    here       all executions in earlier blocks of the product are past, and the one in the block where we stand
    whole      those in earlier blocks are
    V[u] <= t  those at most ``now(u) - t`` iterations of iv u after the start are; t from a short list, -FAR: all ever

Each speaks of every product, so it is sound for all trip counts. One statement about all marks is a *plane* of bits:

    | here | whole | V[0] <= -FAR | V[0] <= t1 | ... | V[1] <= -FAR | ...        a plane: one bit for each slot

Statements are joined by ``|``, alternatives met by ``&``. Later planes of an iv contain the earlier ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tilewright.verify.parametric.marks import OpRun
from tilewright.verify.parametric.paths import FAR, PathBound, Paths

Row = list[int]
"""The knowledge about one mark: the least threshold of each iv, then whether *whole* and *here* hold (0 yes, 1 no)."""


class Question(NamedTuple):
    """Whether a row suffices: ``row[column] <= bound``; ``plane`` is the position of its bit."""

    column: int
    bound: int
    plane: int

    def holds(self, row: Row) -> bool:
        """The answer of a row."""
        return row[self.column] <= self.bound


class Levels:
    """The distinguishable thresholds, and their planes."""

    def __init__(self, thresholds: Sequence[Sequence[int]]):
        self.of = [[-FAR, *sorted(t)] for t in thresholds]
        self.ivs = len(self.of)
        self.first: list[int] = []
        at = 2
        for levels in self.of:
            self.first.append(at)
            at += len(levels)
        self.planes = at
        self.past = Question(self.ivs + 1, 0, 0)
        """All executions until now."""
        self.earlier = Question(self.ivs, 0, 1)
        """All executions in earlier blocks."""

    def upto(self, iv: int, bound: int) -> Question:
        """All executions up to ``bound`` iterations before now."""
        return Question(iv, bound, self.first[iv] + bisect_right(self.of[iv], bound) - 1)


class Statements:
    """The statements about the marks in some slots, and what follows from the shape of the product."""

    def __init__(self, levels: Levels, paths: Paths, block_of: Sequence[int]):
        self.levels, self.paths = levels, paths
        self.n = n = max(len(block_of), 1)
        self.low = (1 << n) - 1
        self.everything = (1 << n * levels.planes) - 1
        self.groups: dict[int, int] = {}
        for slot, s in enumerate(block_of):
            self.groups[s] = self.groups.get(s, 0) | 1 << slot
        self.thresholds = self.everything ^ (self.everything & ((1 << 2 * n) - 1))
        """The planes of all induction variables."""
        self._doublings = _doublings(levels.planes, n)
        self._foldings = self._doublings[::-1]
        self._zeros = [(first + bisect_right(of, 0) - 1) * n for first, of in zip(levels.first, levels.of, strict=True)]
        self._implied: dict[int, tuple[int, int, int, int, int]] = {}
        self._growths: dict[tuple[int, ...], tuple[list[tuple[int, int]], list[tuple[list[int], int, int]]]] = {}
        self._movers: dict[tuple[int, int, tuple[int, ...], frozenset[int]], Callable[[int], int]] = {}

    # -- building and reading -----------------------------------------------------------------------------------------
    def spread(self, slots: int) -> int:
        """All statements about some slots."""
        for shift in self._doublings:
            slots |= slots << shift
        return slots & self.everything

    def iv_planes(self, iv: int, begin: int, end: int) -> int:
        """All slots in planes ``begin`` to ``end`` of an induction variable."""
        first = self.levels.first[iv]
        return ((1 << (end - begin) * self.n) - 1) << (first + begin) * self.n if end > begin else 0

    def level(self, iv: int, threshold: int) -> int | None:
        """The position of the plane of exactly this threshold, if there is one."""
        levels = self.levels.of[iv]
        return (self.levels.first[iv] + levels.index(threshold)) * self.n if threshold in levels else None

    def from_level(self, iv: int, threshold: int) -> int:
        """All slots in the planes of an induction variable from a threshold on."""
        levels = self.levels.of[iv]
        return self.iv_planes(iv, bisect_left(levels, threshold), len(levels))

    def copier(self, slots: Iterable[tuple[int, int]]) -> Callable[[int], int]:
        """Says of other slots what is said of some: pairs of a slot and the one it is copied to."""
        parts = [(self.spread(mask), distance) for distance, mask in by_distance(slots)]
        if not parts:
            return lambda x: 0
        if len(parts) == 1:
            ((kept, distance),) = parts
            return (lambda x: (x & kept) << distance) if distance >= 0 else (lambda x: (x & kept) >> -distance)

        def copy(x: int) -> int:
            out = 0
            for kept, distance in parts:
                out |= (x & kept) << distance if distance >= 0 else (x & kept) >> -distance
            return out

        return copy

    def copied_from(self, other: Statements, x: int, parts: Sequence[tuple[int, int]]) -> int:
        """What ``x`` says of slots of ``other``, said of slots here. ``parts``: ``by_distance`` of them."""
        out = 0
        for plane in range(self.levels.planes):
            at = plane * self.n
            for distance, mask in parts:
                found = x & mask
                if found:
                    out |= found << at + distance if at + distance >= 0 else found >> -at - distance
            x >>= other.n
        return out

    def said(self, slots: int, here: int, s: int) -> int:
        """In block ``s``, *whole* of some slots and *here* of some of them, with what follows."""
        return self.closed(here | slots << self.n, s)

    def row(self, x: int, slot: int) -> Row:
        """The row of one slot."""
        n = self.n
        x >>= slot
        out: Row = []
        for first, levels in zip(self.levels.first, self.levels.of, strict=True):
            y = x >> first * n
            out.append(next((t for k, t in enumerate(levels) if y >> k * n & 1), FAR))
        return [*out, 1 - (x >> n & 1), 1 - (x & 1)]

    # -- what follows -------------------------------------------------------------------------------------------------
    def closed(self, x: int, s: int) -> int:
        """``x`` with what follows from the shape of the product, as it stands in block ``s``.

        Each implication has one premise, so what closed statements have in common is closed, and their sum.
        """
        return self._closed(x & self.low, x >> self.n & self.low, x & self.thresholds, s)

    def _closed(self, here: int, whole: int, v: int, s: int) -> int:
        n, low = self.n, self.low
        covered, from_here, from_before, never, other = self._implied.get(s) or self._implications(s)
        for zero in self._zeros:
            here |= v >> zero & low
        whole |= here | never
        found = v & covered
        if found:
            for shift in self._foldings:
                found |= found >> shift
            whole |= found & low
        here |= whole & other
        out = here | whole << n | v
        for shift in self._doublings:
            here |= here << shift
            whole |= whole << shift
        return out | here & from_here | whole & from_before

    def _implications(self, s: int) -> tuple[int, int, int, int, int]:
        """For a block: thresholds up to which all earlier executions are covered; those that follow from *here* and
        from *whole*; slots without earlier executions, and those of other blocks."""
        least = self.paths.iterations
        covered = from_here = from_before = never = other = 0
        for g, slots in self.groups.items():
            everywhere = self.spread(slots)
            if g != s:
                other |= slots
            if not self.paths.reaches[g, s]:
                never |= slots
            for u, levels in enumerate(self.levels.of):
                end = len(levels)
                covered |= everywhere & self.iv_planes(u, 0, bisect_right(levels, least[g][s][u]))
                until = least[s][g][u]
                after = -FAR if until >= FAR else 1 - until
                from_here |= everywhere & self.iv_planes(u, bisect_left(levels, after), end)
                after = max(after, 1) if g == s else after
                from_before |= everywhere & self.iv_planes(u, bisect_left(levels, after), end)
        found = self._implied[s] = covered, from_here, from_before, never, other
        return found

    # -- moving on ----------------------------------------------------------------------------------------------------
    def mover(self, source: int, target: int, link: PathBound) -> Callable[[int], int]:
        """Makes of statements at a place in ``source`` those at a later one in ``target``."""
        key = source, target, link.growth, link.between
        found = self._movers.get(key)
        if found is None:
            found = self._movers[key] = self._mover(*key)
        return found

    def _mover(
        self, source: int, target: int, growth: tuple[int, ...], between: frozenset[int]
    ) -> Callable[[int], int]:
        n, low = self.n, self.low
        kept = low
        for s in between:
            kept &= ~self.groups.get(s, 0)
        left = self.groups.get(source, 0) & kept
        stayed = (kept & ~self.groups.get(source, 0)) << n
        shifts, ever = self._growths.get(growth) or self._growths.setdefault(growth, self._grown(growth))
        closed = self._closed

        def move(x: int) -> int:
            whole = x & left | (x & stayed) >> n
            v = 0
            for shift, planes in shifts:
                v |= x << shift & planes
            for doublings, first, planes in ever:
                y = x & first
                if y:
                    for shift in doublings:
                        y |= y << shift
                    v |= y & planes
            return closed(0, whole, v, target)

        return move

    def _grown(self, growth: tuple[int, ...]) -> tuple[list[tuple[int, int]], list[tuple[list[int], int, int]]]:
        """How the planes of thresholds move when the ivs advance: by which shift which planes are filled; and, for
        those with nothing but "all ever" below, where that is copied to."""
        n = self.n
        shifts: dict[int, int] = {}
        ever: list[tuple[list[int], int, int]] = []
        for u, (levels, grown) in enumerate(zip(self.levels.of, growth, strict=True)):
            low = 0
            for k, t in enumerate(levels):
                before = bisect_right(levels, t - grown) - 1 if k else 0
                if k and before <= 0:
                    low = k
                    continue
                shifts[k - before] = shifts.get(k - before, 0) | self.iv_planes(u, k, k + 1)
            if low:
                ever.append((_doublings(low + 1, n), self.iv_planes(u, 0, 1), self.iv_planes(u, 1, low + 1)))
        return [(d * n, planes) for d, planes in shifts.items()], ever


class Passed:
    """What program order tells a class of its own runs: those in earlier blocks are past, and of those in this one
    the runs that end before an op."""

    def __init__(self, statements: Statements, runs: Iterable[tuple[OpRun, int]]):
        """``runs``: each with the slots that speak of it."""
        self._statements = statements
        self._all = 0
        self._runs: dict[int, list[tuple[int, int]]] = {}
        for m, slots in runs:
            self._all |= slots
            self._runs.setdefault(m.block, []).append((m.end, slots))
        self._known: dict[int, tuple[list[int], list[int]]] = {}

    def before(self, s: int, i: int) -> int:
        """The knowledge before op ``i`` of a block."""
        found = self._known.get(s)
        if found is None:
            found = self._known[s] = self._in(s)
        ends, known = found
        return known[bisect_right(ends, i)]

    def _in(self, s: int) -> tuple[list[int], list[int]]:
        """Where runs of a block end, and what is known before the first end, behind it, behind the next, ..."""
        statements, here = self._statements, self._runs.get(s, [])
        said = statements.said(self._all, 0, s)
        known = [said]
        if here:
            slots = sum(x for _, x in here)
            past = statements.said(slots, slots, s)
            for _, x in here:
                said |= past & statements.spread(x)
                known.append(said)
        return [end for end, _ in here], known


def by_distance(slots: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs of slots as distances with the slots that have it."""
    out: dict[int, int] = {}
    for one, two in slots:
        out[two - one] = out.get(two - one, 0) | 1 << one
    return list(out.items())


def _doublings(planes: int, n: int) -> list[int]:
    """Shifts that spread one plane over at least so many."""
    out: list[int] = []
    have = 1
    while have < planes:
        out.append(have * n)
        have *= 2
    return out
