"""Reading nested tuples as CuTe prints them."""

from __future__ import annotations

import re
from typing import NoReturn

from tilewright.base.expr import ExprError, parse
from tilewright.diag import fail
from tilewright.layout.int_tuple import IntTuple

_MAX_TEXT, _MAX_DEPTH = 10_000, 64


def parse_tuple(source: str, whole: str) -> IntTuple:
    """Nested parentheses around integers and symbols; ``whole`` is quoted when they can't be read (LAY013)."""
    if len(source) > _MAX_TEXT:
        _unreadable(f"{whole[:60]}...", f"{len(source)} characters, of which at most {_MAX_TEXT} are read")
    tokens = re.findall(r"[(),]|[^(),]+", source.replace(" ", "").replace("_", ""))
    value, rest = _value(tokens, whole, _MAX_DEPTH)
    if rest:
        _unreadable(whole, "".join(rest))
    return value


def _value(tokens: list[str], whole: str, depth: int) -> tuple[IntTuple, list[str]]:
    if not depth:
        _unreadable(whole, f"level {_MAX_DEPTH + 1} of the parentheses")
    if not tokens or tokens[0] in "),":
        _unreadable(whole, "".join(tokens) or "end of text")
    if tokens[0] != "(":
        try:
            leaf = parse(tokens[0])
        except ExprError:
            _unreadable(whole, tokens[0])
        constant = leaf.constant
        return (leaf if constant is None else constant), tokens[1:]
    parts: list[IntTuple] = []
    tokens = tokens[1:]
    while tokens and tokens[0] != ")":
        part, tokens = _value(tokens, whole, depth - 1)
        parts.append(part)
        if tokens[:1] == [","]:
            tokens = tokens[1:]
        elif tokens[:1] != [")"]:
            _unreadable(whole, "".join(tokens) or "end of text")
    if not tokens:
        _unreadable(whole, "end of text")
    return tuple(parts), tokens[1:]


def _unreadable(whole: str, where: str) -> NoReturn:
    fail(
        "LAY013",
        found=f"{whole!r}, at {where!r}",
        required="shape:stride, such as (8,(2,4)):(8,(1,2))",
        help="write nested parentheses of integers or symbol names",
    )
