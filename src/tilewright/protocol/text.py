"""Protocols as text, and back: the notation reads as Python and is parsed with ``ast``, never executed.

protocol("copy", cluster=1, registers_per_thread=168)
symbol("kt", least=0)
buffer("a", "shared", 65536, offset=0)
mbarrier("full", slots=4, count=1)
with role("producer", 32):
    for k in range(0, kt, 1):
        elected(Wait(Slot("full", k % 4), parity=k // 4 % 2))

With pipelines the ops are on uses: ``ab[k]`` is use ``k`` of a pipeline, the stage of use ``k`` of its buffer, or of an
array of its mbarriers, as the op takes one or the other; ``a[k, 0:128]`` are bytes of a stage. Read, and not written:
``range(end)``, a buffer's name for all its bytes, a buffer without an offset, which lies behind those of its space.
Of an mbarrier that no pipeline declares ``full[i]`` is slot ``i``. A word of a counter in global memory is ``done[0]``;
the value of a ticket is the name of its buffer.

buffer("a", "shared", 65536)
pipeline("ab", 4, data=("a",))
with role("producer", 32):
    for k in range(kt):
        elected(producer_acquire(ab[k]))
        elected(producer_commit(ab[k], 16384))
        elected(TmaLoad(a[k], ab_full[k]))
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, replace
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, NoReturn, cast, get_args, get_origin, get_type_hints

from tilewright.base.expr import Const, Expr, ExprError, marked, parse, unmarked
from tilewright.diag import fail, type_shown
from tilewright.protocol import ops
from tilewright.protocol.model import (
    Buffer,
    By,
    GlobalCounter,
    If,
    Loop,
    MbarrierArray,
    Node,
    Pipeline,
    Protocol,
    Role,
    Step,
    Symbol,
)
from tilewright.protocol.well_formed import require_valid

_INDENT = "    "
_EXPR_FIELDS = frozenset(("begin", "cta", "index", "parity", "id", "by", "use", "least"))
_GRAINS = frozenset(by.value for by in By)
_HEAD = {"name": str, "cluster": int, "registers_per_thread": int, "grid": int, "resident": int, "target": str}
MAX_NESTING = 32
"""Loops and branches within one another."""

MAX_INTEGER = 1 << 62
"""The largest integer of a protocol: they are bytes, counts and threads."""

_PARTS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (ops.Slot, ops.Region, ops.Word, ops.PipelineUse, ops.StageSlot, ops.StageRegion)
}
_OPS: dict[str, type[Any]] = {
    **{kind.__name__: kind for kind in ops.ALL},
    **{kind.word: kind for kind in ops.OF_PIPELINES},
}


def to_text(protocol: Protocol) -> str:
    """Text that ``from_text`` reads back to an equal protocol."""
    return "\n".join(_lines(protocol)) + "\n"


def _lines(p: Protocol) -> Iterator[str]:
    head = f'protocol("{p.name}", cluster={p.cluster}, registers_per_thread={p.registers_per_thread}'
    head += f", grid={p.grid}, resident={p.resident}" if (p.grid, p.resident) != (1, 1) else ""
    yield f'{head}, target="{p.target}")' if p.target else f"{head})"
    for s in p.symbols:
        yield "symbol" + _value(s).removeprefix("Symbol")
    for b in p.buffers:
        rest = f", swizzle={b.swizzle})" if b.swizzle else ")"
        yield f'buffer("{b.name}", "{b.space.value}", {b.size}, offset={b.offset}, initialised={b.initialised}{rest}'
    for b in p.barriers:
        yield "mbarrier" + _value(b).removeprefix("MbarrierArray")
    for counter in p.global_counters:
        yield "counter" + _value(counter).removeprefix("GlobalCounter")
    for pipeline in p.pipelines:
        yield "pipeline" + _value(pipeline).removeprefix("Pipeline")
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
        case ops.Word(name, index):
            return f"{name}[{index}]"
        case (
            ops.PipelineUse(name, use)
            | ops.StageSlot(name, ops.ZERO, None, use)
            | ops.StageRegion(name, ops.ZERO, 0, None, use)
        ):
            return f"{name}[{use}]"
        case ops.StageRegion(name, Const(begin), size, None, use) if size:
            return f"{name}[{use}, {begin}:{begin + size}]"
        case ops.PipelineOp():
            return f"{value.word}({', '.join(_arguments(value))})"
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
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        _unreadable(type_shown(text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the words of a text that is no program
            tree = ast.parse(marked(text))
        protocol = _Reader().protocol(tree)
    except SyntaxError as e:
        _unreadable(f"line {e.lineno}: {e.msg}")
    except (ValueError, RecursionError, MemoryError) as e:  # bytes that are no text; nested too deeply for the parser
        _unreadable(str(e)[:80] or type(e).__name__)
    require_valid(protocol)
    return protocol


class _Reader:
    """One pass over the syntax tree."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.barriers: set[str] = set()

    def protocol(self, tree: ast.Module) -> Protocol:
        head: dict[str, Any] = {}
        symbols: list[Symbol] = []
        buffers: list[Buffer] = []
        barriers: list[MbarrierArray] = []
        pipelines: list[Pipeline] = []
        counters: list[GlobalCounter] = []
        roles: list[Role] = []
        for node in tree.body:
            match node:
                case ast.Expr(value=ast.Call(func=ast.Name(id="protocol"), args=[name], keywords=keywords)):
                    head = {"name": _literal(name)} | {str(k.arg): _literal(k.value) for k in keywords}
                    if not (head.keys() <= _HEAD.keys() and all(_fits(_HEAD[k], v) for k, v in head.items())):
                        _bad(node)
                case ast.Expr(value=ast.Call(func=ast.Name(id="buffer")) as call):
                    buffers.append(self.buffer(call, buffers))
                case ast.Expr(value=ast.Call(func=ast.Name(id="symbol")) as call):
                    symbols.append(self.call(call, Symbol))
                case ast.Expr(value=ast.Call(func=ast.Name(id="mbarrier")) as call):
                    barriers.append(self.call(call, MbarrierArray))
                    self.barriers.add(barriers[-1].name)
                case ast.Expr(value=ast.Call(func=ast.Name(id="counter")) as call):
                    counters.append(self.call(call, GlobalCounter))
                case ast.Expr(value=ast.Call(func=ast.Name(id="pipeline")) as call):
                    pipelines.append(self.call(call, Pipeline))
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=body):
                    roles.append(self.role(call, body))
                case _:
                    _bad(node)
        if not head:
            _unreadable("no protocol(...) line")
        return Protocol(
            roles=tuple(roles), buffers=tuple(buffers), barriers=tuple(barriers), symbols=tuple(symbols),
            pipelines=tuple(pipelines), global_counters=tuple(counters), **head,
        )  # fmt: skip

    def buffer(self, call: ast.Call, before: list[Buffer]) -> Buffer:
        """A buffer, behind those of its space unless its offset is given."""
        found: Buffer = self.call(call, Buffer)
        if len(call.args) < 4 and all(k.arg != "offset" for k in call.keywords):
            found = replace(found, offset=max((b.offset + b.size for b in before if b.space is found.space), default=0))
        self.buffers[found.name] = found
        return found

    def role(self, call: ast.Call, body: list[ast.stmt]) -> Role:
        counters: list[tuple[str, int]] = []
        while body and isinstance(first := body[0], ast.Assign) and isinstance(first.targets[0], ast.Name):
            counters.append((unmarked(first.targets[0].id), _literal(first.value)))
            body = body[1:]
        given = {str(k.arg): _literal(k.value) for k in call.keywords}
        if (
            not isinstance(call.func, ast.Name)
            or call.func.id != "role"
            or len(call.args) != 2
            or given.keys() - {"ctas"}
        ):
            _bad(call)
        name, threads = map(_literal, call.args)
        return _checked(Role(name, threads, self.nodes(body, 0), tuple(counters), given.get("ctas")), call)

    def nodes(self, body: list[ast.stmt], depth: int) -> tuple[Node, ...]:
        if depth > MAX_NESTING:
            _unreadable(f"line {body[0].lineno}: more than {MAX_NESTING} loops and branches within one another")
        return tuple(self.node(s, depth + 1) for s in body if not isinstance(s, ast.Pass))

    def node(self, node: ast.stmt, depth: int) -> Node:
        match node:
            case ast.For(
                target=ast.Name(id=counter),
                iter=ast.Call(func=ast.Name(id="range"), args=args, keywords=[]),
                body=body,
                orelse=[],
            ) if 1 <= len(args) <= 3:
                begin, end = (ops.ZERO, _expr(args[0])) if len(args) == 1 else map(_expr, args[:2])
                step = _literal(args[2]) if len(args) > 2 else 1
                return _checked(Loop(unmarked(counter), begin, end, step, self.nodes(body, depth)), node)
            case ast.If(test=test, body=body, orelse=orelse):
                return If(_expr(test), self.nodes(body, depth), self.nodes(orelse, depth))
            case ast.AugAssign(target=ast.Name(id=counter), op=ast.Add(), value=by):
                return Step(ops.Advance(unmarked(counter), _expr(by)))
            case ast.Expr(value=ast.Call(func=ast.Name(id=by), args=[ast.Call() as op], keywords=[])) if by in _GRAINS:
                return Step(self.op(op, _OPS), By(by))
            case _:
                return _bad(node)

    def op(self, call: ast.Call, kinds: dict[str, type[Any]]) -> Any:
        if not isinstance(call.func, ast.Name) or call.func.id not in kinds:
            _bad(call)
        return self.call(call, kinds[call.func.id])

    def call(self, call: ast.Call, kind: type[Any]) -> Any:
        names = [f.name for f in fields(kind)]
        given = dict(zip(names, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
        needed = {f.name for f in fields(kind) if not _has_default(f)}
        if not needed <= given.keys() <= set(names) or len(call.args) > len(names):
            _bad(call)
        return _checked(kind(**{name: self.value(kind, name, node) for name, node in given.items()}), call)

    def value(self, kind: type[Any], name: str, node: ast.expr) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=part)) if part in _PARTS:
                return self.op(node, _PARTS)
            case ast.Subscript(value=ast.Name(id=named), slice=index) if self.is_slot(kind, name, unmarked(named)):
                return ops.Slot(unmarked(named), _expr(index))
            case ast.Subscript(value=ast.Name(id=named), slice=index):
                return _checked(_of_use(kind, name, unmarked(named), index), node)
            case ast.Name(id=named) if "Region" in str(_hints(kind).get(name)) and unmarked(named) in self.buffers:
                return ops.Region(unmarked(named), ops.ZERO, self.buffers[unmarked(named)].size)
            case ast.Tuple(elts=elts):
                return tuple(self.value(kind, "cta" if name == "ctas" else name, e) for e in elts)
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=str(text)) if (named := _enum(kind, name)) is not None:
                words = [str(each.value) for each in named]
                if text not in words:
                    _unreadable(f"line {node.lineno}: {name}={text!r}, which is none of {', '.join(words)}")
                return named(text)
            case _:
                return _expr(node) if name in _EXPR_FIELDS and _hints(kind).get(name) is not int else _literal(node)

    def is_slot(self, kind: type[Any], name: str, named: str) -> bool:
        """Whether ``named[i]`` is slot ``i`` of an mbarrier that no pipeline declares."""
        return named in self.barriers and "Slot" in str(_hints(kind).get(name))


