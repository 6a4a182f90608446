"""Linear equations over the integers and integer points of a lattice in a box, by the Hermite normal form.

``LatticeEquations`` holds ``sum_i x_i * columns[i] == y`` where row j is taken modulo ``moduli[j]`` (None: over Z). One
Hermite form with its transform answers every question: which y have a solution, one of them, and the lattice of
differences of solutions. Its basis is in echelon form, so the points inside a box are found digit by digit.
Definitions: H. Cohen, "A Course in Computational Algebraic Number Theory", 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from flint import fmpz_mat

from tilewright.base.cached import cached_property

Vector = tuple[int, ...]


def hermite(rows: Sequence[Sequence[int]]) -> tuple[Vector, ...]:
    """The nonzero rows of the Hermite normal form: the one echelon basis of the lattice that the rows generate."""
    if not rows or not rows[0]:
        return ()
    return tuple(row for row in _rows(fmpz_mat([list(r) for r in rows]).hnf()) if any(row))


def smith(rows: Sequence[Sequence[int]]) -> Vector:
    """The nonzero invariant factors of the lattice that the rows generate, each dividing the next."""
    if not rows or not rows[0]:
        return ()
    form = _rows(fmpz_mat([list(r) for r in rows]).snf())
    diagonal = [abs(form[i][i]) for i in range(min(len(form), len(form[0])))]
    return tuple(d for d in diagonal if d)


def _rows(matrix: fmpz_mat) -> list[Vector]:
    return [tuple(int(x) for x in row) for row in matrix.tolist()]


@dataclass(frozen=True)
class LatticeEquations:
    """``sum_i x_i * columns[i] == y``, row j modulo ``moduli[j]``."""

    columns: tuple[Vector, ...]
    moduli: tuple[int | None, ...]

    @cached_property
    def generators(self) -> tuple[Vector, ...]:
        """The columns, and ``modulus * e_j`` for every modular row: they generate all reachable y."""
        wraps = [tuple(m if i == j else 0 for i in range(len(self.moduli))) for j, m in enumerate(self.moduli) if m]
        return (*self.columns, *wraps)

    @cached_property
    def _form(self) -> tuple[list[Vector], list[Vector]]:
        """Echelon rows and the combinations of generators they are; rows of zeros give the kernel."""
        if not self.generators or not self.moduli:
            return [() for _ in self.generators], [_unit(i, len(self.generators)) for i in range(len(self.generators))]
        form, transform = fmpz_mat([list(g) for g in self.generators]).hnf(True)
        return _rows(form), _rows(transform)

    @cached_property
    def kernel(self) -> tuple[Vector, ...]:
        """Echelon basis of the x with ``A x == 0``."""
        form, transform = self._form
        n = len(self.columns)
        return hermite([combination[:n] for row, combination in zip(form, transform, strict=True) if not any(row)])

    def solve(self, y: Sequence[int]) -> Vector | None:
        """Some integer x with ``A x == y``; None when there is none."""
        form, transform = self._form
        rest, x = list(y), [0] * len(self.generators)
        for row, combination in zip(form, transform, strict=True):
            pivot = next((j for j, v in enumerate(row) if v), None)
            if pivot is None:
                break
            times, left = divmod(rest[pivot], row[pivot])
            if left:
                return None
            rest = [a - times * b for a, b in zip(rest, row, strict=True)]
            x = [a + times * b for a, b in zip(x, combination, strict=True)]
        return None if any(rest) else tuple(x[: len(self.columns)])


def _unit(i: int, n: int) -> Vector:
    return tuple(int(i == j) for j in range(n))


def box_points(
    basis: Sequence[Vector], origin: Sequence[int], low: Sequence[int], high: Sequence[int]
) -> Iterator[Vector]:
    """The points ``origin + lattice`` with ``low <= x <= high``, in lexicographic order.

    ``basis`` is in echelon form: once the multiple of row k is chosen, all coordinates before row k+1's pivot are
    final, and each multiple is bounded by its own pivot coordinate.
    """
    pivots = [next(j for j, v in enumerate(row) if v) for row in basis]
    ends = [*pivots[1:], len(origin)]

    def walk(k: int, point: tuple[int, ...]) -> Iterator[Vector]:
        if k == len(basis):
            yield point
            return
        row, p = basis[k], pivots[k]
        step = row[p]
        first, last = -((point[p] - low[p]) // step), (high[p] - point[p]) // step
        for times in range(first, last + 1):
            moved = tuple(a + times * b for a, b in zip(point, row, strict=True))
            if all(low[j] <= moved[j] <= high[j] for j in range(p, ends[k])):
                yield from walk(k + 1, moved)

    start = pivots[0] if pivots else len(origin)
    if all(low[j] <= origin[j] <= high[j] for j in range(start)):
        yield from walk(0, tuple(origin))


def work(basis: Sequence[Vector], low: Sequence[int], high: Sequence[int]) -> int:
    """An upper bound of the points that ``box_points`` looks at."""
    widths: list[int] = []
    for row in basis:
        pivot = next(j for j, v in enumerate(row) if v)
        widths.append((high[pivot] - low[pivot]) // row[pivot] + 1)
    return prod(widths)
