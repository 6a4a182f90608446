"""Shared tiles against the swizzle tables of the PTX manual, byte by byte."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright.base.expr import sym
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import Swizzle
from tilewright.layout.shared import SharedTile
from tilewright.layout.xor_swizzle import XorSwizzle

# PTX ISA 9.1, 5.5.7: which 16-byte column of its row a 16-byte chunk lands in, by row
TABLES = {
    Swizzle.B32: (32, ["01234567", "10325476"]),
    Swizzle.B64: (64, ["01234567", "10325476", "23016745", "32107654"]),
    Swizzle.B128: (
        128,
        ["01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"],
    ),
    Swizzle.B128_ATOM_32B: (128, ["01234567", "23016745", "45670123", "67452301"]),
    Swizzle.B128_ATOM_64B: (128, ["01234567", "45670123"]),
}


def by_table(mode: Swizzle, offset: int) -> int:
    """The table has one line per 128 bytes, whatever the span."""
    line, within = divmod(offset, 128)
    rows = TABLES[mode][1]
    return line * 128 + int(rows[line % len(rows)][within // 16]) * 16 + within % 16


@pytest.mark.parametrize("mode", list(TABLES))
@pytest.mark.parametrize(("rows", "panels", "size"), [(64, 1, 2), (24, 3, 2), (128, 2, 1), (8, 5, 4)])
def test_swizzled_tiles_follow_the_manual(mode: Swizzle, rows: int, panels: int, size: int) -> None:
    span = TABLES[mode][0]
    width = span // size
    tile = SharedTile.swizzled(rows, panels * width, size, mode)
    seen = set[int]()
    for r, c in product(range(rows), range(panels * width)):
        offset = tile.offset(r, c)
        assert offset == by_table(mode, (c // width * rows + r) * span + c % width * size)
        seen.update(range(offset, offset + size))
    assert seen == set(range(tile.size_bytes))
    assert tile.transpose().offset(3, 5) == tile.offset(5, 3)


@pytest.mark.parametrize(
    "tile",
    [
        SharedTile.plain(24, 40, 2),
        SharedTile.padded(16, 24, 4, 16),
        *(SharedTile.swizzled(16, 128, 2, m) for m in Swizzle),
        SharedTile.swizzled(24, 192, 2, Swizzle.B128).transpose(),
    ],
)
def test_offset_expressions(tile: SharedTile) -> None:
    bounds = {"i": (0, tile.shape[0] - 1), "j": (0, tile.shape[1] - 1)}
    for e in (tile.offset_expr(sym("i"), sym("j"), bounds=bounds), tile.offset_expr(sym("i"), sym("j"))):
        for i, j in product(range(tile.shape[0]), range(tile.shape[1])):
            assert e.evaluate({"i": i, "j": j}) == tile.offset(i, j)


def test_padding_leaves_gaps() -> None:
    tile = SharedTile.padded(8, 32, 2, 16)
    assert (tile.offset(1, 0), tile.size_bytes, tile.align_bytes) == (80, 640, 16)


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: SharedTile.swizzled(64, 48, 2, Swizzle.B128), "LAY012"),
        (lambda: SharedTile.swizzled(7, 64, 2, Swizzle.B128), "LAY012"),
        (lambda: SharedTile(8, 64, 2, 64, 256, Swizzle.B128), "LAY012"),
        (lambda: SharedTile.plain(0, 64, 2), "LAY001"),
        (lambda: SharedTile.padded(8, 64, 2, -16), "LAY001"),
        (lambda: SharedTile(8, 64, 2, 48, 128), "LAY002"),
        (lambda: SharedTile.plain(8, 64, 2).offset(8, 0), "LAY005"),
    ],
)
def test_bad_tiles_are_refused(build: object, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        build()  # type: ignore[operator]
    assert caught.value.code == code
    assert caught.value.diagnostics[0].help


def test_the_smallest_tile_of_each_swizzle_is_accepted() -> None:
    assert SharedTile.swizzled(8, 64, 2, Swizzle.B128).align_bytes == 1024
    assert SharedTile.swizzled(8, 32, 2, Swizzle.B64).align_bytes == 512
    assert SharedTile.swizzled(8, 16, 2, Swizzle.B32).align_bytes == 256


@pytest.mark.parametrize("pairs", [((1, 7),), ((4, 6),), ((7, 9),)])
def test_exchanges_keep_elements_and_lines(pairs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(TilewrightError) as refused:
        SharedTile.exchanged(32, 32, 4, XorSwizzle(pairs))
    assert refused.value.code == "LAY012"
    assert refused.value.diagnostics[0].help


def test_exchanged_tiles() -> None:
    """Any swizzle of whole lines: a bijection of the rounded-up tile, the same as numbers, formula and bits."""
    moved = XorSwizzle(((2, 9), (4, 7), (5, 7), (6, 10)))
    tile = SharedTile.exchanged(32, 24, 4, moved)
    assert tile.size_bytes == 32 * 24 * 4
    seen = {tile.offset(r, c) for r, c in product(range(32), range(24))}
    assert seen <= set(range(0, tile.size_bytes, 4))
    assert len(seen) == 32 * 24
    formula = tile.offset_expr(sym("r"), sym("c"), unit_bytes=4)
    for r, c in product(range(32), range(24)):
        linear = r * 96 + c * 4
        for target, source in moved.pairs:
            linear ^= (r * 96 + c * 4 >> source & 1) << target
        assert tile.offset(r, c) == linear == 4 * formula.evaluate({"r": r, "c": c})


@pytest.mark.parametrize("mode", [Swizzle.B128, Swizzle.B64, Swizzle.B32, Swizzle.NONE])
def test_swizzles_move_nothing_from_row_to_row(mode: Swizzle) -> None:
    tile = SharedTile.swizzled(16, TABLES[mode][0] // 2 if mode in TABLES else 8, 2, mode)
    within = tile.in_row_expr(sym("row"), sym("column"))
    for row, column in product(range(tile.rows), range(tile.columns)):
        at = int(within.evaluate({"row": row, "column": column}))
        assert 0 <= at < tile.pitch_bytes
        assert row * tile.pitch_bytes + at == tile.offset(row, column)
