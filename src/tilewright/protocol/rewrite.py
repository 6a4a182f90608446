"""The expressions inside ops and nodes: found, and replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, cast

from tilewright.base.expr import Expr, ExprLike, expr
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Step
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
    out = frozenset[str]()
    for node in nodes:
        match node:
            case Step():
                out |= node.op.symbols | ({node.op.counter} if isinstance(node.op, ops.Advance) else frozenset[str]())
            case Loop():
                out |= node.begin.symbols | node.end.symbols | {node.counter} | used(node.body)
            case If():
                out |= node.condition.symbols | used(node.then + node.otherwise)
    return out


def substituted(nodes: tuple[Node, ...], name: str, value: ExprLike) -> tuple[Node, ...]:
    """The nodes with ``value`` for a symbol."""

    def change(e: Expr) -> Expr:
        return e.substitute({name: expr(value)}) if name in e.symbols else e

    out: list[Node] = []
    for node in nodes:
        match node:
            case Step():
                op = mapped(node.op, change) if name in node.op.symbols else node.op
                out.append(node if op is node.op else replace(node, op=op))
            case Loop():
                body = substituted(node.body, name, value)
                out.append(replace(node, begin=change(node.begin), end=change(node.end), body=body))
            case If():
                then = substituted(node.then, name, value)
                otherwise = substituted(node.otherwise, name, value)
                out.append(If(change(node.condition), then, otherwise, node.where))
    return tuple(out)
