"""The expressions inside ops and nodes: found, and replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, cast

from tilewright.base.expr import Expr, ExprLike, expr
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Step, control_of, walk, with_bodies
from tilewright.protocol.ops.base import names_of

Operand: TypeAlias = ops.Slot | ops.Region


def mapped(op: ops.Op, change: Callable[[Expr], Expr]) -> ops.Op:
    """The op with every expression replaced; itself where nothing is."""

    def new(value: object) -> object:
        match value:
            case Expr():
                return change(value)
            case ops.Slot(_, index, cta):
                return replace(value, index=change(index), cta=None if cta is None else change(cta))
            case ops.Word(_, index):
                return replace(value, index=change(index))
            case ops.Region(_, begin, _, cta):
                return replace(value, begin=change(begin), cta=None if cta is None else change(cta))
            case _:
                return value

    return op if all(change(e) is e for e in op.expressions) else _replaced(op, new)


def with_operands(op: ops.Op, change: Callable[[Operand], Operand]) -> ops.Op:
    """The op with its slots and regions replaced; itself where nothing is."""
    return _replaced(op, lambda value: change(value) if isinstance(value, ops.Slot | ops.Region) else value)


def _replaced(op: ops.Op, new: Callable[[object], object]) -> ops.Op:
    """The op with its operands replaced, those in tuples one by one."""
    changed: dict[str, Any] = {}
    for name, old in zip(names_of(type(op)), op.values, strict=True):
        if isinstance(old, tuple):
            parts = cast(tuple[object, ...], old)
            found = tuple(map(new, parts))
            if any(a is not b for a, b in zip(found, parts, strict=True)):
                changed[name] = found
        elif (value := new(old)) is not old:
            changed[name] = value
    return replace(cast(Any, op), **changed) if changed else op


def used(nodes: tuple[Node, ...]) -> frozenset[str]:
    """All names in nodes: symbols of expressions, counters of loops, counters advanced."""
    out: set[str] = set()
    for node in walk(nodes):
        out.update(*(e.symbols for e in control_of(node)))
        match node:
            case Step(op):
                out |= op.symbols | ({op.counter} if isinstance(op, ops.Advance) else frozenset[str]())
            case Loop(counter):
                out.add(counter)
            case If():
                pass
    return frozenset(out)


def substituted(nodes: tuple[Node, ...], name: str, value: ExprLike) -> tuple[Node, ...]:
    """The nodes with ``value`` for a symbol."""
    return with_expressions(nodes, lambda e: e.substitute({name: expr(value)}) if name in e.symbols else e)


def with_expressions(nodes: tuple[Node, ...], change: Callable[[Expr], Expr]) -> tuple[Node, ...]:
    """The nodes with every expression replaced."""

    def new(node: Node) -> Node:
        if isinstance(node, Step):
            op = mapped(node.op, change)
            return node if op is node.op else replace(node, op=op)
        match with_bodies(node, lambda body: with_expressions(body, change)):
            case Loop() as loop:
                return replace(loop, begin=change(loop.begin), end=change(loop.end))
            case If() as branch:
                return replace(branch, condition=change(branch.condition))
            case step:
                return step

    return tuple(map(new, nodes))
