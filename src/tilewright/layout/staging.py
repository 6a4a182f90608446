"""The round trip through shared memory: a staging tile with few bank conflicts, its accesses and their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tilewright.base.expr import TRUE, Expr, Interval, Sym, expr, simplify
from tilewright.hw import fragments as facts
from tilewright.hw.banks import wavefronts
from tilewright.hw.spaces import Grain
from tilewright.hw.tensormap import PATTERNS
from tilewright.hw.tensormap import Swizzle as SwizzleMode
from tilewright.layout.plan import (
    Access,
    ConversionPlan,
    Cost,
    MatrixAccess,
    PlanKind,
    SharedPlan,
    VectorAccess,
)
from tilewright.layout.register import LANES, RegisterLayout
from tilewright.layout.shared import SharedTile

MAX_VECTOR_BYTES = 16
"""Widest shared-memory access of a thread (PTX ISA, ld.shared vectors)."""

SAMPLE = 8
"""Accesses whose bank cycles are counted for each candidate: enough to see a conflict, few enough to plan in time."""


def shared_plan(
    source: RegisterLayout, target: RegisterLayout, element_bytes: int, thread: Sym, *, same_warp: bool
) -> ConversionPlan:
    """The cheapest round trip over all staging tiles."""
    best: tuple[int, int, _Stage] | None = None
    for stage in _stages(source, target, element_bytes, thread):
        key = (stage.wavefronts, stage.tile.size_bytes)
        if best is None or key < best[:2]:
            best = (*key, stage)
    assert best is not None, "a plain tile always stages"
    stage = best[2]
    plan = SharedPlan(
        stage.tile, tuple(stage.store.accesses()), Grain.WARP if same_warp else Grain.CTA, tuple(stage.load.accesses())
    )
    matrix = any(isinstance(a, MatrixAccess) for a in (*plan.stores, *plan.loads))
    cost = Cost(wavefronts=stage.wavefronts, barriers=1, shared_bytes=stage.tile.size_bytes)
    return ConversionPlan(PlanKind.MATRIX if matrix else PlanKind.SHARED, element_bytes, plan, cost)


@dataclass(frozen=True)
class _Stage:
    tile: SharedTile
    store: _Side
    load: _Side

    @cached_property
    def wavefronts(self) -> int:
        return self.store.wavefronts + self.load.wavefronts


def _stages(source: RegisterLayout, target: RegisterLayout, size: int, thread: Sym) -> Iterator[_Stage]:
    for fast in range(source.rank):
        rows, columns = prod(source.shape) // source.shape[fast], source.shape[fast]
        for tile in _tiles(rows, columns, size):
            store = _Side(source, tile, fast, thread, owners_only=True)
            yield _Stage(tile, store, _Side(target, tile, fast, thread, owners_only=False))


def _tiles(rows: int, columns: int, size: int) -> Iterator[SharedTile]:
    yield SharedTile.plain(rows, columns, size)
    if columns * size % MAX_VECTOR_BYTES == 0:
        yield SharedTile.padded(rows, columns, size, MAX_VECTOR_BYTES)
    for mode in (SwizzleMode.B128, SwizzleMode.B64, SwizzleMode.B32):
        pattern = PATTERNS[mode]
        row_bytes = columns * size
        if row_bytes % pattern.span_bytes == 0 and rows * row_bytes % pattern.repeat_bytes == 0:
            yield SharedTile.swizzled(rows, columns, size, mode)


@dataclass(frozen=True)
class _Side:
    """One layout's accesses to the staging tile, whose rows run over all dimensions but ``fast``."""

    layout: RegisterLayout
    tile: SharedTile
    fast: int
    thread: Sym
    owners_only: bool

    @property
    def vector(self) -> int:
        """Elements of one vector access."""
        aligned = self.tile.pitch_bytes & -self.tile.pitch_bytes
        widest = min(MAX_VECTOR_BYTES, aligned) // self.tile.element_bytes
        return max(1, min(self.layout.contiguous_registers(self.fast), widest))

    @cached_property
    def matrix_rows(self) -> int | None:
        """The dimension along which rows of 8x8 matrices lie, when ldmatrix and stmatrix fit; None when not."""
        if self.tile.element_bytes != 2 or self.tile.pitch_bytes % facts.MATRIX_ROW_BYTES or self.layout.rank < 2:
            return None
        for other in range(self.layout.rank):
            if other != self.fast and (self._holds(self.fast, other) or self._holds(other, self.fast)):
                return other
        return None

    @property
    def trans(self) -> bool:
        """Pairs of elements run along the rows' dimension, not along the fast one."""
        return self.matrix_rows is not None and not self._holds(self.fast, self.matrix_rows)

    def _holds(self, pairs: int, lanes: int) -> bool:
        """The atom's first bits are an 8x8 matrix: register pairs and two lane bits along ``pairs``, three lane bits
        along ``lanes``; nothing else moves within it."""
        atom, layout = self.layout.atom, self.layout
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

    # -- places in the tile ---------------------------------------------------------------------------------------
    def place(self, coordinate: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Row and column of a coordinate."""
        row: Expr = expr(0)
        for dim, value in enumerate(coordinate):
            if dim != self.fast:
                row = row * self.layout.shape[dim] + value
        return row, coordinate[self.fast]

    def offset(self, coordinate: Sequence[int]) -> int:
        """Byte offset of a coordinate."""
        row = 0
        for dim, value in enumerate(coordinate):
            if dim != self.fast:
                row = row * self.layout.shape[dim] + value
        return self.tile.offset(row, coordinate[self.fast])

    @property
    def bounds(self) -> dict[str, Interval]:
        """What is known of the thread index."""
        return {self.thread.name: (0, self.layout.threads - 1)}

    def address(self, coordinate: Sequence[Expr]) -> Expr:
        """Byte offset of a coordinate as an expression."""
        known = self.bounds
        row, column = self.place([simplify(c, known) for c in coordinate])
        return self.tile.offset_expr(row, column, bounds=known)

    # -- accesses -------------------------------------------------------------------------------------------------
    def accesses(self) -> Iterator[Access]:
        """Every access, in register order."""
        if self.matrix_rows is None:
            yield from self._vectors()
        else:
            yield from self._matrices(self.matrix_rows)

    def _vectors(self) -> Iterator[Access]:
        predicate = self.layout.owner_predicate(self.thread) if self.owners_only else TRUE
        for first in range(0, self.layout.registers, self.vector):
            if not self._stored(first):
                continue
            registers = tuple(range(first, first + self.vector))
            yield VectorAccess(self.address(self.layout.coordinates(self.thread, first)), registers, predicate)

    def _matrices(self, rows: int) -> Iterator[Access]:
        first, left = 0, self.layout.registers // 2
        while left:
            count = next(n for n in facts.MATRIX_COUNTS if n <= left)
            yield MatrixAccess(
                self.address(self._row_of_lane(rows, first, count)),
                tuple(range(first, first + 2 * count, 2)),
                self.trans,
            )
            first, left = first + 2 * count, left - count

    def _row_of_lane(self, rows: int, first: int, count: int) -> list[Expr]:
        """Lane 8*i + r gives row r of matrix i (PTX ISA, ldmatrix); lanes beyond the last matrix repeat."""
        lane = expr(self.thread)  # a warp is 32 = 4 * 8 threads, so its fields are fields of the thread index
        matrix = (lane // 8) % count
        start = list(self.layout.coordinates(expr(self.thread) // LANES * LANES, matrix * 2 + first))
        start[rows] = start[rows] + lane % 8
        return start

    # -- cost -----------------------------------------------------------------------------------------------------
    @cached_property
    def wavefronts(self) -> int:
        """Bank cycles of one warp for all its accesses, scaled up from a sample of the first warp's."""
        step = 2 if self.matrix_rows is not None else self.vector
        every = [r for r in range(0, self.layout.registers, step) if self._stored(r)]
        sample = every[:: -(-len(every) // SAMPLE)]
        cycles = sum(map(self._cycles, sample))
        return -(-cycles * len(every) // len(sample))

    def _stored(self, register: int) -> bool:
        return not self.owners_only or self.layout.is_owner_register(register)

    def _cycles(self, first: int) -> int:
        """Bank cycles of the access that starts at one register, or of one matrix."""
        if self.matrix_rows is None:
            lanes = [self.offset(self.layout.coordinate(t, first)) for t in range(LANES)]
            return wavefronts(lanes, self.vector * self.tile.element_bytes)
        start = self.layout.coordinate(0, first)
        rows = [self.offset([x + (r if d == self.matrix_rows else 0) for d, x in enumerate(start)]) for r in range(8)]
        return wavefronts(rows, facts.MATRIX_ROW_BYTES)
