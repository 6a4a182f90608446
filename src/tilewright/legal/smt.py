"""Predicates that intervals, divisors and matching leave open, decided by an SMT solver.

A time-out or a failure of the solver is ``None``, never a verdict.
"""

from __future__ import annotations

from typing import Any

import z3  # pyright: ignore[reportMissingTypeStubs]

from tilewright.base.expr import Const, Expr, Sym, Xor
from tilewright.base.expr.algebra import Algebra, combined
from tilewright.legal.facts import Facts

TIMEOUT_MS = 200

solver_api: Any = z3
"""The solver's module, whose stubs leave most types open."""


def implied(predicate: Expr, facts: Facts, timeout_ms: int = TIMEOUT_MS) -> bool | None:
    """Whether ``predicate`` holds for all values the facts admit: True, False, or None when not settled in time."""
    solver, names = _solver(facts, timeout_ms)
    solver.add(solver_api.Not(_truth(_translate(facts.apply(predicate), names))))
    match _checked(solver):
        case solver_api.unsat:
            return True
        case solver_api.sat:
            return False
        case _:
            return None


def _checked(solver: Any) -> Any:
    """The solver's answer; one that fails has none."""
    try:
        return solver.check()
    except solver_api.Z3Exception:
        return solver_api.unknown


def _solver(facts: Facts, timeout_ms: int) -> tuple[Any, dict[str, Any]]:
    solver = solver_api.SolverFor("QF_NIA")
    solver.set("timeout", timeout_ms)
    names: dict[str, Any] = {}
    for name, (low, high) in facts.bounds.items():
        if low is not None:
            solver.add(_name(name, names) >= low)
        if high is not None:
            solver.add(_name(name, names) <= high)
    for name, unit in facts.divisors.items():
        solver.add(_name(name, names) % unit == 0)
    for predicate in facts.assumed:
        solver.add(_truth(_translate(facts.apply(predicate), names)))
    return solver, names


def _name(name: str, names: dict[str, Any]) -> Any:
    if name not in names:
        names[name] = solver_api.Int(name)
    return names[name]


def _truth(value: Any) -> Any:
    return value if solver_api.is_bool(value) else value != 0


def _translate(node: Expr, names: dict[str, Any]) -> Any:
    """``node`` in the solver's integers. Divisors are positive wherever rules divide, where both roundings agree."""
    match node:
        case Const(value):
            return solver_api.IntVal(int(value))
        case Sym(name):
            return _name(name, names)
        case Xor():
            raise TypeError("no rule predicate is written with Xor")
        case _:
            return combined(node, lambda part: _translate(part, names), _INTEGERS)


_INTEGERS = Algebra(
    least=lambda a, b: solver_api.If(a < b, a, b),
    greatest=lambda a, b: solver_api.If(a < b, b, a),
    both=lambda a, b: solver_api.And(_truth(a), _truth(b)),
    either=lambda a, b: solver_api.Or(_truth(a), _truth(b)),
    negated=lambda a: solver_api.Not(_truth(a)),
    divisor=lambda _, value: value,
    quotient=lambda a, b: a / b,  # of the solver's integers: the quotient of Euclid
)
