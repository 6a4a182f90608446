"""Analyses of expressions over bounded symbols: intervals, divisors, simplification."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import lru_cache, reduce
from math import gcd
from typing import TypeAlias

from tilewright.base.expr.nodes import (
    FALSE,
    TRUE,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Sym,
    Xor,
    compare,
    floordiv,
    maximum,
    minimum,
    mod,
    rebuild,
    split_multiples,
)

Interval: TypeAlias = tuple[int | None, int | None]
"""Closed interval; ``None`` is unbounded on that side."""


def interval(node: Expr, bounds: Mapping[str, Interval]) -> Interval:
    """A closed interval that contains every value of ``node`` when each symbol lies in its bounds.

    Symbols without an entry are unbounded. Sound, not always tight.
    """
    match node:
        case Const(value):
            return value, value
        case Sym(name):
            return bounds.get(name, (None, None))
        case Sum(offset, terms):
            low: int | None = offset
            high: int | None = offset
            for term, c in terms:
                a, b = interval(term, bounds)
                if c < 0:
                    a, b = b, a
                low = None if low is None or a is None else low + c * a
                high = None if high is None or b is None else high + c * b
            return low, high
        case Product(factors):
            return reduce(_interval_product, (interval(f, bounds) for f in factors))
        case FloorDiv(a, b):
            (low, high), n = interval(a, bounds), b.constant
            if n is not None and n > 0:
                return None if low is None else low // n, None if high is None else high // n
            d = interval(b, bounds)
            if low is not None and low >= 0 and d[0] is not None and d[0] >= 1:
                return 0, None if high is None else high // d[0]
            return None, None
        case Mod(a, b):
            low_b, high_b = interval(b, bounds)
            if low_b is None or low_b < 1:
                return None, None
            low, high = interval(a, bounds)
            if low is not None and low >= 0 and high is not None and high < low_b:
                return low, high
            return 0, None if high_b is None else high_b - 1
        case Min(args):
            pairs = [interval(a, bounds) for a in args]
            lows, highs = [p[0] for p in pairs], [p[1] for p in pairs if p[1] is not None]
            known = [x for x in lows if x is not None]
            return min(known) if len(known) == len(lows) else None, min(highs) if highs else None
        case Max(args):
            pairs = [interval(a, bounds) for a in args]
            lows, highs = [p[0] for p in pairs if p[0] is not None], [p[1] for p in pairs]
            known = [x for x in highs if x is not None]
            return max(lows) if lows else None, max(known) if len(known) == len(highs) else None
        case Xor(args):
            highs = [interval(a, bounds) for a in args]
            if any(h is None or low is None or low < 0 for low, h in highs):
                return None, None
            return 0, (1 << max(h.bit_length() for _, h in highs if h is not None)) - 1
        case _:
            return 0, 1


def _interval_product(x: Interval, y: Interval) -> Interval:
    if x[0] is not None and x[1] is not None and y[0] is not None and y[1] is not None:
        corners = (x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1])
        return min(corners), max(corners)
    if x[0] is not None and x[0] >= 0 and y[0] is not None and y[0] >= 0:
        return x[0] * y[0], None
    return None, None


def divisor(node: Expr, divisors: Mapping[str, int]) -> int:
    """The largest known n >= 0 that divides every value of ``node``; 0 means the value is always 0.

    ``divisors`` maps a symbol to a known divisor (default 1).
    """
    match node:
        case Const(value):
            return abs(value)
        case Sym(name):
            return divisors.get(name, 1)
        case Sum(offset, terms):
            return reduce(gcd, (c * divisor(t, divisors) for t, c in terms), abs(offset))
        case Product(factors):
            return reduce(operator.mul, (divisor(f, divisors) for f in factors))
        case FloorDiv(a, b):
            n, d = b.constant, divisor(a, divisors)
            return d // n if n and n > 0 and d % n == 0 else (0 if d == 0 and n else 1)
        case Mod(a, b):
            return gcd(divisor(a, divisors), divisor(b, divisors))
        case Min(args) | Max(args):
            return reduce(gcd, (divisor(a, divisors) for a in args))
        case _:
            return 1


def simplify(node: Expr, bounds: Mapping[str, Interval]) -> Expr:
    """``node`` with divisions, moduli, min, max and comparisons resolved where the intervals decide them."""
    if node.polynomial:
        return node
    return _simplified(node, frozenset((name, bounds[name]) for name in node.symbols if name in bounds))


@lru_cache(maxsize=1 << 16)  # passes ask the same again and again: for every element, body and variant of a kernel
def _simplified(node: Expr, known: frozenset[tuple[str, Interval]]) -> Expr:
    bounds = dict(known)
    match node:
        case FloorDiv(a, b):
            a, b = simplify(a, bounds), simplify(b, bounds)
            n = b.constant
            if n is not None and n > 0:
                quotient, rest = split_multiples(a, n)
                low, high = interval(rest, bounds)
                if low is not None and high is not None and low // n == high // n:
                    return quotient + low // n
                return quotient + _without_small(rest, n, bounds)
            elif _decides(a, b, bounds):
                return Const(0)
            return floordiv(a, b)
        case Mod(a, b):
            a, b = simplify(a, bounds), simplify(b, bounds)
            n = b.constant
            if n is not None and n > 0:
                _, rest = split_multiples(a, n)
                low, high = interval(rest, bounds)
                if low is not None and high is not None and low // n == high // n:
                    return rest - (low // n) * n
            elif _decides(a, b, bounds):
                return a
            return mod(a, b)
        case Min(args) | Max(args):
            kept = _dominant([simplify(a, bounds) for a in args], isinstance(node, Min), bounds)
            return minimum(*kept) if isinstance(node, Min) else maximum(*kept)
        case Compare(op, a, b):
            a, b = simplify(a, bounds), simplify(b, bounds)
            low, high = interval(simplify(a - b, bounds) if a.symbols & b.symbols else a - b, bounds)
            if (op == "<" and high is not None and high < 0) or (op == "<=" and high is not None and high <= 0):
                return TRUE
            if (op == "<" and low is not None and low >= 0) or (op == "<=" and low is not None and low > 0):
                return FALSE
            if op in ("==", "!=") and ((low is not None and low > 0) or (high is not None and high < 0)):
                return FALSE if op == "==" else TRUE
            return compare(op, a, b)
        case _:
            return rebuild(node, lambda e: simplify(e, bounds), {})


def _without_small(node: Expr, n: int, bounds: Mapping[str, Interval]) -> Expr:
    """``node // n``; where node is c*x + s with c a divisor of n and 0 <= s < c, that is x // (n // c)."""
    if isinstance(node, Sum):
        for c in sorted({gcd(c, n) for _, c in node.terms} - {1}, reverse=True):
            whole, small = split_multiples(node, c)
            low, high = interval(small, bounds)
            if low is not None and high is not None and low // c == high // c:
                return floordiv(whole + low // c, Const(n // c))
    return floordiv(node, Const(n))


def _decides(a: Expr, b: Expr, bounds: Mapping[str, Interval]) -> bool:
    """Whether 0 <= a < b holds for all values."""
    low, _ = interval(a, bounds)
    gap, _ = interval(b - a, bounds)
    return low is not None and low >= 0 and gap is not None and gap >= 1


def _dominant(args: list[Expr], least: bool, bounds: Mapping[str, Interval]) -> list[Expr]:
    kept: list[Expr] = []
    for i, a in enumerate(args):
        for j, b in enumerate(args):
            if i == j:
                continue
            low, _ = interval(a - b if least else b - a, bounds)
            # a is never the strict extremum; of two equal ones the first stays
            if low is not None and (low > 0 or (low == 0 and (a - b != Const(0) or j < i))):
                break
        else:
            kept.append(a)
    return kept or args[:1]
