"""Extents and strides that may be symbols, each at least 1: what is known of them for all values.

Extents such as ``128*m`` say what divides them.
"""

from __future__ import annotations

from collections import Counter

from tilewright.base.expr import TRUE, Expr, Product, Sum, expr, simplify
from tilewright.layout.int_tuple import Leaf


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
    return leaf(result)


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


def leaf(value: Leaf) -> Leaf:
    """A number where the value is one."""
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
