"""What can be decided about an affine layout: which values it takes, where, how often, and in what runs.

All answers are exact. They rest on two facts:

- *Lift.* Let a_i be the true differences of values from coordinate 0 to 1 along digit i. A modular output equals the
  plain integer ``b + sum a_i x_i`` everywhere if the extremes of that sum lie in [0, m); otherwise it wraps somewhere,
  and along a path of unit steps the first wrap is by exactly m. So "wraps" is decided by two sums.
- *Lattice.* Solutions of ``A x == y`` differ by the kernel lattice, whose points in the box of the digits are listed
  digit by digit (``lattice``). Digits that share no output are asked about apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr, divisor, expr
from tilewright.diag import fail
from tilewright.layout.int_tuple import Leaf
from tilewright.layout.library.affine import AffineLayout
from tilewright.layout.library.lattice import LatticeEquations, Vector, box_points, hermite, smith, work


@dataclass(frozen=True)
class Lift:
    """``b + sum a_i x_i`` with true differences; ``low``/``high`` are its extremes, ``wraps`` says where it differs."""

    base: Vector
    columns: tuple[Vector, ...]
    low: Vector
    high: Vector
    wraps: tuple[bool, ...]


def lift(layout: AffineLayout) -> Lift:
    """The true differences of a layout and whether each output wraps (LAY010 for symbols)."""
    extents, columns, base = layout.numbers
    moduli = layout.moduli
    start = tuple(b if m is None else b % m for b, m in zip(base, moduli, strict=True))
    true: list[Vector] = []
    for e, column in zip(extents, columns, strict=True):
        if e == 1:
            true.append((0,) * len(start))
            continue
        true.append(tuple(c if m is None else (s + c) % m - s for c, s, m in zip(column, start, moduli, strict=True)))
    low, high = list(start), list(start)
    for e, column in zip(extents, true, strict=True):
        for j, c in enumerate(column):
            low[j] += min(0, c) * (e - 1)
            high[j] += max(0, c) * (e - 1)
    wraps = tuple(m is not None and (lo < 0 or hi >= m) for lo, hi, m in zip(low, high, moduli, strict=True))
    return Lift(start, tuple(true), tuple(low), tuple(high), wraps)


@dataclass(frozen=True)
class DigitGroup:
    """Digits that share outputs with no others, smallest steps first: ``digits`` and ``outs`` are their positions."""

    digits: tuple[int, ...]
    outs: tuple[int, ...]
    extents: Vector
    columns: tuple[Vector, ...]
    moduli: tuple[int | None, ...]

    @cached_property
    def equations(self) -> LatticeEquations:
        """The part's equations."""
        return LatticeEquations(self.columns, self.moduli)

    @property
    def size(self) -> int:
        """Number of digit values."""
        return prod(self.extents)

    def values(self) -> set[Vector]:
        """All values (without the base), by enumeration."""
        images: set[Vector] = {(0,) * len(self.outs)}
        for e, column in zip(self.extents, self.columns, strict=True):
            images = {
                tuple(
                    (a + k * c) if m is None else (a + k * c) % m
                    for a, c, m in zip(x, column, self.moduli, strict=True)
                )
                for k in range(e)
                for x in images
            }
        return images

    @property
    def is_injective(self) -> bool:
        """No two digit values share an image: the kernel meets the box of differences in 0 only."""
        if self.moduli == (None,):
            reach = 0
            for (step,), e in sorted((tuple(map(abs, c)), e) for c, e in zip(self.columns, self.extents, strict=True)):
                if step <= reach:
                    break
                reach += step * (e - 1)
            else:
                return True
        bounds = [(1 - e, e - 1) for e in self.extents]
        low, high = [a for a, _ in bounds], [b for _, b in bounds]
        kernel = self.equations.kernel
        if work(kernel, low, high) > 16 * self.size:
            return len(self.values()) == self.size
        return not any(any(x) for x in box_points(kernel, (0,) * len(self.extents), low, high))

    def solve(self, y: Sequence[int]) -> Vector | None:
        """Digit values with image y (without the base)."""
        found = self.equations.solve(y)
        if found is None:
            return None
        high = [e - 1 for e in self.extents]
        return next(box_points(self.equations.kernel, found, [0] * len(high), high), None)

    @property
    def is_surjective(self) -> bool:
        """Every value of all (modular) outputs is taken."""
        total = prod(m or 0 for m in self.moduli)
        if not total or self.size < total:
            return False
        if prod(smith(self.equations.generators)) != 1:
            return False
        cyclic = all(
            e * c % (m or 1) == 0
            for e, column in zip(self.extents, self.columns, strict=True)
            for c, m in zip(column, self.moduli, strict=True)
        )
        if cyclic:
            return True
        if self.size == total:
            return self.is_injective
        return self._fills_ring(total) if len(self.outs) == 1 else len(self.values()) == total

    def _fills_ring(self, m: int) -> bool:
        """All residues modulo m are sums of the digits' steps: sets of residues as words of m bits, turned."""
        everything, taken = (1 << m) - 1, 1
        for e, (step,) in zip(self.extents, self.columns, strict=True):
            reach = 1
            while reach < e:
                # doubling, the last time with overlap: multiples 0 .. more - 1 become 0 .. reach + more - 1
                more = min(reach, e - reach)
                turn = more * step % m
                taken |= (taken << turn | taken >> (m - turn)) & everything
                reach += more
        return taken == everything


