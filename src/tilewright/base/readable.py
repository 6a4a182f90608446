"""Expressions for people: sums and products as one writes them, conditions on tensors in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from math import gcd

from tilewright.base.expr import (
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Sym,
    conjuncts,
)
from tilewright.base.expr.nodes import OWN

_STRIDE = re.compile(r"(?P<tensor>.+)\.stride(?P<axis>\d+)")
_OFFSET_LIMIT = 1 << 31
_EXTENT_LIMIT = _OFFSET_LIMIT - (1 << 21)
"""The most elements along an axis (``artifact.schema.MAX_EXTENT``)."""


def arithmetic(e: Expr) -> str:
    """``e`` as one would write it: ``ceil(S / 128)*B*H``, ``256*M*N + 4*M``."""
    match e:
        case Const(value):
            return _number(int(value))
        case Sym(name):
            return _named(name)
        case Sum():
            return _sum(e)
        case Product():
            return "*".join(_factor(c) for c in e.children)
        case FloorDiv():
            return _quotient(e)
        case Mod():
            return f"{_factor(e.children[0])} % {_factor(e.children[1])}"
        case Min() | Max():
            name = "min" if isinstance(e, Min) else "max"
            return _magnitude(e) or f"{name}({', '.join(sorted(map(arithmetic, e.args)))})"
        case _:
            return str(e).replace(OWN, "")


def condition(e: Expr) -> str:
    """A predicate as text, each part in words or in plain arithmetic."""
    parts = [_one(part) for part in conjuncts(e)] if conjuncts(e) else ["always"]
    return " and ".join(f"({p})" if " or " in p and len(parts) > 1 else p for p in parts)


_LONG = 70
"""The longest condition, in characters, that is shown to a reader."""


def conditions(facts: Iterable[Expr]) -> list[str]:
    """What predicates ask, a line each; sizes that only have to fit 32 bits, costs that are compared, and what is too
    long to read, in one line each."""
    short: list[str] = []
    fit, costs, long = set[str](), set[str](), set[str]()
    for part in (p for fact in facts for p in conjuncts(fact)):
        text = _one(part)
        if _fits(part) and not _is_of_tensor(part):
            fit |= part.symbols
        elif len(text) <= _LONG and not (_compares_costs(part) and len(text) > _LONG // 2):
            short.append(text)
        else:
            (costs if _compares_costs(part) else long).update(part.symbols)
    if costs:
        short.append(f"the cost model prefers it for these {_listed(costs)}")
    if long:
        short.append(f"further conditions on {_listed(long)} hold")
    if fit:
        short.append(f"numbers of programs and steps, by {_listed(fit)}, fit 32 bits")
    return short


def summary(e: Expr) -> str:
    """A predicate in one line: ``M > 0``, or ``always``."""
    parts = conditions([e])
    return " and ".join(f"({p})" if " or " in p and len(parts) > 1 else p for p in parts) or "always"


def when(e: Expr) -> str:
    """The same after a name: ``if M > 0``, or ``always``."""
    text = summary(e)
    return text if text == "always" else f"if {text}"


def _fits(e: Expr) -> bool:
    """A size that has to be below one of the limits of 32 bits."""
    limits = (Const(_OFFSET_LIMIT), Const(_EXTENT_LIMIT))
    return isinstance(e, Compare) and e.op in ("<", "<=") and e.rhs in limits


def _is_of_tensor(e: Expr) -> bool:
    return any("." in s for s in e.symbols)


def _compares_costs(e: Expr) -> bool:
    return isinstance(e, Compare) and e.op in ("<", "<=") and e.lhs.constant is None and e.rhs.constant is None


def _listed(symbols: Iterable[str]) -> str:
    return ", ".join(sorted(map(_named, symbols)))


def _number(value: int) -> str:
    if value in (_OFFSET_LIMIT, _EXTENT_LIMIT):
        return "2^31" if value == _OFFSET_LIMIT else "2^31 - 2^21"
    return str(value)


def _named(name: str) -> str:
    """A symbol: the stride of a dimension as ``stride(x, 0)``; the compiler's own without their mark."""
    found = _STRIDE.fullmatch(name)
    return f"stride({found['tensor']}, {found['axis']})" if found else name.replace(OWN, "")


def _sum(e: Sum) -> str:
    parts = [(factor, _factor(term) if abs(factor) != 1 else arithmetic(term)) for term, factor in e.terms]
    if e.offset:
        parts.append((e.offset, ""))
    text = ""
    for factor, term in sorted(parts, key=lambda p: (p[1] == "", p[0] < 0)):
        size = _number(abs(factor)) if not term else term if abs(factor) == 1 else f"{abs(factor)}*{term}"
        sign = " - " if factor < 0 else " + "
        text = text + sign + size if text else ("-" if factor < 0 else "") + size
    return text


