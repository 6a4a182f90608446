"""Layouts no descriptor produces: factored, proved, and carried out on a small machine."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from support.conversion_machine import run
from support.copy_engine import copy_tile
from tilewright.base.dtypes import DType, bf16, e4m3, f32, i8
from tilewright.base.verdict import Factored, Illegal, Legal, Unknown
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import Swizzle
from tilewright.layout.cute import CuteLayout
from tilewright.layout.equality import ProofKind, f2_of
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library import fragments
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle
from tilewright.legal.factor import FactoredPlan, ResidualCarrier, SharedLayout, factor, offsets_of, smem_layout
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tma import TileAccess, plan

pytestmark = pytest.mark.sample(3)

WIDE = (4096, 4096)


def tile(dtype: DType, rows: int, columns: int, *modes: Swizzle) -> TileAccess:
    return TileAccess(dtype, WIDE, (4096, 1), 0, (rows, columns), swizzles=modes)


TILES = [
    SmemTile((64, 16), 64, 2, Swizzle.B128),
    SmemTile((128, 16), 64, 2, Swizzle.B128),
    SmemTile((32, 24), 16, 2, Swizzle.B32),
    SmemTile((64, 4, 3), 32, 1, Swizzle.B32),
    SmemTile((96, 5), 96, 4, Swizzle.NONE),
    SmemTile((32, 3), 4, 4, Swizzle.NONE),
    SmemTile((32, 8), 16, 4, Swizzle.B64),
]


@pytest.mark.parametrize("landing", TILES, ids=str)
def test_landing_layouts_are_landing_tiles(landing: SmemTile) -> None:
    reverse = product(*(range(n) for n in reversed(landing.extents)))
    wanted = [landing.offset(tuple(reversed(c))) // landing.element_bytes for c in reverse]
    assert offsets_of(smem_layout(landing)) == wanted


def carried_out(access: TileAccess, found: FactoredPlan) -> dict[int, int]:
    """Load the tile through the map, rewrite it as the plan says; the element at every offset that was stored.

    Elements are numbered by their coordinate, innermost fastest.
    """
    rewrite, size = found.rewrite, access.dtype.bytes
    assert rewrite is not None
    rows, columns = (t or 1 for t in access.tile)
    memory = np.zeros(rows * columns * size, np.uint8)
    numbers = np.arange(rows * columns)
    small = TileAccess(access.dtype, (rows, columns), (columns, 1), 0, access.tile, swizzles=(found.plan.swizzle,))
    made = plan(small)
    assert isinstance(made, Legal)
    low = np.zeros(found.plan.shared.size_bytes, np.uint8)
    held = np.zeros(found.plan.shared.size_bytes // size, np.int64)
    for byte in range(2):  # the number of an element in two copies of its lowest byte
        memory[::size] = numbers >> 8 * byte & 255
        copy_tile(memory, made.fields, {"$index0": 0, "$index1": 0}, low, size)
        held |= low[::size].astype(np.int64) << 8 * byte
    places = offsets_of(found.copied)
    source = [
        [
            int(held[places[x + y * columns]])
            for x, y in (rewrite.load.coordinate(t, r) for r in range(rewrite.load.registers))
        ]
        for t in range(rewrite.load.threads)
    ]
    target = run(rewrite.conversion, source, rewrite.store.registers)
    stored: dict[int, int] = {}
    table = found.residual
    for t, row in enumerate(target):
        for register, element in enumerate(row):
            x, y = rewrite.store.coordinate(t, register)
            at = places[x + y * columns]
            offset = table(at) if isinstance(table, F2Layout) else table[at]
            assert stored.setdefault(offset, int(str(element))) == element
    return stored


LAYOUTS: list[tuple[TileAccess, SharedLayout, ProofKind]] = [
    (tile(bf16, 64, 64), CuteLayout((64, 64), (1, 72)), ProofKind.ENUMERATED),
    (tile(bf16, 64, 64), CuteLayout((64, 64), (64, 1)), ProofKind.F2),
    (tile(bf16, 64, 64), ComposedLayout(CuteSwizzle(3, 3, 3), 0, CuteLayout((64, 64), (64, 1))), ProofKind.F2),
    (tile(bf16, 64, 64), ComposedLayout(CuteSwizzle(2, 4, 3), 0, CuteLayout((64, 64), (1, 64))), ProofKind.F2),
    (tile(bf16, 64, 64), f2_of(CuteLayout((8, 8, 64), (64, 512, 1))), ProofKind.F2),
    (tile(bf16, 48, 96), CuteLayout((96, 48), (48, 1)), ProofKind.ENUMERATED),
    (tile(f32, 64, 32), CuteLayout((32, 64), (64, 1)), ProofKind.F2),
    (tile(f32, 20, 40), CuteLayout((40, 20), (20, 1)), ProofKind.ENUMERATED),
    (tile(e4m3, 32, 128), CuteLayout((128, 32), (32, 1)), ProofKind.F2),
    (tile(i8, 32, 128), CuteLayout((128, 32), (1, 144)), ProofKind.ENUMERATED),
]


@pytest.mark.parametrize(("access", "requested", "proof"), LAYOUTS, ids=[str(c[1]) for c in LAYOUTS])
def test_carrying_the_residual_out_gives_the_requested_layout(
    access: TileAccess, requested: SharedLayout, proof: ProofKind
) -> None:
    found = factor(access, requested)
    assert isinstance(found, Factored)
    assert isinstance(found.fields, FactoredPlan)
    assert found.fields.proof is proof
    assert found.fields.cycles > 0
    assert found.fields.carrier.value in found.residual
    stored = carried_out(access, found.fields)
    assert stored == {offset: index for index, offset in enumerate(offsets_of(requested))}


@pytest.mark.parametrize("mode", [Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128])
def test_what_a_descriptor_produces_has_no_residual(mode: Swizzle) -> None:
    made = plan(tile(bf16, 64, 64, mode))
    assert isinstance(made, Legal)
    found = factor(tile(bf16, 64, 64), smem_layout(made.fields.shared))
    assert isinstance(found, Legal)
    assert found.fields.swizzle is mode


def test_readers_fold_the_residual_into_their_addresses() -> None:
    """An accumulator fragment read from a column-major request: no bytes move, and the swizzle spares the banks."""
    reader = fragments.wgmma_accumulator(64, 64).transpose((1, 0))
    found = factor(tile(f32, 64, 64), CuteLayout((64, 64), (64, 1)), reader=reader)
    assert isinstance(found, Factored)
    assert isinstance(found.fields, FactoredPlan)
    assert found.fields.carrier is ResidualCarrier.READERS
    assert found.fields.rewrite is None
    assert found.fields.plan.swizzle is not Swizzle.NONE


def test_illegal_and_undecided_are_distinguished() -> None:
    columns = CuteLayout((64, 64), (64, 1))
    uneven = factor(TileAccess(bf16, (4096, 4099), (4099, 1), 0, (64, 64)), columns)
    assert isinstance(uneven, Illegal)
    assert {v.rule for v in uneven.core} == {"TMA012"}
    odd = factor(tile(f32, 15, 44), CuteLayout((44, 15), (15, 1)))
    assert isinstance(odd, Unknown)
    assert odd.settle


@pytest.mark.parametrize("layout", [CuteLayout((64, 32), (1, 64)), CuteLayout((64, 64), (0, 1))])
def test_a_layout_that_is_none_of_the_tile_is_refused(layout: CuteLayout) -> None:
    with pytest.raises(TilewrightError, match="TMA070"):
        factor(tile(bf16, 64, 64), layout)
