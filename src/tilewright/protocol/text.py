"""Protocols as text, and back: the notation reads as Python and is parsed with ``ast``, never executed.

protocol("copy", cluster=1, registers_per_thread=168)
symbol("kt", least=0)
buffer("a", "shared", 65536, offset=0)
mbarrier("full", slots=4, count=1)
with role("producer", 32):
    for k in range(0, kt, 1):
        elected(Wait(Slot("full", k % 4), parity=k // 4 % 2))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import Any, NoReturn, cast

from tilewright.base.expr import Expr, ExprError, parse
from tilewright.diag import fail
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import Barrier, Buffer, By, If, Loop, Node, Protocol, Role, Step, Symbol
from tilewright.protocol.validate import require_valid

_INDENT = "    "
_EXPR_FIELDS = frozenset(("begin", "cta", "index", "parity", "id", "by"))
_ENUMS: dict[str, type[Enum]] = {"scope": ops.Scope, "space": ops.FenceSpace}
_GRAINS = frozenset(by.value for by in By)
_TYPES: dict[str, type[Any]] = {
    name: value for name, value in vars(ops).items() if isinstance(value, type) and value.__module__ == ops.__name__
}


def to_text(protocol: Protocol) -> str:
    """Text that ``from_text`` reads back to an equal protocol."""
    return "\n".join(_lines(protocol)) + "\n"


def _lines(p: Protocol) -> Iterator[str]:
    yield f'protocol("{p.name}", cluster={p.cluster}, registers_per_thread={p.registers_per_thread})'
    for s in p.symbols:
        yield "symbol" + _value(s).removeprefix("Symbol")
    for b in p.buffers:
        rest = f", swizzle={b.swizzle})" if b.swizzle else ")"
        yield f'buffer("{b.name}", "{b.space.value}", {b.size}, offset={b.offset}, initialised={b.initialised}{rest}'
    for b in p.barriers:
        yield "mbarrier" + _value(b).removeprefix("Barrier")
    for r in p.roles:
        ctas = "" if r.ctas is None else f", ctas={r.ctas!r}"
        yield f'with role("{r.name}", {r.threads}{ctas}):'
        for name, start in r.counters:
            yield f"{_INDENT}{name} = {start}"
        yield from _body(r.body, _INDENT)


def _body(nodes: tuple[Node, ...], indent: str) -> Iterator[str]:
    if not nodes:
        yield f"{indent}pass"
    for node in nodes:
        match node:
            case Step(op=ops.Advance() as op):
                yield f"{indent}{op.counter} += {op.by}"
            case Step():
                yield f"{indent}{node.by.value}({_value(node.op)})"
            case Loop():
                yield f"{indent}for {node.counter} in range({node.begin}, {node.end}, {node.step}):"
                yield from _body(node.body, indent + _INDENT)
            case If():
                yield f"{indent}if {node.condition}:"
                yield from _body(node.then, indent + _INDENT)
                if node.otherwise:
                    yield f"{indent}else:"
                    yield from _body(node.otherwise, indent + _INDENT)


def _value(value: Any) -> str:
    match value:
        case Expr():
            return str(value)
        case Enum():
            return f'"{value.value}"'
        case str():
            return f'"{value}"'
        case tuple():
            items = [_value(v) for v in cast(tuple[Any, ...], value)]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        case None | bool() | int():
            return repr(value)
        case _:
            return f"{type(value).__name__}({', '.join(_arguments(value))})"


def _arguments(value: Any) -> Iterator[str]:
    """Leading required fields by position, the others by name unless they have their default."""
    for f in fields(value):
        item = getattr(value, f.name)
        if not _has_default(f):
            yield _value(item)
        elif item != f.default:
            yield f"{f.name}={_value(item)}"


def _has_default(f: Field[Any]) -> bool:
    return f.default is not MISSING or f.default_factory is not MISSING


def from_text(text: str) -> Protocol:
    """Reads the notation of ``to_text``; raises code MBR007, and MBR001 to MBR006 for bad form."""
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        _unreadable(f"line {e.lineno}: {e.msg}")
    return _Reader().protocol(tree)


class _Reader:
    """One pass over the syntax tree."""

    def protocol(self, tree: ast.Module) -> Protocol:
        head: dict[str, Any] = {}
        symbols: list[Symbol] = []
        buffers: list[Buffer] = []
        barriers: list[Barrier] = []
        roles: list[Role] = []
        for node in tree.body:
            match node:
                case ast.Expr(value=ast.Call(func=ast.Name(id="protocol"), args=[name], keywords=keywords)):
                    head = {"name": _literal(name)} | {str(k.arg): _literal(k.value) for k in keywords}
                case ast.Expr(value=ast.Call(func=ast.Name(id="buffer"), args=[name, space, size], keywords=keywords)):
                    rest = {str(k.arg): _literal(k.value) for k in keywords}
                    buffers.append(Buffer(_literal(name), Space(_literal(space)), _literal(size), **rest))
                case ast.Expr(value=ast.Call(func=ast.Name(id="symbol")) as call):
                    symbols.append(self.call(call, Symbol))
                case ast.Expr(value=ast.Call(func=ast.Name(id="mbarrier")) as call):
                    barriers.append(self.call(call, Barrier))
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=body):
                    roles.append(self.role(call, body))
                case _:
                    _bad(node)
        if not head:
            _unreadable("no protocol(...) line")
        value = Protocol(
            roles=tuple(roles), buffers=tuple(buffers), barriers=tuple(barriers), symbols=tuple(symbols), **head
        )
        require_valid(value)
        return value

    def role(self, call: ast.Call, body: list[ast.stmt]) -> Role:
        counters: list[tuple[str, int]] = []
        while body and isinstance(first := body[0], ast.Assign) and isinstance(first.targets[0], ast.Name):
            counters.append((first.targets[0].id, _literal(first.value)))
            body = body[1:]
        ctas = next((_literal(k.value) for k in call.keywords if k.arg == "ctas"), None)
        if len(call.args) != 2:
            _bad(call)
        return Role(_literal(call.args[0]), _literal(call.args[1]), self.nodes(body), tuple(counters), ctas)

    def nodes(self, body: list[ast.stmt]) -> tuple[Node, ...]:
        return tuple(self.node(s) for s in body if not isinstance(s, ast.Pass))

    def node(self, node: ast.stmt) -> Node:
        match node:
            case ast.For(target=ast.Name(id=counter), iter=ast.Call(args=[begin, end, step]), body=body):
                return Loop(counter, _expr(begin), _expr(end), _literal(step), self.nodes(body))
            case ast.If(test=test, body=body, orelse=orelse):
                return If(_expr(test), self.nodes(body), self.nodes(orelse))
            case ast.AugAssign(target=ast.Name(id=counter), value=by):
                return Step(ops.Advance(counter, _expr(by)))
            case ast.Expr(value=ast.Call(func=ast.Name(id=by), args=[ast.Call() as op])) if by in _GRAINS:
                return Step(self.op(op), By(by))
            case _:
                return _bad(node)

    def op(self, call: ast.Call) -> Any:
        if not isinstance(call.func, ast.Name) or call.func.id not in _TYPES:
            _bad(call)
        return self.call(call, _TYPES[call.func.id])

    def call(self, call: ast.Call, kind: type[Any]) -> Any:
        names = [f.name for f in fields(kind)]
        given = dict(zip(names, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
        if not set(given) <= set(names):
            _bad(call)
        try:
            return kind(**{name: self.value(name, node) for name, node in given.items()})
        except TypeError:
            _bad(call)

    def value(self, name: str, node: ast.expr) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=kind)) if kind in _TYPES:
                return self.op(node)
            case ast.Tuple(elts=elts):
                return tuple(self.value("cta" if name == "ctas" else name, e) for e in elts)
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=str(text)) if name in _ENUMS:
                return _ENUMS[name](text)
            case _:
                return _expr(node) if name in _EXPR_FIELDS else _literal(node)


def _unreadable(found: str) -> NoReturn:
    fail("MBR007", found=found, required="protocol(...), its declarations, and steps in the words of protocol.ops")


def _expr(node: ast.expr) -> Expr:
    try:
        return parse(ast.unparse(node))
    except ExprError as e:
        _unreadable(f"line {node.lineno}: {e}")


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        _bad(node)


def _bad(node: ast.AST) -> NoReturn:
    _unreadable(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)[:80]}")
