"""The expressions inside ops and nodes: found, and replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, cast

from tilewright.base.expr import Expr, ExprLike, expr
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Step


def expressions_of(op: ops.Op) -> list[Expr]:
    """The expressions in an op's operands."""
    out: list[Expr] = []

    def visit(value: object) -> None:
        match value:
            case Expr():
                out.append(value)
            case ops.Slot():
                visit((value.index, value.cta))
            case ops.Region():
                visit((value.begin, value.cta))
            case tuple():
                for item in cast(tuple[object, ...], value):
                    visit(item)
            case _:
                pass

    visit(op.values)
    return out


def mapped(item: Any, change: Callable[[Expr], Expr]) -> Any:
    """An op (or a part of one) with every expression replaced; itself where nothing is."""
    if isinstance(item, Expr):
        return change(item)
    if isinstance(item, tuple):
        parts = cast(tuple[Any, ...], item)
        found = tuple(mapped(x, change) for x in parts)
        return found if any(a is not b for a, b in zip(found, parts, strict=True)) else parts
    if not hasattr(item, "__dataclass_fields__") or isinstance(item, type):
        return item
    changed: dict[str, Any] = {}
    for name in item.__dataclass_fields__:
        old = getattr(item, name)
        new = mapped(old, change)
        if new is not old:
            changed[name] = new
    return replace(item, **changed) if changed else item


Operand: TypeAlias = ops.Slot | ops.Region


def with_operands(op: ops.Op, change: Callable[[Operand], Operand]) -> ops.Op:
    """The op with its slots and regions replaced; itself where nothing is."""

    def new(value: object) -> object:
        if isinstance(value, ops.Slot | ops.Region):
            return change(value)
        if isinstance(value, tuple):
            parts = cast(tuple[object, ...], value)
            found = tuple(map(new, parts))
            return found if any(a is not b for a, b in zip(found, parts, strict=True)) else parts
        return value

    fields: dict[str, Any] = cast(Any, op).__dataclass_fields__
    changed = {name: found for name in fields if (found := new(old := getattr(op, name))) is not old}
    return replace(cast(Any, op), **changed) if changed else op


def symbols_of(step: Step) -> frozenset[str]:
    """The symbols that a step's expressions use."""
    return frozenset[str]().union(*(e.symbols for e in expressions_of(step.op)))


def used(nodes: tuple[Node, ...]) -> frozenset[str]:
    """All names in nodes: symbols of expressions, counters of loops, counters advanced."""
    out = frozenset[str]()
    for node in nodes:
        match node:
            case Step():
                out |= symbols_of(node) | ({node.op.counter} if isinstance(node.op, ops.Advance) else frozenset[str]())
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
                op = mapped(node.op, change)
                out.append(node if op is node.op else replace(node, op=op))
            case Loop():
                body = substituted(node.body, name, value)
                out.append(replace(node, begin=change(node.begin), end=change(node.end), body=body))
            case If():
                then = substituted(node.then, name, value)
                otherwise = substituted(node.otherwise, name, value)
                out.append(If(change(node.condition), then, otherwise, node.where))
    return tuple(out)
