"""The algebra of CuTe layouts whose extents or strides are symbols, each at least 1.

The definitions are those of ``cute_algebra``. A result holds for every value of the symbols; a condition that is not
known to hold for all of them (a division that may leave a rest, an order of strides that may turn) refuses with LAY010
and names it. Extents such as ``128*m`` say what divides them.
"""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from tilewright.base.expr import TRUE, Expr, Product, Sum, ceildiv, expr, simplify
from tilewright.diag import fail
from tilewright.layout.cute import CuteLayout, from_modes, merge, trusted
from tilewright.layout.int_tuple import IntTuple, Leaf

_Mode = tuple[Leaf, Leaf]


# -- what is known of symbols ---------------------------------------------------------------------------------------


def quotient(a: Leaf, b: Leaf) -> Leaf | None:
    """``a / b`` where b divides a for all values of the symbols; None where that is not known."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if a % b == 0 else None
    if a == b:
        return 1
    divisor = _terms(b)
    if len(divisor) != 1:
        return None
    ((below, factors),) = divisor
    result: Leaf = 0
    for coefficient, own in _terms(a):
        if coefficient % below or factors - own:
            return None
        part: Leaf = coefficient // below
        for factor in (own - factors).elements():
            part = part * factor
        result = result + part
    return _leaf(result)


def _terms(value: Leaf) -> list[tuple[int, Counter[Expr]]]:
    """A sum of products as (coefficient, factors)."""
    if isinstance(value, int):
        return [(value, Counter())]
    if value.constant is not None:
        return [(int(value.constant), Counter())]
    match value:
        case Sum(offset, terms):
            constant = [(offset, Counter[Expr]())] if offset else []
            return constant + [(c, _factors(term)) for term, c in terms]
        case _:
            return [(1, _factors(value))]


def _factors(term: Expr) -> Counter[Expr]:
    return Counter(term.factors) if isinstance(term, Product) else Counter([term])


def _leaf(value: Leaf) -> Leaf:
    if isinstance(value, int) or value.constant is None:
        return value
    return int(value.constant)


def at_most(a: Leaf, b: Leaf) -> bool:
    """``a <= b`` for all values of the symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    if quotient(b, a) is not None:
        return True
    bounds = dict.fromkeys(expr(a).symbols | expr(b).symbols, (1, None))
    return simplify(expr(a) <= expr(b), bounds) == TRUE


def _unknown(operation: str, what: str, required: str) -> NoReturn:
    fail(
        "LAY010",
        title=f"{operation} is not known to hold for all values of the symbols",
        found=what,
        required=required,
        help="say what divides an extent (128*m instead of M), or substitute numbers",
    )


# -- composition ----------------------------------------------------------------------------------------------------


def composition(a: CuteLayout, b: CuteLayout, *, extrapolate: bool = False) -> CuteLayout:
    """``c -> a(b(c))`` for all values of the symbols; see ``cute_algebra.composition``."""
    return _SymbolicComposer(a, b, extrapolate).result()


