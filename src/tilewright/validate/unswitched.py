"""Loops that LLVM unswitches: of a condition that no iteration changes it makes two loops, one where it holds and one
where it does not, and leaves out of each what only the other one does.

``S`` does what ``if c: S, else: S`` does, for any ``c`` of arguments alone: it is the same for all threads, which
exchange values in ``S``, and before, in and behind ``S``. So the IR's loop is compared as such a branch. Where ``c``
says that a loop in ``S`` makes an iteration, that loop makes none in the second ``S``. Which ``c`` is asked for is told
by how the PTX enters its two loops; nothing rests on that: with another ``c`` they would not be equal.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, Operation, Region

from tilewright.base.expr import Expr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.cases import Condition
from tilewright.validate.transport_ir.plan import Plan


class Unswitched(Exception):
    """Raised where the PTX has two loops for one of the IR: ``guard`` holds where one of them is entered, and not where
    the other one is."""

    def __init__(self, loop: t.For, guard: Expr):
        super().__init__(str(guard))
        self.loop, self.guard = loop, guard


def unswitched(plan: Plan, loop: Operation, first: Condition, second: Condition) -> Unswitched | None:
    """The condition under which a loop in ``loop`` makes an iteration that tells two conditions apart, of arguments
    alone: of names that the text binds nowhere. None if there is none, if ``loop`` is not of the kernel's text, or if
    it declares what a kernel has once."""
    if not isinstance(loop, t.For) or loop not in plan.kernel.walk():
        return None
    if any(isinstance(op, t.Shared | a.Mbarriers) for op in loop.walk()):
        return None
    for guard in dict.fromkeys(runs for _, runs in _inner(loop) if plan.bound.isdisjoint(runs.symbols)):
        holds = plan.predicate(guard)
        fails = plan.cases.negate(holds)
        for one, other in ((holds, fails), (fails, holds)):
            if plan.cases.implies(first, one) and plan.cases.implies(second, other):
                return Unswitched(loop, guard)
    return None


def in_branches(loop: t.For, guard: Expr) -> t.If:
    """The loop where the condition of ``unswitched`` holds, and what is left of it where it does not."""
    then, otherwise = loop.clone(), loop.clone()
    for inner, runs in list(_inner(otherwise)):
        if runs == guard:
            inner.detach()
    return t.If(guard, *(Region(Block([each])) for each in (then, otherwise)))


def _inner(loop: t.For) -> Iterator[tuple[t.For, Expr]]:
    """The loops in another one, each with the condition under which it makes an iteration."""
    return ((op, op.begin.expr < op.end.expr) for op in loop.walk() if isinstance(op, t.For) and op is not loop)
