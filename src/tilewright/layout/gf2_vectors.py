"""Linear algebra over F2 on machine words: a matrix is a tuple of columns, each column one int.

Bit ``i`` of a column is row ``i``. Everything the layouts need (rank, kernel, solving) is one elimination that keeps,
for each reduced column, the set of original columns it is the sum of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


def apply(columns: Sequence[int], word: int) -> int:
    """The image of ``word``: the xor of the columns that its set bits name."""
    image = 0
    while word:
        low = word & -word
        image ^= columns[low.bit_length() - 1]
        word ^= low
    return image


def multiply(outer: Sequence[int], inner: Iterable[int]) -> tuple[int, ...]:
    """Columns of the product ``outer @ inner``."""
    return tuple(apply(outer, column) for column in inner)


@dataclass
class Elimination:
    """A growing echelon basis of columns.

    ``leaders[b]`` is the reduced column whose highest set bit is ``b`` together with the mask of the original
    columns it is the xor of. Columns are offered in order, so the independent ones are the first that span.
    """

    leaders: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    pivots: int = 0
    kernel: list[int] = field(default_factory=list[int])
    count: int = 0

    def reduce(self, word: int, combination: int = 0) -> tuple[int, int]:
        """``word`` minus its part in the span, and the columns used; the rest is 0 iff ``word`` is in the span."""
        leaders = self.leaders
        rest = word
        kept = 0
        while rest:
            top = rest.bit_length() - 1
            leader = leaders.get(top)
            if leader is None:
                kept |= 1 << top
                rest ^= 1 << top
            else:
                rest ^= leader[0]
                combination ^= leader[1]
                # the leader's lower bits were xored into ``rest``; bits already kept lie above ``top``
        return kept, combination

    def add(self, column: int) -> bool:
        """Offer the next column; True if it is independent of those before."""
        own = 1 << self.count
        self.count += 1
        rest, combination = self.reduce(column, own)
        if not rest:
            self.kernel.append(combination)
            return False
        self.leaders[rest.bit_length() - 1] = (rest, combination)
        self.pivots |= own
        return True


def eliminate(columns: Iterable[int]) -> Elimination:
    """The elimination of ``columns`` in order: ``pivots`` masks the independent ones, ``kernel`` is a basis of it."""
    elimination = Elimination()
    for column in columns:
        elimination.add(column)
    return elimination


def rank(columns: Iterable[int]) -> int:
    """Dimension of the span."""
    return len(eliminate(columns).leaders)


def solve(matrix: Sequence[int], targets: Iterable[int]) -> tuple[int, ...] | int:
    """Columns ``x`` with ``matrix @ x == targets`` and the free variables zero; else the first target outside the span.

    The free variables are the columns that depend on earlier ones, so equal inputs give equal answers and a broadcast
    input is never read through its second copy.
    """
    elimination = eliminate(matrix)
    solution: list[int] = []
    for target in targets:
        rest, combination = elimination.reduce(target)
        if rest:
            return target
        solution.append(combination)
    return tuple(solution)


def bits(word: int) -> Iterable[int]:
    """Positions of the set bits, lowest first."""
    while word:
        low = word & -word
        yield low.bit_length() - 1
        word ^= low
