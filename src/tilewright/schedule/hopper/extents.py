"""Tile extents for the ``tw.auto`` keywords of kernels with matrix products, best first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import DType
from tilewright.base.expr import TRUE, Const, Expr, ceildiv
from tilewright.hw.target import Target
from tilewright.schedule.tiles import element, spans_of
from tilewright.tile import dialect as tile

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
_ROWS = (128, 128, 128, 64, 64)
_COLUMNS = (256, 192, 128, 64, 32)
_CHAINED = (128, 128, 64, 64, 32)
"""An axis that is the columns of one product and contracted by the next."""
_DEPTH_BYTES = 128
"""Contracted elements per step: one span of the widest swizzle."""


_NARROW = 160
"""Columns of the second width that is offered where rows and columns are free: with 256 and 160 the last wave of tiles
is rarely far from full."""
_NARROW_PERCENT = 105
"""Time of a column of a narrow tile against one of a wide tile (measured on H200: operands are read more often)."""


@dataclass(frozen=True)
class Variant:
    """Choices of extents, best first, for the launches in which ``predicate`` holds."""

    predicate: Expr
    choices: tuple[dict[str, int], ...]


def product_variants(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target
) -> list[Variant]:
    """Tile widths and when each is used: that which needs less time for its whole waves of CTAs."""
    choices, columns = product_extents(autos, trace)
    wide = choices[0]
    narrow = {name: _NARROW if name in columns else size for name, size in wide.items()}
    if not columns or len(wide) < 2:
        return [Variant(TRUE, tuple(choices))]

    def time(extents: Mapping[str, int]) -> Expr:
        tiles: Expr = Const(1)
        for extent in trace(extents).grid:
            tiles = tiles * extent.expr
        return ceildiv(tiles, target.sm_count) * extents[columns[0]]

    slower = time(wide) * 100 > time(narrow) * _NARROW_PERCENT
    return [Variant(slower, (narrow, *choices)), Variant(TRUE, tuple(choices))]


def product_extents(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel]
) -> tuple[list[dict[str, int]], list[str]]:
    """Choices of extents, by what each auto sizes: the rows, the columns or the depth of products; and the autos that
    size columns alone."""
    if not autos:
        return [{}], []
    probes = dict(zip(autos, _PRIMES, strict=False))
    large, small = trace(probes), trace(dict.fromkeys(autos, 1))
    rows: set[str] = set()
    columns: set[str] = set()
    depth: set[str] = set()
    narrow = 16
    for dot, base in zip(_dots(large), _dots(small), strict=True):
        narrow = min(narrow, _bits(element(dot.a)))
        for value, axis, found in ((dot.result, 0, rows), (dot.result, 1, columns), (dot.a, 1, depth)):
            twin = {dot.result: base.result, dot.a: base.a}[value]
            span, unit = spans_of(value)[axis], spans_of(twin)[axis]
            if span is not None and unit is not None:
                found |= {name for name, prime in probes.items() if span.size == unit.size * prime}
    choices: list[dict[str, int]] = []
    for m, n, both in zip(_ROWS, _COLUMNS, _CHAINED, strict=True):
        choice: dict[str, int] = {}
        for name in autos:
            if name in rows:
                choice[name] = m
            elif name in columns and name in depth:
                choice[name] = both
            elif name in columns:
                choice[name] = n
            else:
                choice[name] = _DEPTH_BYTES * 8 // narrow
        if choice not in choices:
            choices.append(choice)
    return choices, sorted(columns - depth - rows)


def _dots(kernel: tile.Kernel) -> list[tile.Dot]:
    return [op for op in kernel.walk() if isinstance(op, tile.Dot)]


def _bits(dtype: DType) -> int:
    return dtype.bits
