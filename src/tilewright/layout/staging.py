"""Layout conversion through shared memory: the tile's layout there, the accesses and their addresses.

The tile is stored in rows along one dimension; ``synthesis`` finds the swizzle or padding with which stores and loads
together take the fewest bank cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr, Interval, all_of, expr, simplify
from tilewright.hw.banks import BANK_BYTES, LINE_BYTES
from tilewright.hw.spaces import ThreadGroup
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.hw.target.sm_80 import MATRIX_COUNTS, MATRIX_ROW_BYTES
from tilewright.layout.banks import WaveAccess, instruction
from tilewright.layout.conversion_plan import (
    REGISTER,
    THREAD,
    Access,
    ConversionCost,
    ConversionPlan,
    MatrixInstruction,
    Pick,
    PlanKind,
    RegisterPlan,
    SharedPlan,
    SharedSide,
    VectorAccesses,
)
from tilewright.layout.register import LANES, RegisterLayout
from tilewright.layout.register_order import Arranged, arranged
from tilewright.layout.shared import SharedTile
from tilewright.layout.synthesis import Family, SwizzleConstraints, Synthesis, synthesise_swizzle
from tilewright.layout.xor_swizzle import PaddedRows, XorSwizzle

SAMPLE = 8
"""Accesses whose bank cycles are counted for each candidate: enough to see a conflict, few enough to plan in time."""

NODES = 1000
"""Branches of the search for a swizzle: some milliseconds. Without a proof padding may still be found better."""

TARGET = "sm_90a"
"""The architecture whose bank model is used; the NVIDIA rows are the same for all."""


def shared_plan(
    source: RegisterLayout,
    target: RegisterLayout,
    element_bytes: int,
    *,
    same_warp: bool,
    matrices: bool = True,
) -> ConversionPlan:
    """The cheapest round trip over all dimensions that may lie contiguously. The layouts' boxes may differ."""
    box = tuple(max(a, b) for a, b in zip(source.shape, target.shape, strict=True))
    whole = all(a >= b for a, b in zip(source.shape, target.shape, strict=True))
    trips = [_Trip.of(source, target, box, element_bytes, fast, matrices) for fast in range(len(box))]
    best: tuple[int, int, _Trip, SharedTile] | None = None
    for trip in sorted(trips, key=lambda t: t.least):
        if best is not None and trip.least >= best[0]:
            break
        tile = trip.tile
        key = (trip.wavefronts(tile), tile.size_bytes)
        if best is None or key < best[:2]:
            best = (*key, trip, tile)
    assert best is not None, "a tile has a dimension"
    cycles, size, trip, tile = best
    store, load = (side.described(tile) for side in (trip.store, trip.load))
    # a copy that another warp holds is stored by the first of them alone
    alone = same_warp and source.replication.free_thread_mask < LANES
    plan = SharedPlan(tile, store, ThreadGroup.WARP if alone else ThreadGroup.CTA, load, whole)
    matrix = any(isinstance(a, MatrixInstruction) for a in (*store.accesses, *load.accesses))
    cost = ConversionCost(wavefronts=cycles, barriers=1, shared_bytes=size)
    return ConversionPlan(PlanKind.MATRIX if matrix else PlanKind.SHARED, element_bytes, plan, cost)


