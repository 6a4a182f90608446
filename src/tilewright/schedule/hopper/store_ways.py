"""How tiles of a domain that ends inside of its tensor are stored, as groups of rows do: the ways, and their prices.

A tensor copy is clipped where the tensor ends, not where the domain does. So a program

    copies every tile through a map with two more dimensions, which the hardware clips at the domain's end
    (``legal.ragged``),
    or tests whether the domain cuts its tile, copies it if not and else stores it by rows,
    or stores every tile by rows.

The cheapest of those that exist is taken. The price is the cycles that a warpgroup's whole tile takes beside filling
panels, which all ways do, and those of fetching the text of the store, executed or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tilewright.base.expr import Expr
from tilewright.hw.copy_prices import BOX_CYCLES, VECTOR_CYCLES
from tilewright.hw.spaces import WARP_THREADS, WARPGROUP_THREADS
from tilewright.lang.axes import Span
from tilewright.legal.facts import Facts
from tilewright.legal.ragged import BOUND
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.epilogue_tiles import CHUNK, SWIZZLES, AccumulatorTile
from tilewright.schedule.hopper.operands import ROWS
from tilewright.schedule.hopper.ragged_maps import end_inside, ragged_map
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, tensor_name

FETCH_CYCLES = 0.5
"""Of one instruction of text, 16 bytes (assumed: 32 bytes a cycle; ways that move the same bytes alike differ in it
alone, and by at most 1.2 % of a product on an H200, docs/measured.md)."""
COPY_INSTRUCTIONS, VECTOR_INSTRUCTIONS, MEETINGS = 5, 4, 3
"""Of a tensor copy (elected thread, coordinates, copy, commit, wait), of a guarded vector from shared to global memory,
and the barriers and the fence of a panel."""
END_INSTRUCTIONS = 2
"""For the coordinates of a copy that ends with its domain."""


class StoreWay(Enum):
    """How the tiles of a store leave."""

    CLIPPED = "every tile by tensor copies, which the hardware clips at the end of its domain"
    SPLIT = "whole tiles by tensor copies, those that the end of their domain cuts by rows"
    ROWS = "every tile by rows"


@dataclass(frozen=True)
class RaggedStore:
    """Maps by the width of their panels, whose copies end with the domain along the tile's rows, and the ``condition``
    under which their coordinates are 32-bit integers that count no row beyond the maps' bound."""

    maps: Mapping[int, TensorMapPlan]
    condition: Expr


def store_cycles(way: StoreWay, panels: AccumulatorTile, vector: int) -> float:
    """The price of a way: cycles of a warpgroup's tile beside filling panels. Threads store ``vector`` elements at
    once."""
    boxes, vectors, fill = 0, 0, 0
    for panel in panels.side_by_side:
        boxes += 1
        vectors += ROWS * panel.width // (vector * WARP_THREADS)
        fill += panel.width // (2 * CHUNK) + panel.width // 4 + MEETINGS  # stmatrix, conversions of pairs
    copying, storing = boxes * COPY_INSTRUCTIONS, vectors * WARP_THREADS // WARPGROUP_THREADS * VECTOR_INSTRUCTIONS
    match way:
        case StoreWay.CLIPPED:
            return boxes * BOX_CYCLES + FETCH_CYCLES * (fill + copying + boxes * END_INSTRUCTIONS)
        case StoreWay.SPLIT:
            return boxes * BOX_CYCLES + FETCH_CYCLES * (fill + copying + fill + storing)
        case StoreWay.ROWS:
            return vectors * VECTOR_CYCLES + FETCH_CYCLES * (fill + storing)


# -- copies that end with their domain --------------------------------------------------------------------------------
def ragged_store(
    kernel: tile.Kernel, facts: CallFacts, known: Facts, panels: AccumulatorTile, *, narrowed: bool
) -> RaggedStore | str:
    """The maps through which every tile of a store whose rows end inside of their tensor can be copied; or why there
    are none. ``narrowed``: the launches may be restricted to those that meet a condition on extents, for another kernel
    serves the others."""
    op = panels.op
    coords, dims = coords_of(op), [d.expr for d in tile.tensor_type(op.tensor).dims]
    axis = next(d for d, c in enumerate(coords) if isinstance(c, Span))
    rows, extent = coords[axis], dims[axis]
    assert isinstance(rows, Span)
    if any(isinstance(c, Span) and d != axis and c.stop != dims[d] for d, c in enumerate(coords)):
        return "its domain ends inside of the tensor along another axis, too"
    limit = BOUND - rows.size
    fits = extent <= limit
    # rows of 16 bytes and more of a tensor whose offsets are 32-bit integers are fewer
    if not (narrowed or facts.index_bits == 32 or fits.constant == 1):
        return f"{extent} may be more than {limit}"
    stop = end_inside(kernel, rows, extent, limit)
    if isinstance(stop, str):
        return stop
    maps: dict[int, TensorMapPlan] = {}
    for width in panels.widths:
        extents = [None if not isinstance(c, Span) else ROWS if d == axis else width for d, c in enumerate(coords)]
        found = ragged_map(op, axis, stop, extents, SWIZZLES[width], known)
        if isinstance(found, str):
            return found
        maps[width] = found
    return RaggedStore(maps, fits)


def described(op: tile.Store, taken: StoreWay, prices: Mapping[StoreWay, float], without: str) -> str:
    """A line of the plan: the way that was taken, and what the others would have cost, or why one does not exist."""
    others = [f"{way.value}: {cycles:.0f}" for way, cycles in prices.items() if way is not taken]
    others += [f"not {StoreWay.CLIPPED.value}: {without}"] if without else []
    return f"store to {tensor_name(op)}: {taken.value}: {prices[taken]:.0f} cycles a tile ({'; '.join(others)})"
