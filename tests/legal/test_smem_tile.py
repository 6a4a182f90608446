"""Landing tiles against the layout room's tiles, and their sizes."""

from __future__ import annotations

import itertools

import pytest

from tilewright.hw.tensormap import Swizzle
from tilewright.legal.smem_tile import SmemTile

TILES = [
    SmemTile((columns, rows), panel, size, swizzle)
    for swizzle, span in ((Swizzle.NONE, 16), (Swizzle.B32, 32), (Swizzle.B64, 64), (Swizzle.B128, 128))
    for size in (1, 2, 4)
    for panel in (span // size,)
    for columns in (panel, 3 * panel)
    for rows in (8, 24)
]


@pytest.mark.parametrize("tile", TILES)
def test_both_rooms_place_every_element_alike(tile: SmemTile) -> None:
    other = tile.shared_tile
    assert other is not None
    assert other.size_bytes == tile.size_bytes
    columns, rows = tile.extents
    places = set[int]()
    for column, row in itertools.product(range(columns), range(rows)):
        place = tile.offset((column, row))
        assert place == other.offset(row, column)
        places.add(place)
    assert places == set(range(0, tile.size_bytes, tile.element_bytes))


@pytest.mark.parametrize(
    "tile",
    [SmemTile((32, 3), 16, 2, Swizzle.B32), SmemTile((64, 4), 64, 2, Swizzle.B128)],
    ids=["padded panels", "half a period"],
)
def test_what_the_other_room_cannot_express_is_none(tile: SmemTile) -> None:
    assert tile.shared_tile is None
    places = {tile.offset((c, r)) for c in range(tile.extents[0]) for r in range(tile.extents[1])}
    assert len(places) == tile.extents[0] * tile.extents[1]


def test_panels_begin_where_a_copy_may() -> None:
    tile = SmemTile((32, 3), 16, 2, Swizzle.B32)
    assert tile.panel_bytes == 128
    assert tile.size_bytes == 256
    assert tile.align_bytes == 256
    assert SmemTile((8, 8), 8, 2, Swizzle.NONE).align_bytes == 128
