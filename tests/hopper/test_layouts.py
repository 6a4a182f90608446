"""Accumulator digits against the fragment tables, hand-staged tiles against the landing layout, by enumeration."""

from __future__ import annotations

import pytest

from tilewright.base.expr import Const
from tilewright.hw.tensormap import Swizzle
from tilewright.layout.library.fragments import wgmma_accumulator, wgmma_operand_a
from tilewright.legal.smem_tile import SmemTile
from tilewright.schedule.distribute import Distribution, accumulator_columns, accumulator_rows
from tilewright.schedule.hopper.products import staging_offset

pytestmark = pytest.mark.sample(4)

ROWS, COLUMNS = 0, 1


def distribution(m: int, n: int, warpgroups: int) -> Distribution:
    digits = ((COLUMNS, accumulator_columns(n)), (ROWS, accumulator_rows(m, warpgroups)))
    return Distribution(128 * warpgroups, digits)


@pytest.mark.parametrize("warpgroups", [1, 2, 4])
@pytest.mark.parametrize("n", [8, 24, 64, 160, 256])
def test_digits_are_the_accumulator_fragment(n: int, warpgroups: int) -> None:
    m = 64 * warpgroups
    mine, theirs = (
        distribution(m, n, warpgroups).layout([ROWS, COLUMNS]),
        wgmma_accumulator(m, n, warpgroups=warpgroups),
    )
    assert (mine.registers, mine.threads) == (theirs.registers, theirs.threads)
    for thread in range(mine.threads):
        for register in range(mine.registers):
            assert mine.coordinate(thread, register) == theirs.coordinate(thread, register)


def test_a_packed_accumulator_is_the_left_operand() -> None:
    mine, theirs = distribution(64, 48, 1).layout([ROWS, COLUMNS]), wgmma_operand_a(64, 48, 16)
    assert mine.registers == theirs.registers
    for thread in range(mine.threads):
        for register in range(mine.registers):
            assert mine.coordinate(thread, register) == theirs.coordinate(thread, register)


def test_rows_of_another_warpgroup_count_differ() -> None:
    mine, theirs = distribution(128, 8, 1).layout([ROWS, COLUMNS]), wgmma_accumulator(128, 8, warpgroups=2)
    assert mine.registers != theirs.registers


def test_a_row_value_is_held_once_per_quad() -> None:
    layout = distribution(64, 64, 1).layout([ROWS])
    assert layout.registers == 2
    assert layout.replication.free_thread_mask == 3


@pytest.mark.parametrize("blocks", [1, 2])
def test_register_of_finds_rows_and_columns(blocks: int) -> None:
    home = distribution(64 * blocks, 24, 1)
    whole = home.layout([ROWS, COLUMNS])
    for cls, dim in ((ROWS, 0), (COLUMNS, 1)):
        part = home.layout([cls])
        for register in range(whole.registers):
            index = home.register_of([cls], [ROWS, COLUMNS], Const(register)).constant
            assert index is not None
            for thread in (0, 37, 127):
                assert part.coordinate(thread, int(index))[0] == whole.coordinate(thread, register)[dim]


@pytest.mark.parametrize(("swizzle", "panel"), [(Swizzle.B128, 64), (Swizzle.B64, 32), (Swizzle.B32, 16)])
@pytest.mark.parametrize("k", [64, 192])
def test_staged_tiles_lie_as_copies_land(swizzle: Swizzle, panel: int, k: int) -> None:
    tile = SmemTile((k, 24), panel, 2, swizzle)
    for row in range(24):
        for inner in range(k):
            mine = staging_offset(tile, Const(inner), Const(row)).constant
            assert mine is not None
            assert int(mine) * 2 == tile.offset((inner, row))
