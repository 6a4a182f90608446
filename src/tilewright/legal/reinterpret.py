"""Tiles recast to wider elements: the same bytes, counted in fewer elements.

A tensor map limits extents (2^32 elements) and boxes (256 elements along an axis). Copied as elements of 2, 4 or 8
bytes, a row of single bytes fits where it did not, or needs fewer boxes. Zero fill and byte order are the same; a NaN
fill is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from tilewright.base.dtypes import DType, f16, i32, i64
from tilewright.base.expr import Expr, divisor, expr, sym
from tilewright.hw.tensormap import OobFill
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tma import TileAccess

WORDS: tuple[DType, ...] = (i64, i32, f16)
"""Types that words of 8, 4 and 2 bytes travel as, widest first."""


@dataclass(frozen=True)
class Recast:
    """An access to the same bytes as elements of ``factor`` elements each along axis ``dense``."""

    access: TileAccess
    factor: int
    dense: int

    @property
    def indices(self) -> dict[str, Expr]:
        """First indices of the word access, over those of the tensor."""
        name = index_symbol(self.dense).name
        return {name: sym(name) // self.factor}

    def elements(self, shared: SmemTile, element_bytes: int) -> SmemTile:
        """A shared-memory tile of words, counted in the tensor's elements; the dense axis is the innermost."""
        extents = (shared.extents[0] * self.factor, *shared.extents[1:])
        return SmemTile(extents, shared.panel * self.factor, element_bytes, shared.swizzle)


def recasts(access: TileAccess, dense: int, facts: Facts) -> Iterator[Recast]:
    """Every wider type in which ``access`` counts whole words, widest first."""
    if access.oob_fill is not OobFill.NONE:
        return
    for word in WORDS:
        factor = word.bytes // access.dtype.bytes
        if factor < 2:
            return
        tile = access.tile[dense]
        counts = [facts.apply(expr(access.shape[dense]))]
        counts += [facts.apply(expr(s)) for i, s in enumerate(access.strides) if i != dense]
        known = [divisor(c, facts.divisors) for c in counts]
        if tile is None or gcd(tile, access.first_multiple(dense), *known) % factor:
            continue
        firsts = tuple(access.first_multiple(i) // (factor if i == dense else 1) for i in range(len(access.shape)))
        yield Recast(
            replace(
                access,
                dtype=word,
                shape=tuple(_part(n, factor) if i == dense else n for i, n in enumerate(access.shape)),
                strides=tuple(1 if i == dense else _part(s, factor) for i, s in enumerate(access.strides)),
                tile=tuple(tile // factor if i == dense else t for i, t in enumerate(access.tile)),
                first_multiples=firsts,
            ),
            factor,
            dense,
        )


def _part(count: Expr | int, factor: int) -> Expr:
    return expr(count) // factor