class _SymbolicComposer:
    """The walk of ``cute_algebra``, every comparison a question about symbols."""

    def __init__(self, a: CuteLayout, b: CuteLayout, extrapolate: bool) -> None:
        self.a, self.b, self.extrapolate = a, b, extrapolate
        self.modes: list[_Mode] = merge(a.flat) or [(1, 0)]
        self.last = len(self.modes) - 1
        self.filled: list[Leaf] = [1] * len(self.modes)

    def result(self) -> CuteLayout:
        return trusted(*self.walk(self.b.shape, self.b.stride))

    def walk(self, shape: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
        if isinstance(shape, tuple) and isinstance(stride, tuple):
            parts = [self.walk(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(s for s, _ in parts), tuple(d for _, d in parts)
        assert not isinstance(shape, tuple)
        assert not isinstance(stride, tuple)
        if stride == 0 or shape == 1:
            return shape, 0
        modes = self.leaf(0, shape, stride, 0)
        if len(modes) == 1:
            return modes[0]
        return tuple(s for s, _ in modes), tuple(d for _, d in modes)

    def leaf(self, index: int, count: Leaf, step: Leaf, extra: Leaf) -> list[_Mode]:
        """As in ``cute_algebra``: ``count`` steps over the modes from ``index`` on."""
        if step == 0:
            return [(count, extra)]
        s, d = self.modes[index]
        if index == self.last:
            self.fill(index, count, step)
            return [(count, _leaf(extra + step * d))]
        whole = quotient(step, s)
        if whole is not None:
            return self.leaf(index + 1, count, whole, extra)
        q, r = self.digits(step, s)
        if at_most((count - 1) * r + 1, s):
            self.fill(index, count, r)
            return self.leaf(index + 1, count, q, _leaf(extra + r * d))
        taken = quotient(s, r)
        blocks = None if taken is None else quotient(count, taken)
        if taken is None or blocks is None:
            self.unknown(
                f"{count} steps of {step} over a mode of extent {s}", "steps that stay inside it, or divide it"
            )
        self.fill(index, taken, r)
        inside = self.leaf(index + 1, taken, q, _leaf(extra + r * d))
        return inside + self.leaf(index + 1, blocks, _leaf(q * taken + 1), _leaf(extra * taken))

    def digits(self, step: Leaf, s: Leaf) -> tuple[Leaf, Leaf]:
        """``divmod(step, s)``."""
        if isinstance(step, int) and isinstance(s, int):
            return divmod(step, s)
        if at_most(step + 1, s) or (quotient(s, step) is not None and at_most(step, s)):
            return 0, step  # a step of the whole extent passes over the mode in one step and carries 1
        self.unknown(f"a step of {step} over a mode of extent {s}", "a multiple of the extent, or less than it")

    def fill(self, index: int, count: Leaf, step: Leaf) -> None:
        """Digit ``index`` gains (count - 1) * step and must not carry."""
        self.filled[index] = _leaf(self.filled[index] + (count - 1) * step)
        last = index == self.last
        if not (at_most(self.filled[index], self.modes[index][0]) or (last and self.extrapolate)):
            self.unknown(
                f"digit {index} reaches {self.filled[index] - 1}", f"less than the extent {self.modes[index][0]}"
            )

    def unknown(self, what: str, required: str) -> NoReturn:
        _unknown("composition", f"composition({self.a}, {self.b}): {what}", required)


# -- complement and inverses ----------------------------------------------------------------------------------------


def complement(layout: CuteLayout, cosize: Leaf = 1) -> CuteLayout:
    """The offsets ``layout`` leaves out; see ``cute_algebra.complement``."""
    result: list[_Mode] = []
    current: Leaf = 1
    for d, s in _ordered("complement", layout):
        if not at_most(current, d):
            _unknown("complement", f"{layout}: stride {d} after {current} offsets", "a stride beyond what is filled")
        between = quotient(d, current)
        result.append((_leaf(expr(d) // current) if between is None else between, current))
        current = _leaf(d * s)
    rest = quotient(cosize, current)
    result.append((_leaf(ceildiv(cosize, current)) if rest is None else rest, current))
    return from_modes(merge(result))


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """``r`` with ``layout(r(i)) == i``, of the modes that are known to continue one another."""
    left: list[tuple[Leaf, Leaf, Leaf]] = []
    place: Leaf = 1
    for s, d in layout.flat:
        if s != 1 and d != 0:
            left.append((d, s, place))
        place = place * s
    result: list[_Mode] = []
    current: Leaf = 1
    while (found := next((m for m in left if m[0] == current), None)) is not None:
        left.remove(found)
        result.append((found[1], found[2]))
        current = _leaf(found[0] * found[1])
    return from_modes(merge(result))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """``l`` with ``l(layout(i)) == i``: strides must be multiples of what the smaller ones fill."""
    current: Leaf = 1
    for d, s in _ordered("left_inverse", layout):
        if quotient(d, current) is None:
            _unknown("left_inverse", f"{layout}: stride {d} after {current} offsets", f"a multiple of {current}")
        current = _leaf(d * s)
    return right_inverse(CuteLayout.of([layout, complement(layout)]))


def _ordered(operation: str, layout: CuteLayout) -> list[tuple[Leaf, Leaf]]:
    """Modes (stride, extent) that move, in an order of strides that holds for all values of the symbols."""
    left = [(d, s) for s, d in layout.flat if s != 1 and d != 0]
    result: list[tuple[Leaf, Leaf]] = []
    while left:
        least = next((m for m in left if all(at_most(m[0], o[0]) for o in left)), None)
        if least is None:
            _unknown(operation, f"the order of strides {', '.join(str(d) for d, _ in left)}", "one least stride")
        left.remove(least)
        result.append(least)
    return result
