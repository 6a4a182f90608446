"""Extents of dimensions that are expressions, ``G + 1`` or ``H*D``: which symbol they give, and its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tilewright.base.expr.nodes import Const, Expr, Sum, Sym


@lru_cache(maxsize=1 << 12)
def symbol_plus(extent: Expr) -> tuple[str, int] | None:
    """The symbol and the number of ``symbol + number``, the number at least 0; None for any other expression."""
    if isinstance(extent, Sym):
        return extent.name, 0
    if isinstance(extent, Sum) and extent.offset > 0 and len(extent.terms) == 1:
        (term, factor), *_ = extent.terms
        if isinstance(term, Sym) and factor == 1:
            return term.name, extent.offset
    return None


@lru_cache(maxsize=1 << 12)
def _linear_in(extent: Expr, symbol: str) -> tuple[Expr, Expr] | None:
    """The factor and the rest of ``factor * symbol + rest``, in which the symbol does not occur."""
    rest = extent.substitute({symbol: Const(0)})
    factor = extent.substitute({symbol: Const(1)}) - rest
    return (factor, rest) if factor * Sym(symbol) + rest == extent else None


def solved_for(extent: Expr, value: Any, known: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The one symbol of ``extent`` that is not ``known``, and the integer for which it is ``value``, or the next one
    below where there is none; None where several are unknown, or the extent is no multiple of the symbol and a rest.

    Of 0 times the symbol it is 0."""
    unknown = [s for s in extent.symbols if s not in known]
    form = _linear_in(extent, unknown[0]) if len(unknown) == 1 else None
    if form is None:
        return None
    factor, rest = form[0].evaluate(known), form[1].evaluate(known)
    if form[0].constant is None and factor == 0:
        return unknown[0], 0
    return unknown[0], value - rest if factor == 1 else (value - rest) // factor


def solve(dims: Iterable[tuple[Expr, Any]], known: dict[str, Any]) -> None:
    """Adds to ``known`` the symbols that the extents of ``dims`` determine, each by the first dimension that does."""
    pairs = list(dims)
    while found := [s for dim, n in pairs if not dim.symbols <= known.keys() and (s := solved_for(dim, n, known))]:
        for symbol, extent in found:
            known.setdefault(symbol, extent)


def unsolved(extents: Iterable[Expr]) -> frozenset[str]:
    """Symbols that the values of ``extents`` do not give, in whichever order they are solved for."""
    pending, known = set(extents), set[str]()
    while True:
        found = {u[0] for e in pending if len(u := [*(e.symbols - known)]) == 1 and _linear_in(e, u[0]) is not None}
        if not found:
            return frozenset(s for e in pending for s in e.symbols) - known
        known |= found
