"""Tile extents for the ``tw.auto`` keywords of kernels with matrix products, best first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import DType
from tilewright.base.expr import FALSE, TRUE, Const, Expr, Sym, all_of, any_of, ceildiv
from tilewright.hw.target import Target
from tilewright.lang.axes import Span
from tilewright.schedule.facts import MAX_VECTOR_BYTES, Facts
from tilewright.schedule.hopper.operands import source_of
from tilewright.schedule.tiles import coords_of, element, spans_of, tensor_name
from tilewright.tile import dialect as tile

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
_ROWS = (128, 128, 128, 64, 64)
_COLUMNS = (256, 192, 128, 64, 32)
_CHAINED = (128, 128, 64, 64, 32)
"""An axis that is the columns of one product and contracted by the next."""
_DEPTH_BYTES = 128
"""Contracted elements per step: one span of the widest swizzle."""

WIDTHS = {256: 100, 192: 102, 160: 109}
"""Columns of a tile that are offered where rows and columns are free, and the time of one column against that of the
widest (measured on H200: operands are read more often). With three the last wave of tiles is rarely far from full."""
SHARED_WIDTHS = {256: 100, 224: 101, 192: 102}
"""The same for clusters of two CTAs, which read a shared operand half as often."""
CLUSTER = (2, 1)
LINE_BYTES = 128
"""Rows that begin inside of an L2 line touch one line more each; two CTAs that share what they read then gain more than
their pairing costs (5000 x 5000 x 5000: 0.90 of cuBLAS against 0.72; aligned rows: within 1 %, H200)."""
_CLUSTER_ROWS = 4
"""Row tiles from which the second CTA of a cluster is rarely idle."""
SKINNY_ROWS, SKINNY_COLUMNS = 64, 32
"""Tiles for products with so few rows that operands are read once: as many CTAs as there are."""


@dataclass(frozen=True)
class Variant:
    """Choices of extents, best first, for the launches in which ``predicate`` holds; clusters of CTAs to try first."""

    predicate: Expr
    choices: tuple[dict[str, int], ...]
    cluster: tuple[int, int] = (1, 1)


def product_variants(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target, facts: Facts
) -> list[Variant]:
    """Tile widths and when each is used: that which needs least time for its whole waves of CTAs."""
    choices, sized = product_extents(autos, trace)
    wide = choices[0]
    skinny = {**wide, **dict.fromkeys(sized.rows, SKINNY_ROWS), **dict.fromkeys(sized.columns, SKINNY_COLUMNS)}
    kernel, small = trace(wide), trace(skinny)
    if not (sized.rows and sized.columns) or _changed(kernel, small) != [len(kernel.grid) - 2, len(kernel.grid) - 1]:
        return [Variant(TRUE, tuple(choices))]
    found = [Variant(small.grid.data[-2].expr <= 1, (skinny, *choices))]
    shares = all_of([_straddles(kernel, facts), kernel.grid.data[-2].expr >= _CLUSTER_ROWS])
    for widths, cluster, applies in ((SHARED_WIDTHS, CLUSTER, shares), (WIDTHS, (1, 1), TRUE)):
        sizes = [{**wide, **dict.fromkeys(sized.columns, width)} for width in widths]
        times = [
            _waves(trace(size), cluster, target) * (width * percent)
            for size, (width, percent) in zip(sizes, widths.items(), strict=True)
        ]
        for i, size in enumerate(sizes if applies != FALSE else ()):
            best = all_of([applies, *(times[i] <= other for other in times[i + 1 :])])
            found.append(Variant(best, (size, *choices), cluster))
    return found


def _changed(one: tile.Kernel, other: tile.Kernel) -> list[int]:
    """The axes along which two grids differ."""
    return [i for i, (a, b) in enumerate(zip(one.grid, other.grid, strict=True)) if a != b]


def _waves(kernel: tile.Kernel, cluster: tuple[int, int], target: Target) -> Expr:
    """How often all CTAs take a tile."""
    tiles: Expr = Const(1)
    shape = (*(1 for _ in kernel.grid.data[2:]), *cluster)
    for extent, n in zip(kernel.grid, shape, strict=True):
        tiles = tiles * (extent.expr if n == 1 else ceildiv(extent.expr, n) * n)
    return ceildiv(tiles, target.sm_count)


def _straddles(kernel: tile.Kernel, facts: Facts) -> Expr:
    """Rows of an operand begin inside of an L2 line; false where tensor copies can't read one as it lies."""
    found: list[Expr] = []
    for value in (v for dot in _dots(kernel) for v in (dot.a, dot.b)):
        load = source_of(value)[0].owner
        if not isinstance(load, tile.Load):
            continue
        own, bytes_ = facts.of(tensor_name(load)), element(value).bytes
        if own.unit_axis is None or own.align_bytes < MAX_VECTOR_BYTES:
            return FALSE
        pitches = [axis for axis, c in enumerate(coords_of(load)) if isinstance(c, Span) and axis != own.unit_axis]
        found += [(Sym(f"{tensor_name(load)}.stride{axis}") * bytes_ % LINE_BYTES).ne(0) for axis in pitches]
    return any_of(found)


@dataclass(frozen=True)
class Sized:
    """Autos that size rows alone and columns alone of products."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]


def product_extents(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel]
) -> tuple[list[dict[str, int]], Sized]:
    """Choices of extents, by what each auto sizes: the rows, the columns or the depth of products."""
    if not autos:
        return [{}], Sized((), ())
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
    return choices, Sized(tuple(sorted(rows - columns - depth)), tuple(sorted(columns - depth - rows)))


def _dots(kernel: tile.Kernel) -> list[tile.Dot]:
    return [op for op in kernel.walk() if isinstance(op, tile.Dot)]


def _bits(dtype: DType) -> int:
    return dtype.bits
