"""Checks that ops exist on the target, with legal operands: constants are checked, anything else is left open."""

from __future__ import annotations

from math import gcd

from tilewright.base.expr import Const, Expr, Sum
from tilewright.protocol.graph import EventGraph
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.op_constraints import broken, declared


def check_op_constraints(graph: EventGraph) -> None:
    """The rules of ``verify.op_constraints``; raises ``OutsideFragment``."""
    for _, detail in declared(graph.protocol):
        raise OutsideFragment(detail)
    for cta in range(graph.protocol.cluster):
        for step in graph.steps(cta):
            for _, detail in broken(graph.protocol, step.op, cta, _value, _remainder):
                raise OutsideFragment(detail)


def _value(e: Expr) -> int:
    if e.constant is None:
        raise OutsideFragment(f"{e} where a constant is asked for")
    return e.constant


def _remainder(e: Expr, n: int) -> int:
    """What is left of ``e`` modulo ``n`` if that is the same whatever its symbols are."""
    match e:
        case Const(value):
            return value % n
        case Sum(offset, terms) if all(gcd(factor, n) == n for _, factor in terms):
            return offset % n
        case _:
            raise OutsideFragment(f"{e} modulo {n}")
