"""Reading expression text: a closed grammar over Python's syntax tree; nothing is ever executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from itertools import accumulate

from tilewright.base.expr.nodes import (
    FALSE,
    OWN,
    TRUE,
    Const,
    Expr,
    ExprError,
    Sym,
    all_of,
    any_of,
    maximum,
    minimum,
    negate,
    xor,
)

_BINARY: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
}
_COMPARISON: dict[type[ast.cmpop], Callable[[Expr, Expr], Expr]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a.eq(b),
    ast.NotEq: lambda a, b: a.ne(b),
}
_CALLS: dict[str, Callable[..., Expr]] = {
    "min": minimum,
    "max": maximum,
    "xor": lambda *args: reduce(xor, args),
}
MAX_TEXT = 100_000
_MAX_BITS = 128
"""Limit of a number's size. Sizes and addresses have 64 bits, and Python prints no integer of more than 4,300
digits."""
_MARK = "\N{LATIN LETTER BILABIAL CLICK}"
"""Stands for ``$`` while Python's parser reads; names are ASCII, so it occurs in none."""
_HELD = "\N{LATIN LETTER PHARYNGEAL VOICED FRICATIVE}"
"""Begins the name of an expression that was read before the text around it."""
_MAX_DEPTH = 32
_PARENTHESIS = re.compile(r"[()]")
_WORD = re.compile(r"[A-Za-z_]\w*\Z")
_OWN_NAME = re.compile(r"\$(?=[A-Za-z_])")


def marked(text: str) -> str:
    """``text`` with ``$`` replaced by a letter that Python's parser accepts in names."""
    return _OWN_NAME.sub(_MARK, text)


def unmarked(text: str) -> str:
    """The inverse of ``marked``."""
    return text.replace(_MARK, OWN)


def parse(text: str, parts: Mapping[str, Expr] | None = None) -> Expr:
    """Read the text form; raises ``ExprError`` with the offending part for anything outside the language. Symbols that
    ``parts`` name stand for these expressions."""
    if len(text) > MAX_TEXT:
        raise ExprError(f"expression text of {len(text)} characters; at most {MAX_TEXT} are read")
    written = marked(text.strip())
    try:
        read = _read_by_parts(written) if parts is None else None
        if read is None:
            held = {marked(name): part for name, part in (parts or {}).items()}
            read = _from_ast(ast.parse(written, mode="eval").body, held)
        read.text  # noqa: B018 - what has no text, for its numbers are too long, is refused here
    except ExprError:
        raise
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ExprError(f"not an integer expression: {_shortened(text)} ({type(error).__name__})") from None
    return read


def _read_by_parts(text: str) -> Expr | None:
    """``text`` by its parenthesised parts, of which predicates of programs repeat many; None where that does not read
    it, so that what is refused is told of the whole."""
    depths = accumulate(1 if p == "(" else -1 for p in _PARENTHESIS.findall(text))
    if _HELD in text or not all(0 <= depth <= _MAX_DEPTH for depth in depths):
        return None
    try:
        return _part(text, 0)
    except (ExprError, SyntaxError, RecursionError, MemoryError, ValueError):
        return None


@lru_cache(4096)
def _part(text: str, depth: int) -> Expr:
    """``text`` whose parentheses below ``depth`` are read first: 1 of a function's call, 0 of others."""
    reduced: list[str] = []
    held: list[Expr] = []
    level = begin = end = 0
    for found in _PARENTHESIS.finditer(text):
        if found[0] == "(":
            if level == depth:
                begin = found.start()
            level += 1
            continue
        level -= 1
        if level == depth:
            word = _WORD.search(text, end, begin)
            if word is None or word[0] in ("and", "or", "not"):
                held.append(_part(text[begin + 1 : found.start()], 0))
            else:
                begin = word.start()
                held.append(_part(text[begin : found.end()], 1))
            reduced += (text[end:begin], f" {_HELD}{len(held) - 1} ")
            end = found.end()
    read = "".join(reduced) + text[end:]
    return _from_ast(ast.parse(read.lstrip(), mode="eval").body, {f"{_HELD}{i}": part for i, part in enumerate(held)})


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}..."


def _from_ast(node: ast.expr, held: Mapping[str, Expr]) -> Expr:
    def read(node: ast.expr) -> Expr:
        return _from_ast(node, held)

    match node:
        case ast.Constant(value=bool(value)):
            return TRUE if value else FALSE
        case ast.Constant(value=int(value)):
            if value.bit_length() > _MAX_BITS:
                raise ExprError(f"a number of {value.bit_length()} bits; at most {_MAX_BITS} are read")
            return Const(value)
        case ast.Name(id=name) if name in held:
            return held[name]
        case ast.Name(id=name):
            return Sym(unmarked(name))
        case ast.Attribute(value=base, attr=attr) if attr[0] != _HELD:
            return Sym(f"{read(base).text}.{attr}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](read(left), read(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -read(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return negate(read(operand))
        case ast.BoolOp(op=op, values=values):
            return (all_of if isinstance(op, ast.And) else any_of)(map(read, values))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISON:
            return _COMPARISON[type(op)](read(left), read(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS and args:
            return _CALLS[name](*map(read, args))
        case _:
            raise ExprError(f"not part of an integer expression: {_shortened(unmarked(ast.unparse(node)))}")