def _factor(e: Expr) -> str:
    """An operand of a product or quotient."""
    text = arithmetic(e)
    alone = isinstance(e, Sym | Const | Product | Min | Max) or (isinstance(e, FloorDiv) and text.startswith("ceil("))
    return text if alone else f"({text})"


def _quotient(e: FloorDiv) -> str:
    above, below = e.children
    size = below.constant
    if size is not None and isinstance(above, Sum) and above.offset == size - 1:
        return f"ceil({arithmetic(above - above.offset)} / {size})"
    return f"{_factor(above)} // {_factor(below)}"


def _magnitude(e: Min | Max) -> str:
    """``max(-s, s)`` is the size of a stride, ``max(M - 1, 0)`` that of an index."""
    if isinstance(e, Max) and len(e.args) == 2 and (e.args[0] + e.args[1]).constant == 0:
        return f"|{min(map(arithmetic, e.args), key=len)}|"
    return ""


# -- conditions -----------------------------------------------------------------------------------------------------
def _one(e: Expr) -> str:
    if isinstance(e, Any_):
        return _any(e)
    if isinstance(e, Compare):
        return _of_tensor(e) or _compared(e)
    return arithmetic(e)


def _any(e: Any_) -> str:
    """Alternatives; that a dimension of at most one element has no stride to speak of is said shortly."""
    short = [p for p in e.args if isinstance(p, Compare) and p.op == "<=" and p.rhs == Const(1)]
    asked = [p for p in e.args if p not in short]
    if short and len(asked) == 1 and any(_STRIDE.fullmatch(s) for s in asked[0].symbols):
        return f"{_one(asked[0])} (if {' and '.join(f'{arithmetic(p.lhs)} > 1' for p in short)})"
    return " or ".join(_one(p) for p in e.args)


_SIGNS = {"<": "<", "<=": "<=", "==": "==", "!=": "!="}
_TURNED = {"<": ">", "<=": ">=", "==": "==", "!=": "!="}


def _compared(e: Compare) -> str:
    lhs, rhs = _divided(e)
    if lhs.constant is not None and rhs.constant is None:
        return f"{arithmetic(rhs)} {_TURNED[e.op]} {arithmetic(lhs)}"
    return f"{arithmetic(lhs)} {_SIGNS[e.op]} {arithmetic(rhs)}"


def _divided(e: Compare) -> tuple[Expr, Expr]:
    """``(N*16) % 128 == 0`` as ``N % 8 == 0``."""
    lhs, rhs = e.lhs, e.rhs
    if isinstance(lhs, Mod) and rhs == Const(0) and lhs.denominator.constant is not None:
        whole, size = lhs.children[0], int(lhs.denominator.constant)
        factors = [f for _, f in whole.terms] + [whole.offset] if isinstance(whole, Sum) else [1]
        common = gcd(size, reduce(gcd, factors))
        if common > 1 and isinstance(whole, Sum):
            rest = sum((term * (factor // common) for term, factor in whole.terms), Const(whole.offset // common))
            return rest % (size // common), rhs
    return lhs, rhs


def _of_tensor(e: Compare) -> str:
    """What a condition says of one tensor's memory; empty for another one."""
    tensors = {_tensor_of(s) for s in e.symbols} - {""}
    if len(tensors) != 1:
        return ""
    (tensor,) = tensors
    lhs, rhs = _divided(e)
    place = f"{tensor}.address"
    if isinstance(lhs, Mod) and rhs == Const(0):
        if lhs.children[0] == Sym(place):
            return f"{tensor} is aligned to {lhs.denominator} bytes"
        axis = _axis(lhs.children[0])
        return (
            f"dimension {axis} of {tensor} has a stride that is a multiple of {lhs.denominator} elements"
            if axis
            else ""
        )
    axis = _axis(lhs) or _axis(rhs)
    if axis and e.op == "==" and Const(1) in (lhs, rhs):
        return f"{tensor} is contiguous along dimension {axis}"
    if axis and e.op == "<" and lhs == Const(0):
        return f"dimension {axis} of {tensor} has a stride above 0"
    if e.op == "<" and rhs == Const(_OFFSET_LIMIT) and place not in e.symbols:
        return f"offsets of elements in {tensor} fit 32 bits"
    return ""


def _tensor_of(symbol: str) -> str:
    tensor, dot, _ = symbol.rpartition(".")
    return tensor if dot else ""


def _axis(e: Expr) -> str:
    found = _STRIDE.fullmatch(e.name) if isinstance(e, Sym) else None
    return found["axis"] if found else ""
