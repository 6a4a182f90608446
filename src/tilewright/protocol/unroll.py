"""Loops over groups of iterations that other roles take one by one, as loops over all of them.

    producer   for k in range(0, 2*n): fill stage k % 4
    even       for j in range(0, n):   stage (2*j) % 4, lap j // 2 % 2
    odd        for j in range(0, n):   stage (2*j + 1) % 4, lap j // 2 % 2

A loop of ``n`` iterations beside one of ``w * n`` is stretched: its iteration ``j`` becomes ``w*j .. w*j + w - 1``, and
each op goes to the one whose stage it uses, or stays with the op before it. Where an op stands is a label of the
product graph, so any place that keeps the role's own order will do. With ``k`` the new counter and ``r`` the iteration
of the group, ``w*j`` is ``k - r``, and ``j // d`` is ``(k - r + o) // (w*d)`` for any ``o`` below ``w``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import lcm

from tilewright.base.expr import Compare, Const, Expr, FloorDiv, Mod, Sum, Sym, sym
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Step, steps, with_bodies
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.protocol.rewrite import mapped

MAX_GROUP = 4


def stretched(roles: Sequence[list[Step | Loop]]) -> tuple[list[list[Step | Loop]], dict[str, int]]:
    """The roles' steps and loops with loops of one count made equally long, and per count (as text) the number that
    its iterations are a multiple of, where a loop was stretched."""
    factors: dict[str, set[int]] = {}
    for items in roles:
        for n in items:
            if isinstance(n, Loop):
                factor, unit = counted(n.end)
                factors.setdefault(unit.text, set()).add(factor)
    longest = {unit: lcm(*found) for unit, found in factors.items() if len(found) > 1}
    if not longest:
        return list(roles), {}
    groups: dict[str, int] = {}

    def grown(n: Step | Loop) -> Step | Loop:
        if not isinstance(n, Loop):
            return n
        factor, unit = counted(n.end)
        width = longest.get(unit.text, factor) // factor
        if width == 1:
            return n
        if width > MAX_GROUP:
            raise OutsideFragment(f"loops to {n.end} and to {width} times as much")
        groups[(n.end * width).text] = longest[unit.text]
        return _stretched(n, width)

    return [[grown(n) for n in items] for items in roles], groups


def counted(end: Expr) -> tuple[int, Expr]:
    """A count as a multiple of another one."""
    match end:
        case Sum(0, ((unit, factor),)) if factor > 1:
            return factor, unit
        case _:
            return 1, end


def _stretched(loop: Loop, width: int) -> Loop:
    if loop.begin.constant != 0 or loop.step != 1:
        raise OutsideFragment(f"a loop to {loop.end} beside longer ones that does not begin at 0")
    parts: list[list[Node]] = [[] for _ in range(width)]
    iteration = 0
    for node in loop.body:
        iteration = max([iteration, *(o % width for o in _stages(node, loop.counter, width))])
        parts[iteration].append(_moved(node, loop.counter, width, iteration))
    at = sym(loop.counter) % width
    body = tuple(If(at.eq(r), tuple(part)) for r, part in enumerate(parts) if part)
    return replace(loop, end=loop.end * width, body=body)


def _stages(node: Node, counter: str, width: int) -> Iterator[int]:
    """The offsets ``o`` of all ``w*j + o`` in a node."""
    return (o for step in steps((node,)) for e in step.op.expressions for o in _offsets(e, counter, width))


def _offsets(e: Expr, counter: str, width: int) -> Iterator[int]:
    match e:
        case Sum(offset, ((Sym(name), factor),)) if name == counter and factor == width:
            yield offset
        case _:
            if counter in e.symbols and isinstance(e, Sym | Sum) and width > 1 and _plain(e, counter) == width:
                yield 0
            for child in e.children:
                yield from _offsets(child, counter, width)


def _plain(e: Expr, counter: str) -> int:
    """The factor of the counter in a sum."""
    match e:
        case Sym(name):
            return int(name == counter)
        case Sum(_, terms):
            return next((factor for term, factor in terms if term == sym(counter)), 0)
        case _:
            return 0


def _moved(node: Node, counter: str, width: int, iteration: int) -> Node:
    match with_bodies(node, lambda body: tuple(_moved(n, counter, width, iteration) for n in body)):
        case Step(op) as step:
            own = next(iter(_slot_offsets(op, counter, width)), iteration) % width
            return replace(step, op=mapped(op, lambda e: _unrolled(e, counter, width, iteration, own)))
        case Loop() as loop:
            begin, end = (_unrolled(e, counter, width, iteration, iteration) for e in (loop.begin, loop.end))
            return replace(loop, begin=begin, end=end)
        case If() as branch:
            return replace(branch, condition=_condition(branch.condition, counter, width, iteration))


def _slot_offsets(op: ops.Op, counter: str, width: int) -> Iterator[int]:
    """The stage that an op's barrier slot is of, which its parity has to be of, too."""
    slot = getattr(op, "bar", None)
    if isinstance(slot, ops.Slot):
        yield from _offsets(slot.index, counter, width)


def _unrolled(e: Expr, counter: str, width: int, iteration: int, own: int) -> Expr:
    """An expression over the loop's counter as one over the stretched loop's."""
    if counter not in e.symbols:
        return e
    match e:
        case Sum(offset, terms):
            whole = _plain(e, counter)
            if whole % width:
                return e.substitute({counter: (sym(counter) - iteration + own) // width})
            rest = sum(
                (_unrolled(t, counter, width, iteration, own) * f for t, f in terms if t != sym(counter)), Const(0)
            )
            return (sym(counter) - iteration) * (whole // width) + rest + offset
        case FloorDiv(Sym() as numerator, Const(d)) | FloorDiv(Sum(_, ((Sym(), 1),)) as numerator, Const(d)):
            offset = numerator.offset if isinstance(numerator, Sum) else 0
            return (sym(counter) - iteration + offset * width + own) // (width * d)
        case FloorDiv(numerator, Const(d)) if d:
            return _unrolled(numerator, counter, width, iteration, own) // d
        case Mod(numerator, Const(m)) if m:
            return _unrolled(numerator, counter, width, iteration, own) % m
        case Sym():
            return (sym(counter) - iteration + own) // width
        case _:
            raise OutsideFragment(f"{e} over a counter of groups")


def _condition(e: Expr, counter: str, width: int, iteration: int) -> Expr:
    """A guard on the loop's counter, compared with constants alone."""
    if counter not in e.symbols:
        return e
    match e:
        case Compare(op, lhs, rhs):
            difference = lhs - rhs
            match difference:
                case Sym() | Sum(_, ((Sym(), 1 | -1),)) if op in ("<", "<=", "==", "!="):
                    sign = 1 if isinstance(difference, Sym) else difference.terms[0][1]
                    offset = difference.offset if isinstance(difference, Sum) else 0
                    value = (sym(counter) - iteration) * sign + offset * width
                    zero = Const(0)
                    return {"<": value < zero, "<=": value <= zero, "==": value.eq(0), "!=": value.ne(0)}[op]
                case _:
                    raise OutsideFragment(f"a guard on {e}")
        case _:
            raise OutsideFragment(f"a guard on {e}")