def _of_use(kind: type[Any], name: str, named: str, index: ast.expr) -> Any:
    """``named[use]`` as the field of an op takes it: a use of a pipeline, or a stage of an array or of a buffer."""
    hint = str(_hints(kind).get(name))
    match index:
        case ast.Tuple(elts=[use, ast.Slice(lower=ast.expr() as begin, upper=ast.expr() as end, step=None)]):
            first = _literal(begin)
            return ops.StageRegion(named, _expr(begin), _literal(end) - first, use=_expr(use))
        case ast.Tuple() | ast.Slice():
            _bad(index)
        case _ if "Region" in hint:
            return ops.StageRegion(named, ops.ZERO, use=_expr(index))
        case _ if hint == str(ops.Word):
            return ops.Word(named, _expr(index))
        case _:
            return ops.StageSlot(named, use=_expr(index)) if "Slot" in hint else ops.PipelineUse(named, _expr(index))


def _enum(kind: type[Any], name: str) -> type[Enum] | None:
    hint = _hints(kind).get(name)
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else None


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _checked(value: Any, node: ast.AST) -> Any:
    """A value whose fields are of their types."""
    hints = _hints(cast(type[Any], type(value)))
    for f in fields(value):
        if f.name != "body" and not _fits(hints[f.name], getattr(value, f.name)):
            _bad(node)
    return value


def _fits(hint: Any, value: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_fits(h, value) for h in get_args(hint))
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple):
            return False
        items = cast(tuple[Any, ...], value)
        if parts[-1] is Ellipsis:
            return all(_fits(parts[0], x) for x in items)
        return len(items) == len(parts) and all(map(_fits, parts, items))
    if hint is int:
        return type(value) is int and abs(value) <= MAX_INTEGER
    return isinstance(value, hint)


def _unreadable(found: str) -> NoReturn:
    fail("MBR007", found=found, required="protocol(...), its declarations, and steps by the names of protocol.ops")


def _expr(node: ast.expr) -> Expr:
    try:
        return parse(ast.unparse(node))
    except ExprError as e:
        _unreadable(f"line {node.lineno}: {e}")


def _literal(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        _bad(node)
    return unmarked(value) if isinstance(value, str) else value


def _bad(node: ast.AST) -> NoReturn:
    _unreadable(f"line {getattr(node, 'lineno', '?')}: {unmarked(ast.unparse(node))[:80]}")
