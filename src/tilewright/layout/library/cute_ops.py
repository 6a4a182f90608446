"""Divides, products, tilings and recasts of CuTe layouts, all built from composition and complement.

Definitions: CuTe layout algebra (CUTLASS, media/docs/cpp/cute/02_layout_algebra.md, layout.hpp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from tilewright.diag import fail
from tilewright.layout.checks import extent
from tilewright.layout.cute import CuteLayout, coalesce, static_modes, static_stride, symbolic
from tilewright.layout.int_tuple import IntTuple, Leaf, leaves, product, unflatten
from tilewright.layout.library.cute_algebra import complement, composition
from tilewright.layout.library.cute_symbolic import quotient

Tile: TypeAlias = CuteLayout | int | None
Tiler: TypeAlias = CuteLayout | int | Sequence[Tile]
"""A tile of the whole layout, or one per mode (None leaves a mode alone)."""


def composition_by_mode(layout: CuteLayout, tiler: Sequence[Tile]) -> CuteLayout:
    """Each mode composed with its own tile; modes without one stay."""
    return _by_mode("composition", layout, tiler, composition)


# -- simplification ----------------------------------------------------------------------------------------------------


def filter_zeros(layout: CuteLayout) -> CuteLayout:
    """The same nesting with every mode of stride 0 cut to extent 1: offsets once each, where strides repeat them."""
    kept: list[Leaf] = [1 if d == 0 else s for s, d in layout.flat]
    return CuteLayout(unflatten(iter(kept), layout.shape), layout.stride)


def filter_layout(layout: CuteLayout) -> CuteLayout:
    """Without the modes of stride 0, coalesced."""
    return coalesce(filter_zeros(layout))


# -- divide ---------------------------------------------------------------------------------------------------------


def logical_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``layout o (tile, complement(tile, size))``: mode 0 runs within a tile, mode 1 over tiles; by mode for a tuple.

    LAY009 unless tile and complement together pass over every coordinate exactly once.
    """
    if not isinstance(tiler, CuteLayout | int):
        return _by_mode("logical_divide", layout, tiler, logical_divide)
    tile = _tile(tiler)
    size = layout.size
    rest = complement(tile, size)
    # modes that a complement was found for do not overlap; only strides of 0 repeat offsets
    repeats = any(d == 0 and s != 1 for s, d in tile.flat)
    if repeats or tile.size * rest.size != size:
        fail(
            "LAY009",
            found=f"{layout} of {size} coordinates by {tile}",
            required=f"tiles of {tile.size} that cover {size} exactly once",
            source="CuTe layout algebra, logical_divide",
            help="choose a tile whose size divides the layout's, or pad the layout",
        )
    return composition(layout, CuteLayout.of([tile, rest]))


def zipped_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``((tile modes), (rest modes))``."""
    return _unzip(logical_divide(layout, tiler), tiler)


def tiled_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``((tile modes), rest, rest, ...)``."""
    return _tiled(zipped_divide(layout, tiler))


