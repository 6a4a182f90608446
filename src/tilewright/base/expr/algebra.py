"""Values of expressions in any kind of number that has Python's operators: arrays of NumPy, integers of a solver."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tilewright.base.expr.nodes import (
    COMPARISONS,
    All,
    Any_,
    Compare,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Xor,
)


@dataclass(frozen=True)
class Algebra:
    """What Python's operators don't give for a kind of numbers.

    ``least`` and ``greatest`` take two numbers, ``both`` and ``either`` two conditions, ``negated`` one. ``divisor``
    takes the node and the value that it divides by, and returns the value or raises. ``quotient`` rounds to minus
    infinity, at least for positive divisors.
    """

    least: Callable[[Any, Any], Any]
    greatest: Callable[[Any, Any], Any]
    both: Callable[[Any, Any], Any]
    either: Callable[[Any, Any], Any]
    negated: Callable[[Any], Any]
    divisor: Callable[[Expr, Any], Any]
    quotient: Callable[[Any, Any], Any] = lambda a, b: a // b


def combined(node: Expr, of: Callable[[Expr], Any], algebra: Algebra) -> Any:
    """The value of a node that is neither a constant nor a symbol, from those of its operands, which ``of`` gives."""
    match node:
        case Sum(offset, terms):
            return sum((of(term) if factor == 1 else of(term) * factor for term, factor in terms), start=offset)
        case Product(factors):
            return reduce(operator.mul, map(of, factors))
        case FloorDiv(a, b):
            return algebra.quotient(of(a), algebra.divisor(node, of(b)))
        case Mod(a, b):
            return of(a) % algebra.divisor(node, of(b))
        case Min(args):
            return reduce(algebra.least, map(of, args))
        case Max(args):
            return reduce(algebra.greatest, map(of, args))
        case Xor(args):
            return reduce(lambda a, b: a ^ b, map(of, args))
        case Compare(op, a, b):
            return COMPARISONS[op](of(a), of(b))
        case All(args):
            return reduce(algebra.both, map(of, args))
        case Any_(args):
            return reduce(algebra.either, map(of, args))
        case Not(arg):
            return algebra.negated(of(arg))
        case _:
            raise TypeError(f"not an expression with operands: {type(node).__name__}")