def parts(layout: AffineLayout) -> list[DigitGroup]:
    """The layout's digits that move something, grouped by the outputs they share."""
    lifted = lift(layout)
    moduli = tuple(m if w else None for m, w in zip(layout.moduli, lifted.wraps, strict=True))
    extents = layout.numbers[0]
    group = list(range(len(layout.outs)))
    moving = [i for i, c in enumerate(lifted.columns) if any(c)]
    for i in moving:
        touched = [group[j] for j, c in enumerate(lifted.columns[i]) if c]
        group = [touched[0] if g in touched else g for g in group]
    result: list[DigitGroup] = []
    for g in sorted(set(group)):
        outs = tuple(j for j, own in enumerate(group) if own == g)
        mine = [i for i in moving if any(lifted.columns[i][j] for j in outs)]
        mine.sort(key=lambda i: max(abs(c) for c in lifted.columns[i]))
        columns = tuple(tuple(lifted.columns[i][j] for j in outs) for i in mine)
        result.append(
            DigitGroup(tuple(mine), outs, tuple(extents[i] for i in mine), columns, tuple(moduli[j] for j in outs))
        )
    return result


# -- where values are taken -----------------------------------------------------------------------------------------


def is_injective(layout: AffineLayout) -> bool:
    """No two coordinates share an image."""
    still = [e for e, c in zip(layout.numbers[0], lift(layout).columns, strict=True) if e > 1 and not any(c)]
    return not still and all(p.is_injective for p in parts(layout))


def is_surjective(layout: AffineLayout) -> bool:
    """Every value of every output is taken; over the integers none is, so outputs need moduli."""
    if None in layout.moduli:
        return False
    for part in parts(layout):
        moduli = tuple(layout.moduli[j] for j in part.outs)
        if not DigitGroup(part.digits, part.outs, part.extents, part.columns, moduli).is_surjective:
            return False
    return True


def preimage(layout: AffineLayout, *values: int) -> tuple[int, ...] | None:
    """A coordinate (one number per input axis) with that image, always the same one; None if there is none."""
    if len(values) != len(layout.outs):
        fail(
            "LAY002",
            title="one value per output",
            found=str(values),
            required=str(layout.out_names),
            help="give one value for every output",
        )
    base = lift(layout).base
    digits = [0] * len(layout.digits)
    for part in parts(layout):
        wanted = [values[j] - base[j] for j in part.outs]
        if any(m is not None and not 0 <= values[j] < m for j, m in zip(part.outs, part.moduli, strict=True)):
            return None
        found = part.solve(wanted)
        if found is None:
            return None
        for i, x in zip(part.digits, found, strict=True):
            digits[i] = x
    return pack(layout, digits)


def pack(layout: AffineLayout, digits: Sequence[int]) -> tuple[int, ...]:
    """Digit values as one coordinate per input axis."""
    extents = layout.numbers[0]
    result: list[int] = []
    for name in layout.in_names:
        coordinate, place = 0, 1
        for i in layout.axis(name):
            coordinate += digits[i] * place
            place *= extents[i]
        result.append(coordinate)
    return tuple(result)


@dataclass(frozen=True)
class Image:
    """Values are ``base`` plus points of the lattice with Hermite basis ``basis`` (modular outputs included).

    ``index`` is the product of its invariant factors (Smith form): of all values, one in ``index`` can be taken.
    ``low`` and ``high`` bound the values. Equal layouts have equal images.
    """

    base: Vector
    basis: tuple[Vector, ...]
    invariants: Vector
    low: Vector
    high: Vector

    @property
    def index(self) -> int:
        """Density: one value in ``index`` lies on the lattice; 0 when the lattice has lower rank than the outputs."""
        return prod(self.invariants) if len(self.invariants) == len(self.base) else 0


