"""Integer expressions as C, in arithmetic that never overflows.

Expressions are over mathematical integers. Values whose bounds fit are computed in ``int``; a sum or product that could
exceed it is computed in ``long long``, and one that could exceed that too wraps modulo 2^64, as tile elements do. A
symbol is an ``int`` if its bounds fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import accumulate
from operator import mul

from tilewright.base.expr import (
    OWN,
    All,
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Interval,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
    interval,
    own,
)

INT: Interval = (-(1 << 31), (1 << 31) - 1)
LONG: Interval = (-(1 << 63), (1 << 63) - 1)
_LONG, _UNSIGNED = "(long long)", "(unsigned long long)"


def local(name: str) -> Sym:
    """The counter of an emitted loop."""
    return Sym(own(f"loop.{name}"))


def identifier(symbol: str) -> str:
    """The C name of a symbol.

    The compiler's own are themselves (``$k0`` is ``k0``). A user's begin with ``u_``, ``stride0_`` or ``address_``, and
    names made of a user's with ``v_`` (``Writer.name``) or ``base4_``, as nothing else in the text does: things may be
    called anything, also ``int``, ``threadIdx`` or ``x0``.
    """
    if symbol.startswith(OWN):
        return symbol.removeprefix(OWN).removeprefix("loop.")
    name, _, part = symbol.partition(".")
    if OWN in name:  # a copy of a user's tensor
        part, name = f"{part}w", name.replace(OWN, "_")
    return f"{part or 'u'}_{name}"


def fits(bounds: Interval, kind: Interval = INT) -> bool:
    """True if every value in the interval is one of the type."""
    low, high = bounds
    return low is not None and high is not None and kind[0] <= low and high <= kind[1]  # type: ignore[operator]


def c_type(bounds: Interval) -> str:
    """The type of a symbol with these bounds."""
    return "int" if fits(bounds) else "long long"


def c_expr(node: Expr, bounds: Mapping[str, Interval]) -> str:
    """``node`` as a C expression; floor semantics are kept where a numerator may be negative.

    Division and modulus by powers of two become shifts and masks, which round to minus infinity for either sign; other
    divisors use C's operators where the numerator is known not to be negative, helpers of the prelude elsewhere. A
    symbol without bounds, or without one of them, is an ``int``.
    """
    text, _ = _written(node, frozenset((name, _closed(bounds.get(name, (None, None)))) for name in node.symbols))
    return text


def c_int(node: Expr, bounds: Mapping[str, Interval]) -> str:
    """``node`` as an ``int``; if the value does not fit, its low bits."""
    text, wide = _written(node, frozenset((name, _closed(bounds.get(name, (None, None)))) for name in node.symbols))
    return f"(int)({text})" if wide else f"({text})" if isinstance(node, Product) else text


def _closed(bounds: Interval) -> Interval:
    low, high = bounds
    return INT[0] if low is None else low, INT[1] if high is None else high


@lru_cache(maxsize=1 << 14)  # the bodies and variants of a kernel write mostly the same
def _written(node: Expr, known: frozenset[tuple[str, Interval]]) -> tuple[str, bool]:
    return _Writing(dict(known)).emit(node)


class _Writing:
    """Writes one expression; each part is text and whether it is a ``long long``."""

    def __init__(self, bounds: Mapping[str, Interval]):
        self.bounds = bounds

    def emit(self, e: Expr) -> tuple[str, bool]:
        match e:
            case Const(value):
                return _number(int(value))
            case Sym(name):
                return identifier(name), not fits(self.bounds[name])
            case Sum(offset, terms):
                return self._sum(offset, terms)
            case Product(factors):
                return self._product(factors)
            case FloorDiv(a, b) | Mod(a, b):
                return self._narrowed(e, *self._division(e, a, b))
            case Min(args) | Max(args):
                name = "min" if isinstance(e, Min) else "max"
                parts, wide = self._alike(args)
                return self._narrowed(e, reduce(lambda text, part: f"{name}({part}, {text})", reversed(parts)), wide)
            case Xor(args):
                parts, wide = self._alike(args)
                return f"({' ^ '.join(parts)})", wide
            case Compare(op, a, b):
                if not (fits(interval(a, self.bounds), LONG) and fits(interval(b, self.bounds), LONG)):
                    a, b = _apart(a, b)  # a difference of 64-bit integers may wrap, which these don't
                return f"({self.emit(a)[0]} {op} {self.emit(b)[0]})", False
            case All(args):
                return f"({' && '.join(self.emit(a)[0] for a in args)})", False
            case Any_(args):
                return f"({' || '.join(self.emit(a)[0] for a in args)})", False
            case Not(a):
                return f"!{self.emit(a)[0]}", False
            case _:
                raise TypeError(f"not an expression node: {type(e).__name__}")

    def _sum(self, offset: int, terms: Sequence[tuple[Expr, int]]) -> tuple[str, bool]:
        ordered = sorted(terms, key=lambda t: t[1] < 0)
        made = [interval(term * c, self.bounds) for term, c in ordered]
        steps = [interval(term * abs(c), self.bounds) for term, c in ordered]
        steps += [interval(-ordered[0][0], self.bounds), *accumulate([*made, (offset, offset)], _add)]
        cast, wide = self._cast((term for term, _ in terms), steps)
        parts: list[str] = []
        for term, c in ordered:
            body = cast + self.emit(term)[0] + ("" if abs(c) == 1 else f"*{_number(abs(c))[0]}")
            parts.append((" - " if c < 0 else " + ") + body)
        if offset:
            parts.append((" + " if offset > 0 else " - ") + _number(abs(offset))[0])
        text = "".join(parts)
        text = f"({text[3:] if text.startswith(' + ') else '-' + text[3:]})"
        return (_LONG + text if cast == _UNSIGNED else text), wide

    def _product(self, factors: Sequence[Expr]) -> tuple[str, bool]:
        products: Iterable[Expr] = accumulate(factors, mul)
        steps = [interval(part, self.bounds) for part in products]
        cast, wide = self._cast(factors, steps)
        text = cast + "*".join(self.emit(f)[0] for f in factors)
        return (f"{_LONG}({text})" if cast == _UNSIGNED else text), wide

    def _cast(self, parts: Iterable[Expr], steps: Iterable[Interval]) -> tuple[str, bool]:
        """The type in which arithmetic with these intermediate values is done, as a cast, and whether it is wide."""
        steps = list(steps)
        if all(map(fits, steps)):
            return "", any(self.emit(part)[1] for part in parts)
        return (_LONG if all(fits(s, LONG) for s in steps) else _UNSIGNED), True

    def _division(self, e: Expr, a: Expr, b: Expr) -> tuple[str, bool]:
        n, whole = b.constant, isinstance(e, FloorDiv)
        if n is not None and n > 0 and n & (n - 1) == 0:
            text, wide = self.emit(a)
            return (f"({text} >> {n.bit_length() - 1})" if whole else f"({text} & {_number(n - 1)[0]})"), wide
        (low, _), (low_b, _) = interval(a, self.bounds), interval(b, self.bounds)
        parts, wide = self._alike((a, b))
        if low is not None and low >= 0 and low_b is not None and low_b > 0:
            return f"({parts[0]} {'/' if whole else '%'} {parts[1]})", wide
        return f"{'floor_div' if whole else 'floor_mod'}({parts[0]}, {parts[1]})", wide

    def _alike(self, args: Sequence[Expr]) -> tuple[list[str], bool]:
        """Both operands converted to one type."""
        made = [self.emit(a) for a in args]
        wide = any(w for _, w in made)
        return [_LONG + text if wide and not w else text for text, w in made], wide

    def _narrowed(self, e: Expr, text: str, wide: bool) -> tuple[str, bool]:
        """Casts wide text whose value fits an ``int`` to ``int``."""
        return (f"(int){text}", False) if wide and fits(interval(e, self.bounds)) else (text, wide)


def _apart(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The same comparison, with the terms subtracted on either side moved to the other."""
    gap = b - a
    terms = gap.terms if isinstance(gap, Sum) else ((gap, 1),)
    offset = gap.offset if isinstance(gap, Sum) else 0
    left: Expr = Const(max(-offset, 0))
    right: Expr = Const(max(offset, 0))
    for term, c in terms:
        left, right = (left + term * -c, right) if c < 0 else (left, right + term * c)
    return left, right


def _number(value: int) -> tuple[str, bool]:
    if fits((value, value)):
        return (str(value) if value >= 0 else "(-2147483647 - 1)" if value == INT[0] else f"({value})"), False
    value = (value + (1 << 63)) % (1 << 64) - (1 << 63)  # what wraps, wraps
    return ("(-9223372036854775807LL - 1)" if value == LONG[0] else f"({value}LL)" if value < 0 else f"{value}LL"), True


def _add(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high
