"""Shared-memory layouts that no descriptor produces, factored: L = L_desc . L_resid.

A tensor copy writes a tile to shared memory in one of a few layouts D. A requested layout L that is none of them is
reached by a residual R = L . D^-1, a permutation of shared-memory offsets. Threads that read through registers may fold
R into their addresses, so that nothing moves. Otherwise a warpgroup applies it: vectors are loaded as D has them,
exchanged between registers by the cheapest plan (nothing, moves, lane shuffles, ldmatrix and stmatrix, a round trip)
and stored as L wants them::

    global --tensor copy--> D --ld.shared--> registers --conversion--> registers --st.shared--> L

Layouts are maps from the index of a tile coordinate, innermost axis fastest, to an offset in elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import gcd, prod

from tilewright.base.verdict import Factored, Illegal, Legal, Legality, Unknown
from tilewright.diag import fail
from tilewright.hw.target import SM90A, Target
from tilewright.hw.tensormap import PATTERNS
from tilewright.layout.conversion import conversion_plan
from tilewright.layout.conversion_plan import ConversionPlan, PlanKind
from tilewright.layout.cute import CuteLayout
from tilewright.layout.equality import Equal, ProofKind, equal, f2_of
from tilewright.layout.f2 import F2Layout
from tilewright.layout.register import LANES, RegisterLayout
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle
from tilewright.legal.facts import Facts
from tilewright.legal.reading import reading, vector_along
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tma import TensorMapPlan, TileAccess, candidates

SharedLayout = CuteLayout | ComposedLayout | F2Layout
WARPS = 4
LANE_ROWS = 8
BARRIER_CYCLES = 30
BOXES_TRIED = 2
"""Shapes of a warp's box that are priced: wide boxes have fewer bank conflicts on one side of the move, tall ones on
the other."""


class ResidualCarrier(Enum):
    """The instructions that apply the residual permutation."""

    READERS = "readers address the shared-memory tile"
    REGISTERS = "registers"
    SHUFFLES = "lane shuffles"
    MATRIX = "stmatrix and ldmatrix"
    SHARED = "a round trip through shared memory"


_CARRIER = {
    PlanKind.NOTHING: ResidualCarrier.REGISTERS,
    PlanKind.PERMUTE: ResidualCarrier.REGISTERS,
    PlanKind.SELECT: ResidualCarrier.REGISTERS,
    PlanKind.SHUFFLE: ResidualCarrier.SHUFFLES,
    PlanKind.MATRIX: ResidualCarrier.MATRIX,
    PlanKind.SHARED: ResidualCarrier.SHARED,
}


@dataclass(frozen=True)
class Rewrite:
    """A tile moved by a warpgroup from one layout in shared memory to another.

    ``load`` maps threads and registers to the elements they read, ``load_vector`` at a time; ``store`` likewise for
    writes. Dimension 0 of both is the tile's innermost axis, dimension 1 all others.
    """

    load: RegisterLayout
    load_vector: int
    conversion: ConversionPlan
    store: RegisterLayout
    store_vector: int


@dataclass(frozen=True)
class FactoredPlan:
    """The descriptor's part and the rest.

    ``residual`` maps offsets of the copied tile to requested ones: an F2 layout, or a table where extents are no
    powers of two (-1 where the copied tile has padding). ``proof`` is how ``requested == residual . copied`` was
    decided. ``cycles`` is the price of one tile, on one SM.
    """

    plan: TensorMapPlan
    copied: SharedLayout
    residual: F2Layout | tuple[int, ...]
    proof: ProofKind
    carrier: ResidualCarrier
    rewrite: Rewrite | None
    cycles: int


def factor(
    access: TileAccess,
    requested: SharedLayout,
    facts: Facts | None = None,
    target: Target = SM90A,
    reader: RegisterLayout | None = None,
) -> Legality[TensorMapPlan | FactoredPlan]:
    """A plan that copies ``access`` as ``requested`` says; else a plan with a residual, the cheapest found.

    ``reader`` is the register layout in which the tile is consumed, if it is: then no bytes move, and the copied tile
    with the fewest bank conflicts is taken. TMA070 for a layout of another size, or with two elements at one place.
    """
    tile = prod(t for t in access.tile if t is not None)
    offsets = offsets_of(requested)
    if len(offsets) != tile or len(set(offsets)) != tile:
        fail("TMA070", found=f"{len(set(offsets))} places for {tile} elements", required="a place for each element")
    found = candidates(access, facts or Facts(), target, limit=8)
    options: list[_Option] = []
    for plan in found.plans:
        copied = smem_layout(plan.shared)
        if isinstance(equal(requested, copied), Equal):
            return Legal(plan)
        options.extend(_options(plan, copied, offsets, reader))
    if not options and found.plans:
        return Unknown(
            f"a rewriting of {found.plans[0].shared} as {requested}",
            "the tile is no multiple of what 32 lanes hold in any shape",
            "a tile whose extents are multiples of powers of two with a product of 32",
        )
    if not options:
        return Illegal(found.core)
    best = min(options, key=lambda option: option.cycles)
    residual, proof = residual_of(best.copied, requested)
    fields = FactoredPlan(best.plan, best.copied, residual, proof, best.carrier, best.rewrite, best.cycles)
    return Factored(fields, f"{best.carrier.value}, {best.cycles} cycles a tile")


def smem_layout(tile: SmemTile) -> CuteLayout | ComposedLayout:
    """The layout of a shared-memory tile, in elements."""
    row = tile.panel
    panels = -(-tile.extents[0] // tile.panel)
    inner = (tile.panel, panels) if panels > 1 else tile.extents[0]
    steps: list[int] = [row]
    for extent in tile.extents[1:-1]:
        steps.append(steps[-1] * extent)
    strides = (1, tile.panel_bytes // tile.element_bytes) if panels > 1 else 1
    layout = CuteLayout((inner, *tile.extents[1:]), (strides, *steps[: len(tile.extents) - 1]))
    pattern = PATTERNS[tile.swizzle]
    if not pattern.pairs:
        return layout
    bits = len(pattern.pairs)
    return ComposedLayout(CuteSwizzle(bits, 4, 3).recast(8, 8 * tile.element_bytes), 0, layout)


def offsets_of(layout: SharedLayout) -> list[int]:
    """The offset of every index."""
    return [layout(i) for i in range(1 << layout.in_bits)] if isinstance(layout, F2Layout) else layout.offsets()


def residual_of(copied: SharedLayout, requested: SharedLayout) -> tuple[F2Layout | tuple[int, ...], ProofKind]:
    """R with ``requested == R . copied``, and how that was decided."""
    places, wanted = offsets_of(copied), offsets_of(requested)
    if _is_linear(places) and _is_linear(wanted) and max(places) == len(places) - 1:
        first, second = _linear(copied), _linear(requested)
        table = first.invert().compose(second)
        proof = equal(first.compose(table), second)
        assert isinstance(proof, Equal), "an inverse composed with what it inverts"
        return table, proof.proof
    listed = [-1] * (max(places) + 1)
    for place, target in zip(places, wanted, strict=True):
        listed[place] = target
    return tuple(listed), ProofKind.ENUMERATED


def _is_linear(offsets: Sequence[int]) -> bool:
    n = len(offsets)
    if n & (n - 1) or offsets[0]:
        return False
    return all(offsets[i] == offsets[i & (i - 1)] ^ offsets[i & -i] for i in range(1, n))


def _linear(layout: SharedLayout) -> F2Layout:
    if isinstance(layout, F2Layout):
        flat = layout.flatten_ins().flatten_outs()
        return flat.rename({flat.in_names[0]: "index"}, {flat.out_names[0]: "offset"})
    return f2_of(layout)


@dataclass(frozen=True)
class _Option:
    """One priced factorisation."""

    plan: TensorMapPlan
    copied: SharedLayout
    carrier: ResidualCarrier
    rewrite: Rewrite | None
    cycles: int


def _options(
    plan: TensorMapPlan, copied: SharedLayout, offsets: list[int], reader: RegisterLayout | None
) -> Iterator[_Option]:
    places = offsets_of(copied)
    size = plan.shared.element_bytes
    extents = (plan.shared.extents[0], prod(plan.shared.extents[1:]))
    if reader is not None:
        vector = min(vector_along(places, extents, 0, size), reader.contiguous_registers(0))
        cycles = reading(reader, vector, places, extents, size).cycles
        yield _Option(plan, copied, ResidualCarrier.READERS, None, cycles)
        return
    for rewrite, cycles in rewrites(places, offsets, extents, size):
        yield _Option(plan, copied, _CARRIER[rewrite.conversion.kind], rewrite, cycles)


def rewrites(
    places: list[int], offsets: list[int], extents: tuple[int, int], size: int
) -> Iterator[tuple[Rewrite, int]]:
    """Candidate rewrites of a tile from ``places`` to ``offsets`` (in elements, by index of a coordinate of
    ``extents``), each with its cycles on one SM."""
    for rewrite in _rewrites(places, offsets, extents, size):
        cycles = reading(rewrite.load, rewrite.load_vector, places, extents, size).cycles
        cycles += reading(rewrite.store, rewrite.store_vector, offsets, extents, size).cycles
        yield rewrite, cycles + rewrite.conversion.cost.cycles + BARRIER_CYCLES


def _rewrites(places: list[int], offsets: list[int], extents: tuple[int, int], size: int) -> Iterator[Rewrite]:
    """Warps that load vectors along the innermost axis and store vectors along either, in the two squarest boxes."""
    tried = 0
    for box in _boxes(extents, vector_along(places, extents, 0, size)):
        for axis in (0, 1):
            vector = vector_along(offsets, extents, axis, size)
            if axis == 1 and vector == 1:
                continue  # single elements are stored as they were loaded
            load, store = box.blocked(0, box.vector), box.blocked(axis, vector)
            if store is not None and load is not None:
                stored = min(vector, store.contiguous_registers(axis))
                yield Rewrite(load, box.vector, _conversion(load, store, size), store, stored)
        tried += 1
        if tried == BOXES_TRIED:
            return


@dataclass(frozen=True)
class _Box:
    """The part of a tile that a warp holds at once: ``vector`` elements a lane, lanes in ``rows`` rows; ``warps`` along
    each axis."""

    extents: tuple[int, int]
    vector: int
    rows: int
    warps: tuple[int, int]

    def blocked(self, axis: int, vector: int) -> RegisterLayout | None:
        """The box held in vectors along ``axis``, at most of ``vector`` elements."""
        inner = self.vector * (LANES // self.rows)
        if axis == 0:
            lanes, vectors = (LANES // self.rows, self.rows), (self.vector, 1)
        else:
            part = gcd(vector, self.rows)
            lanes, vectors = (inner, self.rows // part), (1, part)
        if prod(lanes) > LANES:  # the rest of the box in further registers
            lanes = (LANES // lanes[1], lanes[1])
        elif prod(lanes) < LANES:
            return None
        return RegisterLayout.blocked(self.extents, vector=vectors, lanes=lanes, warps=self.warps, order=(0, 1))


def _boxes(extents: tuple[int, int], widest: int) -> Iterator[_Box]:
    """Boxes that divide the tile, widest vectors and squarest lanes first."""
    vector = widest
    while vector:
        for rows in (LANE_ROWS, 4, 16, 2, LANES, 1):
            inner = vector * (LANES // rows)
            if extents[1] % rows == 0 and extents[0] % inner == 0:
                along = gcd(WARPS, extents[1] // rows)
                yield _Box(extents, vector, rows, (gcd(WARPS // along, extents[0] // inner), along))
        vector //= 2


_conversion = lru_cache(maxsize=64)(conversion_plan)
