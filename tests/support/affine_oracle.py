"""Random affine layouts, and what enumeration says of them: plain sums and sets, none of the library's algebra."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from tilewright.layout.library.affine import AffineLayout

Point = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A layout as data: per axis its digits and columns, the base, and a modulus (None: integers) per output."""

    axes: tuple[tuple[tuple[int, Point], ...], ...]
    base: Point
    moduli: tuple[int | None, ...]

    @property
    def layout(self) -> AffineLayout:
        return AffineLayout.of(
            {f"x{i}": [e for e, _ in axis] for i, axis in enumerate(self.axes)},
            {f"y{j}": m for j, m in enumerate(self.moduli)},
            {f"x{i}": [c for _, c in axis] for i, axis in enumerate(self.axes)},
            self.base,
        )

    @property
    def shape(self) -> Point:
        return tuple(prod(e for e, _ in axis) for axis in self.axes)

    def value(self, coordinate: Point) -> Point:
        total = list(self.base)
        for x, axis in zip(coordinate, self.axes, strict=True):
            for e, column in axis:
                x, digit = divmod(x, e)
                total = [t + digit * c for t, c in zip(total, column, strict=True)]
        return tuple(t if m is None else t % m for t, m in zip(total, self.moduli, strict=True))

    def table(self) -> dict[Point, Point]:
        return {x: self.value(x) for x in product(*map(range, self.shape))}


def random_case(rng: random.Random, most: int = 160) -> Case:
    """Prime and composite extents, flips, broadcasts, moduli; a third of the cases compact, so that inverses exist."""
    outs = rng.choice((1, 1, 1, 2))
    moduli = tuple(rng.choice((None, rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 24)))) for _ in range(outs))
    left, axes = most, list[tuple[tuple[int, Point], ...]]()
    for _ in range(rng.choice((1, 2, 2, 3))):
        digits: list[tuple[int, Point]] = []
        for _ in range(rng.choice((1, 1, 2))):
            e = rng.choice([x for x in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16) if x <= left])
            left //= e
            digits.append((e, tuple(rng.choice((0, 1, 1, -1, 2, 4, 8, -3, rng.randint(-20, 20))) for _ in moduli)))
        axes.append(tuple(digits))
    base = tuple(rng.choice((0, 0, 4, 8, rng.randint(-9, 9))) for _ in moduli)
    if rng.random() < 1 / 3:
        return _compact(rng, axes)
    return Case(tuple(axes), base, moduli)


def _compact(rng: random.Random, axes: list[tuple[tuple[int, Point], ...]]) -> Case:
    """Digits whose places are a permutation of mixed radices, some counted from the other end, times a unit."""
    places = [(i, k) for i, axis in enumerate(axes) for k in range(len(axis))]
    rng.shuffle(places)
    size, base = 1, 0
    columns: dict[tuple[int, int], int] = {}
    for i, k in places:
        e = axes[i][k][0]
        flip = rng.random() < 0.2
        columns[i, k] = -size if flip else size
        base += (e - 1) * size if flip else 0
        size *= e
    unit = rng.choice([u for u in range(1, size + 1) if gcd(u, size) == 1][:6])
    modulus = size if unit > 1 or rng.random() < 0.5 else None
    return Case(
        tuple(tuple((e, (unit * columns[i, k],)) for k, (e, _) in enumerate(axis)) for i, axis in enumerate(axes)),
        (unit * base,),
        (modulus,),
    )


def rewritten(rng: random.Random, case: Case) -> Case:
    """The same map written differently: digits split, unit digits inserted, multiples of moduli added."""
    axes: list[tuple[tuple[int, Point], ...]] = []
    for axis in case.axes:
        digits: list[tuple[int, Point]] = []
        for e, column in axis:
            shifted = _shifted(rng, column, case.moduli)
            divisors = [d for d in range(2, e) if e % d == 0]
            if divisors and rng.random() < 0.7:
                d = rng.choice(divisors)
                digits += [(d, shifted), (e // d, _shifted(rng, tuple(d * c for c in column), case.moduli))]
            else:
                digits.append((e, shifted))
            if rng.random() < 0.3:
                digits.append((1, tuple(rng.randint(-5, 5) for _ in case.moduli)))
        axes.append(tuple(digits))
    return Case(tuple(axes), _shifted(rng, case.base, case.moduli), case.moduli)


def _shifted(rng: random.Random, column: Point, moduli: tuple[int | None, ...]) -> Point:
    return tuple(c if m is None else c + m * rng.randint(-2, 2) for c, m in zip(column, moduli, strict=True))


def run_holds(case: Case, axis: int, out: int, n: int, aligned: bool) -> bool:
    """Every run of n coordinates from a multiple of n is n consecutive values of ``out`` (from a multiple of n)."""
    if case.shape[axis] % n:
        return False
    table = case.table()
    for x, y in table.items():
        start = table[(*x[:axis], x[axis] // n * n, *x[axis + 1 :])]
        moved = tuple(v + (x[axis] % n if j == out else 0) for j, v in enumerate(start))
        if y != moved or (aligned and start[out] % n):
            return False
    return True