def image(layout: AffineLayout) -> Image:
    """The coset of values and its bounds."""
    lifted = lift(layout)
    moduli = tuple(m if w else None for m, w in zip(layout.moduli, lifted.wraps, strict=True))
    generators = LatticeEquations(lifted.columns, moduli).generators
    low = tuple(0 if m else x for x, m in zip(lifted.low, moduli, strict=True))
    high = tuple(m - 1 if m else x for x, m in zip(lifted.high, moduli, strict=True))
    return Image(lifted.base, hermite(generators), smith(generators), low, high)


# -- runs -----------------------------------------------------------------------------------------------------------


def alignment(layout: AffineLayout, out: str, divisors: dict[str, int] | None = None) -> int:
    """The greatest common divisor of all values of an output; 0 when all are 0.

    Symbols count with what ``divisors`` says of them; for numbers the answer is the largest that holds.
    """
    j = layout.out(out)
    if not layout.is_static:
        terms: list[Leaf] = [
            layout.base[j],
            *(c[j] for e, c in zip(layout.digits, layout.columns, strict=True) if e != 1),
        ]
        known = [divisor(expr(t), divisors or {}) if isinstance(t, Expr) else abs(t) for t in terms]
        return gcd(*known, layout.moduli[j] or 0)
    lifted = lift(layout)
    wrap = (layout.moduli[j] or 0) if lifted.wraps[j] else 0
    return gcd(lifted.base[j], wrap, *(c[j] for c in lifted.columns))


def contiguity(layout: AffineLayout, axis: str, out: str) -> int:
    """The largest n, a divisor of the axis's extent, such that every run of n coordinates from a multiple of n takes n
    consecutive values of ``out`` and moves no other output."""
    form, j, first = _first_digit(layout, axis, out)
    if first is None:
        return 1
    extents, columns, _ = form.numbers
    if not _steps_by_one(form, columns[first], j):
        return 1
    m = form.moduli[j]
    for n in range(extents[first], 1, -1):
        if extents[first] % n:
            continue
        starts = _coarse(form, first, n)
        lifted = lift(starts)
        if m is None or (not lifted.wraps[j] and lifted.high[j] + n <= m):
            return n
        alone = starts.select((out,))
        if not any(preimage(alone, r) is not None for r in _on_lattice(alone, m - n + 1, m)):
            return n
    return 1


def _on_lattice(layout: AffineLayout, start: int, stop: int) -> range:
    """The values of one output in a range that its lattice has at all."""
    found = image(layout)
    (base,), step = found.base, found.basis[0][0] if found.basis else stop - start
    return range(start + (base - start) % step, stop, step)


def vector_width(layout: AffineLayout, axis: str, out: str, *, limit: int = 1 << 16) -> int:
    """The largest power of two v <= ``limit`` such that v coordinates of ``axis`` from any multiple of v take v
    consecutive values of ``out`` from a multiple of v, and move no other output."""
    form, j, first = _first_digit(layout, axis, out)
    if first is None:
        return 1
    extents, columns, _ = form.numbers
    if not _steps_by_one(form, columns[first], j):
        return 1
    m, v = form.moduli[j], 1
    while 2 * v <= limit and extents[first] % (2 * v) == 0 and _aligned(_coarse(form, first, 2 * v), j, m, 2 * v):
        v *= 2
    return v


def _aligned(starts: AffineLayout, j: int, m: int | None, v: int) -> bool:
    """All values of the runs' starts are multiples of v at most m - v. If the starts wrap by m they are not, unless v
    divides m: the first that wraps differs by m from a multiple of v."""
    lifted = lift(starts)
    if lifted.base[j] % v or any(c[j] % v for c in lifted.columns):
        return False
    return m is None or m % v == 0 or (not lifted.wraps[j] and lifted.high[j] + v <= m)


def _first_digit(layout: AffineLayout, axis: str, out: str) -> tuple[AffineLayout, int, int | None]:
    form = layout.canonical()
    own = form.axis(axis)
    return form, form.out(out), own[0] if own else None


def _steps_by_one(form: AffineLayout, column: Vector, j: int) -> bool:
    """The digit moves output j by one and no other."""
    m = form.moduli[j]
    one = 1 if m is None else 1 % m
    return column[j] == one != 0 and not any(c for i, c in enumerate(column) if i != j)


def _coarse(form: AffineLayout, digit: int, n: int) -> AffineLayout:
    """The layout of the starts of runs of n along a digit."""
    axes: list[tuple[str, tuple[Leaf, ...]]] = []
    position = 0
    for name, digits in form.ins:
        own = tuple(e // n if position + k == digit else e for k, e in enumerate(digits))
        axes.append((name, own))
        position += len(digits)
    columns = list(form.columns)
    columns[digit] = tuple(n * c for c in columns[digit])
    return AffineLayout(tuple(axes), form.outs, tuple(columns), form.base)
