"""Integer expressions as C."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tilewright.base.expr import (
    All,
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Interval,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
    interval,
)

_OWN = "at b e from g i moved pairs program r raw sent taken tid u v word"
LOCALS = frozenset(_OWN.split())
"""Names that emitted code declares itself."""

LOOP = "loop."
"""Prefix of the symbols of emitted loops, which no user's symbol has."""

_TEXT = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do
    double else enum explicit export extern false float for friend goto if inline int long mutable namespace
    new not nullptr operator or private protected public register return short signed sizeof static struct
    switch template this throw true try typedef typeid typename union unsigned using virtual void volatile
    while xor min max printf
"""
_WORDS = frozenset(_TEXT.split())


def identifier(symbol: str) -> str:
    """The C name of a symbol: ``x.stride0`` is ``x_stride0``, ``new`` is ``new_``, ``loop.v`` is ``v``."""
    if symbol.startswith(LOOP):
        return symbol.removeprefix(LOOP)
    name = symbol.replace(".", "_")
    return name + "_" if name in _WORDS or name in LOCALS - {"tid", "r"} else name


def c_expr(node: Expr, bounds: Mapping[str, Interval]) -> str:
    """``node`` as a C expression of int type; floor semantics are kept where a numerator may be negative.

    Division and modulus by powers of two become shifts and masks, which round to minus infinity for either sign; other
    divisors use C's operators where the numerator is known not to be negative, helpers of the prelude elsewhere.
    """
    if node.polynomial:  # no division to choose
        return _written(node, frozenset[tuple[str, Interval]]())
    return _written(node, frozenset((name, bounds[name]) for name in node.symbols if name in bounds))


@lru_cache(maxsize=1 << 14)  # the bodies and variants of a kernel write mostly the same
def _written(node: Expr, known: frozenset[tuple[str, Interval]]) -> str:
    bounds = dict(known)

    def emit(e: Expr) -> str:
        match e:
            case Const(value):
                return str(int(value)) if value >= 0 else f"({int(value)})"
            case Sym(name):
                return identifier(name)
            case Sum(offset, terms):
                parts: list[str] = []
                for term, c in sorted(terms, key=lambda t: t[1] < 0):
                    body = emit(term) if abs(c) == 1 else f"{emit(term)}*{abs(c)}"
                    parts.append((" - " if c < 0 else " + ") + body)
                if offset:
                    parts.append(f" + {offset}" if offset > 0 else f" - {-offset}")
                text = "".join(parts)
                return f"({text[3:] if text.startswith(' + ') else '-' + text[3:]})"
            case Product(factors):
                return "*".join(map(emit, factors))
            case FloorDiv(a, b) | Mod(a, b):
                return _division(e, a, b)
            case Min(args):
                return _nest("min", list(map(emit, args)))
            case Max(args):
                return _nest("max", list(map(emit, args)))
            case Xor(args):
                return f"({' ^ '.join(map(emit, args))})"
            case Compare(op, a, b):
                return f"({emit(a)} {op} {emit(b)})"
            case All(args):
                return f"({' && '.join(map(emit, args))})"
            case Any_(args):
                return f"({' || '.join(map(emit, args))})"
            case Not(a):
                return f"!{emit(a)}"
            case _:
                raise TypeError(f"not an expression node: {type(e).__name__}")

    def _division(e: Expr, a: Expr, b: Expr) -> str:
        n = b.constant
        whole = isinstance(e, FloorDiv)
        if n is not None and n > 0 and n & (n - 1) == 0:
            return f"({emit(a)} >> {n.bit_length() - 1})" if whole else f"({emit(a)} & {n - 1})"
        low, _ = interval(a, bounds)
        low_b, _ = interval(b, bounds)
        if low is not None and low >= 0 and low_b is not None and low_b > 0:
            return f"({emit(a)} {'/' if whole else '%'} {emit(b)})"
        return f"{'floor_div' if whole else 'floor_mod'}({emit(a)}, {emit(b)})"

    return emit(node)


def _nest(name: str, args: list[str]) -> str:
    text = args[-1]
    for arg in reversed(args[:-1]):
        text = f"{name}({arg}, {text})"
    return text