@dataclass(frozen=True)
class _Trip:
    """A round trip with dimension ``fast`` contiguous."""

    store: _Side
    load: _Side
    rows: int
    columns: int
    element_bytes: int

    @staticmethod
    def of(
        source: RegisterLayout,
        target: RegisterLayout,
        box: tuple[int, ...],
        size: int,
        fast: int,
        matrices: bool,
    ) -> _Trip:
        store, load = (
            _Side.of(layout, box, source.shape, fast, size, storing=storing, matrices=matrices)
            for layout, storing in ((source, True), (target, False))
        )
        return _Trip(store, load, prod(box) // box[fast], box[fast], size)

    @property
    def least(self) -> int:
        """Bank cycles without conflicts."""
        return self.store.least + self.load.least

    def wavefronts(self, tile: SharedTile) -> int:
        """Bank cycles of one warp for stores and loads together."""
        return self.store.cycles(tile) + self.load.cycles(tile)

    @cached_property
    def tile(self) -> SharedTile:
        """The tile that costs the stores and the loads least."""
        plain = SharedTile.plain(self.rows, self.columns, self.element_bytes)
        accesses = [*self.store.sampled(plain), *self.load.sampled(plain)]
        return conflict_free_tile(self.rows, self.columns, self.element_bytes, accesses)


def conflict_free_tile(
    rows: int, columns: int, element_bytes: int, accesses: Sequence[WaveAccess], *, padded: bool = False
) -> SharedTile:
    """The tile of ``rows`` x ``columns`` under which ``accesses``, given by addresses in rows without gaps, need the
    fewest cycles together: swizzled, or padded where that is better.

    ``padded``: by padding alone, so that a loop along a row or a column advances its address by a constant.
    """
    plain = SharedTile.plain(rows, columns, element_bytes)
    keep = max(element_bytes, BANK_BYTES)
    size = -(-plain.size_bytes // LINE_BYTES) * LINE_BYTES
    found: Synthesis | None = None
    if not padded:
        found = synthesise_swizzle(accesses, TARGET, SwizzleConstraints(size, keep, most_nodes=NODES))
    if found is None or not found.is_free:
        by_rows = SwizzleConstraints(size, keep, Family.PADDED, plain.pitch_bytes)
        other = synthesise_swizzle(accesses, TARGET, by_rows)
        found = other if found is None or other.cycles < found.cycles else found
    match found.swizzle:
        case XorSwizzle() as exchange:
            return SharedTile.exchanged(rows, columns, element_bytes, exchange)
        case PaddedRows(pad_bytes=pad):
            return SharedTile.padded(rows, columns, element_bytes, pad)


@dataclass(frozen=True)
class _Side:
    """One layout's accesses to the tile, whose rows run over all dimensions but ``fast``.

    ``arranged`` are the registers in the order in which they are accessed, ``width`` at a time or as matrices whose
    rows lie along ``matrix_rows``. ``held`` is the box that the source fills.
    """

    layout: RegisterLayout
    arranged: Arranged
    box: tuple[int, ...]
    held: tuple[int, ...]
    fast: int
    element_bytes: int
    width: int
    matrix_rows: int | None
    trans: bool
    storing: bool

    @staticmethod
    def of(
        layout: RegisterLayout,
        box: tuple[int, ...],
        held: tuple[int, ...],
        fast: int,
        size: int,
        *,
        storing: bool,
        matrices: bool,
    ) -> _Side:
        pitch = box[fast] * size
        alone = not (storing and layout.replication.free_thread_mask)
        if matrices and size == 2 and pitch % MATRIX_ROW_BYTES == 0 and layout.shape == box == held and alone:
            for other in (d for d in range(layout.rank) if d != fast):
                for trans in (False, True):
                    pairs, lanes = (other, fast) if trans else (fast, other)
                    order = arranged(layout, pairs, 2)
                    if _holds_matrices(order.layout, pairs, lanes):
                        return _Side(layout, order, box, held, fast, size, 2, other, trans, storing)
        aligned = min(pitch & -pitch, MAX_VECTOR_BYTES)
        inside = held[fast] & -held[fast] if held[fast] < box[fast] else aligned
        most = max(1, min(aligned // size, inside))
        order = arranged(layout, fast, most)
        width = min(most, order.layout.contiguous_registers(fast))
        return _Side(layout, order, box, held, fast, size, width, None, False, storing)

    # -- places in the tile ---------------------------------------------------------------------------------------
    def place(self, coordinate: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Row and column of a coordinate."""
        row: Expr = expr(0)
        for dim, value in enumerate(coordinate):
            if dim != self.fast:
                row = row * self.box[dim] + value
        return row, coordinate[self.fast]

    def offset(self, tile: SharedTile, coordinate: Sequence[int]) -> int:
        """Byte offset of a coordinate."""
        row = 0
        for dim, value in enumerate(coordinate):
            if dim != self.fast:
                row = row * self.box[dim] + value
        return tile.offset(row, coordinate[self.fast])

    @property
    def bounds(self) -> dict[str, Interval]:
        """The bounds of the thread index and the register."""
        return {
            THREAD.name: (0, self.layout.threads - 1),
            REGISTER.name: (0, self.arranged.layout.registers - 1),
        }

    def _address(self, tile: SharedTile, coordinate: Sequence[Expr], unit_bytes: int) -> Expr:
        known = self.bounds
        row, column = self.place([simplify(c, known) for c in coordinate])
        return tile.offset_expr(row, column, bounds=known, unit_bytes=unit_bytes)

    # -- accesses -------------------------------------------------------------------------------------------------
    def described(self, tile: SharedTile) -> SharedSide:
        """The same as plain data."""
        count = self.arranged.layout.registers
        moved = self.arranged.order if self.storing else self.arranged.back(self.layout)
        same = moved == tuple(range(self.layout.registers))
        accesses = tuple(self._accesses(tile))
        costs = [a.moved(tile.exchange).cost for a in self._waves(tile)]
        return SharedSide(
            count,
            None if same else _grouped(moved),
            accesses,
            max(c.degree for c in costs),
            sum(c.total for c in costs),
        )

    def _accesses(self, tile: SharedTile) -> Iterator[Access]:
        layout = self.arranged.layout
        if self.matrix_rows is None:
            coordinates = layout.coordinates(THREAD, REGISTER)
            offset = self._address(tile, coordinates, self.element_bytes)
            yield VectorAccesses(layout.registers, self.width, offset, self._predicate(coordinates))
            return
        first, left = 0, layout.registers // 2
        while left:
            count = next(n for n in MATRIX_COUNTS if n <= left)
            yield MatrixInstruction(first, count, self._address(tile, self._row_of_lane(first, count), 1), self.trans)
            first, left = first + 2 * count, left - count

    def _predicate(self, coordinates: Sequence[Expr]) -> Expr:
        """Stores: one of the threads that hold an element. Loads: the source has such an element."""
        if self.storing:
            return self.arranged.layout.owner_predicate(THREAD)
        beyond = zip(coordinates, self.held, self.layout.shape, strict=True)
        return simplify(all_of(x < size for x, size, mine in beyond if mine > size), self.bounds)

    def _row_of_lane(self, first: int, count: int) -> list[Expr]:
        """Lane 8*i + r gives row r of matrix i (PTX ISA, ldmatrix); lanes beyond the last matrix repeat."""
        assert self.matrix_rows is not None
        lane = expr(THREAD)  # a warp is 32 = 4 * 8 threads, so its fields are fields of the thread index
        matrix = (lane // 8) % count
        start = list(self.arranged.layout.coordinates(expr(THREAD) // LANES * LANES, matrix * 2 + first))
        start[self.matrix_rows] = start[self.matrix_rows] + lane % 8
        return start

    # -- cost -----------------------------------------------------------------------------------------------------
    @property
    def _op(self) -> str:
        if self.matrix_rows is not None:
            return f"{'st' if self.storing else 'ld'}matrix.x1"
        bits = 8 * max(BANK_BYTES, self.width * self.element_bytes)
        return f"{'st' if self.storing else 'ld'}.shared.b{bits}"

    @property
    def _firsts(self) -> range:
        """First registers of the accesses, of single matrices."""
        return range(0, self.arranged.layout.registers, self.width)

    @property
    def least(self) -> int:
        """Bank cycles without conflicts."""
        return len(self._firsts) * instruction(TARGET, self._op).phases

    def cycles(self, tile: SharedTile) -> int:
        """Bank cycles of one warp for all its accesses, scaled up from a sample."""
        sample = self.sampled(tile)
        cycles = sum(a.moved(tile.exchange).cost.total for a in sample)
        return -(-cycles * len(self._firsts) // len(sample))

    def sampled(self, tile: SharedTile) -> list[WaveAccess]:
        """Some accesses of the first warp, by addresses in the tile before its exchange."""
        return self._waves(tile, -(-len(self._firsts) // SAMPLE))

    def _waves(self, tile: SharedTile, step: int = 1) -> list[WaveAccess]:
        plain = SharedTile(tile.rows, tile.columns, tile.element_bytes, tile.panel, tile.pitch_bytes)
        row, layout = instruction(TARGET, self._op), self.arranged.layout
        found: list[WaveAccess] = []
        for first in self._firsts[::step]:
            if self.matrix_rows is None:
                offsets = [self.offset(plain, layout.coordinate(t, first)) for t in range(LANES)]
                offsets = [x - x % row.bytes_per_lane for x in offsets]  # narrow elements share a word
            else:
                start = layout.coordinate(0, first)
                rows = [
                    [x + (t % 8 if d == self.matrix_rows else 0) for d, x in enumerate(start)] for t in range(LANES)
                ]
                offsets = [self.offset(plain, p) for p in rows]
            found.append(WaveAccess(row, tuple(offsets)))
        return found


def _holds_matrices(layout: RegisterLayout, pairs: int, lanes: int) -> bool:
    """The atom's first bits are an 8x8 matrix: register pairs and two lane bits along ``pairs``, three lane bits along
    ``lanes``; nothing else moves within it."""
    atom = layout.atom
    shift = [sum(b for _, b in atom.outs[:d]) for d in range(layout.rank)]
    want = [
        1 << shift[pairs],
        *(1 << (shift[pairs] + i) for i in (1, 2)),
        *(1 << (shift[lanes] + i) for i in range(3)),
    ]
    registers = atom.axis_columns("register")
    if not registers or [registers[0], *atom.axis_columns("lane")] != want:
        return False
    inside = 7 << shift[pairs] | 7 << shift[lanes]
    if any(c & inside for c in (*registers[1:], *atom.axis_columns("warp"))):
        return False
    return all(r.stride % 8 == 0 for r in layout.repeats if r.dim in (pairs, lanes) and r.count > 1)


def _grouped(registers: Sequence[int]) -> RegisterPlan:
    """Register moves, in the longest groups that stay together."""
    elements = 1
    while len(registers) % (2 * elements) == 0 and all(
        registers[i] % (2 * elements) == 0
        and list(registers[i : i + 2 * elements]) == list(range(registers[i], registers[i] + 2 * elements))
        for i in range(0, len(registers), 2 * elements)
    ):
        elements *= 2
    picks = tuple(Pick((registers[i],), expr(0)) for i in range(0, len(registers), elements))
    return RegisterPlan(elements, picks)