def flat_divide(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``(tile, tile, ..., rest, rest, ...)``."""
    return _flat(zipped_divide(layout, tiler))


def shape_div(a: IntTuple, b: int) -> IntTuple:
    """``a`` with ``b`` coordinates taken off its fast end (LAY009 where neither number divides the other)."""
    if isinstance(a, tuple):
        parts: list[IntTuple] = []
        for part in a:
            parts.append(shape_div(part, b))
            size = _static(product(part))
            if b % size and size % b:
                _indivisible(size, b)
            b = max(1, b // size)
        return tuple(parts)
    size = _static(a)
    if size % b and b % size:
        _indivisible(size, b)
    return -(-size // b)


def _static(value: Leaf) -> int:
    if not isinstance(value, int):
        fail(
            "LAY009",
            title="a symbolic extent cannot be divided",
            found=str(value),
            required="a number",
            help="divide for a fixed extent",
        )
    return value


def _indivisible(size: int, divisor: int) -> NoReturn:
    fail(
        "LAY009",
        title="extents do not divide",
        found=f"{size} by {divisor}",
        required="one a multiple of the other",
        source="CuTe layout algebra, shape_div",
        help="choose a tile that divides the extent",
    )


# -- product --------------------------------------------------------------------------------------------------------


def logical_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``(layout, complement(layout, size * cosize(tile)) o tile)``: the layout repeated as the tile says; by mode for a
    tuple."""
    if not isinstance(tiler, CuteLayout | int):
        return _by_mode("logical_product", layout, tiler, logical_product)
    tile = _tile(tiler)
    room = complement(layout, layout.size * tile.cosize)
    return CuteLayout.of([layout, composition(room, tile)])


def zipped_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``((layout modes), (tile modes))``."""
    return _unzip(logical_product(layout, tiler), tiler)


def tiled_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``((layout modes), tile, tile, ...)``."""
    return _tiled(zipped_product(layout, tiler))


def flat_product(layout: CuteLayout, tiler: Tiler) -> CuteLayout:
    """``(layout mode, ..., tile mode, ...)``."""
    return _flat(zipped_product(layout, tiler))


def blocked_product(block: CuteLayout, tiler: CuteLayout) -> CuteLayout:
    """Mode i is ``(block mode i, tiler mode i)``: blocks laid side by side."""
    return _interleaved(block, tiler, block_first=True)


def raked_product(block: CuteLayout, tiler: CuteLayout) -> CuteLayout:
    """Mode i is ``(tiler mode i, block mode i)``: blocks dealt out like cards."""
    return _interleaved(block, tiler, block_first=False)


def _interleaved(block: CuteLayout, tiler: CuteLayout, block_first: bool) -> CuteLayout:
    rank = max(block.rank, tiler.rank)
    whole = logical_product(_padded(block, rank), _padded(tiler, rank))
    pairs = zip(whole[0].modes, whole[1].modes, strict=True)
    return CuteLayout.of(CuteLayout.of([b, t] if block_first else [t, b]) for b, t in pairs)


def tile_to_shape(block: CuteLayout, shape: IntTuple, order: Sequence[int] | None = None) -> CuteLayout:
    """``block`` repeated until it covers ``shape``, blocks in ``order`` (mode numbers, fastest = smallest; default
    0, 1, ...). LAY009 when the block does not divide the shape."""
    modes = shape if isinstance(shape, tuple) else (shape,)
    rank = max(block.rank, len(modes))
    padded = _padded(block, rank)
    counts: list[Leaf] = []
    for i in range(rank):
        have = padded[i].size
        want = product(modes[i]) if i < len(modes) else 1
        count = quotient(want, have)
        if count is None:
            fail(
                "LAY009",
                title="the block does not tile the shape",
                found=f"mode {i}: {want} by {have}",
                required="a multiple",
                source="CuTe layout algebra, tile_to_shape",
                help="choose a block that divides the shape, or round the shape up",
            )
        counts.append(count)
    return blocked_product(padded, make_ordered_layout(tuple(counts), tuple(order or range(rank))))


def make_ordered_layout(shape: IntTuple, order: IntTuple) -> CuteLayout:
    """The compact layout whose leaves are laid out in increasing ``order`` (ties from the left); 0 for extent 1."""
    extents, ranks = leaves(shape), leaves(order)
    if len(extents) != len(ranks):
        fail(
            "LAY002",
            title="order does not fit the shape",
            found=f"{len(ranks)} numbers for {len(extents)} extents",
            required="one each",
            help="number every extent, smallest first",
        )
    keys = [r if isinstance(r, int) else symbolic("make_ordered_layout", r) for r in ranks]
    strides: list[Leaf] = [0] * len(extents)
    current: Leaf = 1
    for i in sorted(range(len(extents)), key=lambda i: keys[i]):
        strides[i] = 0 if extents[i] == 1 else current
        current = current * extents[i]
    return CuteLayout(shape, unflatten(iter(strides), shape))


# -- element size ---------------------------------------------------------------------------------------------------


def upcast(layout: CuteLayout, n: int) -> CuteLayout:
    """The layout of elements ``n`` times as wide (LAY016 unless whole aligned groups of n offsets are joined)."""
    taken: list[tuple[int, int]] = []
    shape: list[Leaf] = []
    stride: list[Leaf] = []
    for s, d in static_modes(layout, "upcast"):
        step = static_stride(d, "upcast")
        per = 1 if step == 0 or step % extent(n, "factor") == 0 else -(-n // step)
        inside = min(s, per)
        if step and step % n and (n % step or s % inside):
            _cannot_join(layout, n)
        if inside > 1:
            taken.append((step, inside))
        shape.append(s // inside)
        stride.append(step // n if step % n == 0 else 1)
    reach = 1
    for step, inside in sorted(taken):
        if step != reach:
            _cannot_join(layout, n)
        reach *= inside
    if reach != n:
        _cannot_join(layout, n)
    return CuteLayout(unflatten(iter(shape), layout.shape), unflatten(iter(stride), layout.shape))


def downcast(layout: CuteLayout, n: int) -> CuteLayout:
    """The layout of elements ``n`` times as narrow: the mode of stride 1 grows (LAY016 when there is none)."""
    modes = static_modes(layout, "downcast")
    if extent(n, "factor") > 1 and not any(d == 1 for _, d in modes):
        fail(
            "LAY016",
            found=f"{layout} into {n} parts",
            required="a mode of stride 1 whose elements can be split",
            source="CuTe layout.hpp, downcast",
            help="append a mode of extent 1 and stride 1, which will hold the parts",
        )
    shape: list[Leaf] = []
    stride: list[Leaf] = []
    grown = False
    for s, d in modes:
        here = d == 1 and not grown
        grown = grown or here
        shape.append(s * n if here else s)
        stride.append(1 if here else d * n)
    return CuteLayout(unflatten(iter(shape), layout.shape), unflatten(iter(stride), layout.shape))


def recast(layout: CuteLayout, old_bits: int, new_bits: int) -> CuteLayout:
    """The layout of the same bytes seen as elements of ``new_bits`` (LAY016 when neither width divides the other)."""
    if extent(old_bits, "old_bits") == extent(new_bits, "new_bits"):
        return layout
    if new_bits % old_bits == 0:
        return upcast(layout, new_bits // old_bits)
    if old_bits % new_bits == 0:
        return downcast(layout, old_bits // new_bits)
    return fail(
        "LAY016",
        title="element widths do not divide",
        found=f"{old_bits} bits to {new_bits} bits",
        required="one a multiple of the other",
        help="go through a width that divides both",
    )


def _cannot_join(layout: CuteLayout, n: int) -> NoReturn:
    fail(
        "LAY016",
        found=f"{layout} joined by {n}",
        required=f"every {n} offsets from a multiple of {n} belong to the layout",
        source="CuTe layout.hpp, upcast",
        help="make the contiguous mode a multiple of the factor",
    )


# -- structure ------------------------------------------------------------------------------------------------------


def _tile(tiler: CuteLayout | int) -> CuteLayout:
    return tiler if isinstance(tiler, CuteLayout) else CuteLayout(extent(tiler, "tile"), 1)


def _by_mode(
    name: str, layout: CuteLayout, tiler: Sequence[Tile], operation: Callable[[CuteLayout, CuteLayout], CuteLayout]
) -> CuteLayout:
    modes = list(layout.modes)
    if len(tiler) > len(modes):
        fail(
            "LAY002",
            title=f"{name} has more tiles than the layout has modes",
            found=f"{len(tiler)} tiles for {layout}",
            required=f"at most {len(modes)}",
            help="give one tile per mode",
        )
    for i, tile in enumerate(tiler):
        if tile is not None:
            modes[i] = operation(modes[i], _tile(tile))
    return CuteLayout.of(modes)


def _unzip(divided: CuteLayout, tiler: Tiler) -> CuteLayout:
    """Gather the first halves of the modes that were divided, then the second halves and what was left alone."""
    if isinstance(tiler, CuteLayout | int):
        return divided
    first: list[CuteLayout] = []
    second: list[CuteLayout] = []
    for i, mode in enumerate(divided.modes):
        if i < len(tiler) and tiler[i] is not None:
            first.append(mode[0])
            second.append(mode[1])
        elif i < len(tiler):
            first.append(CuteLayout(1, 0))
            second.append(mode)
        else:
            second.append(mode)
    return CuteLayout.of([CuteLayout.of(first), CuteLayout.of(second)])


def _tiled(zipped: CuteLayout) -> CuteLayout:
    return CuteLayout.of([zipped[0], *zipped[1].modes])


def _flat(zipped: CuteLayout) -> CuteLayout:
    return CuteLayout.of([*zipped[0].modes, *zipped[1].modes])


def _padded(layout: CuteLayout, rank: int) -> CuteLayout:
    return CuteLayout.of([*layout.modes, *(CuteLayout(1, 0) for _ in range(rank - layout.rank))])
