"""Epilogue tiles (panels): where 16-bit tiles that lie as accumulators do pass through shared memory on their way out.

The columns of a tile are cut into panels as wide as a swizzle spans, the widest first::

    208 columns     64 | 64 | 64 | 16       swizzles of 128, 128, 128 and 32 bytes

Each consumer warpgroup fills panels of its 64 rows by stmatrix, and has room for two: one is filled while the other is
still read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from xdsl.ir import SSAValue

from tilewright.base.expr import Expr, Sym
from tilewright.hw.tensormap import Swizzle
from tilewright.layout.shared import SharedTile
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.schedule.hopper.operands import ROWS
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

EPILOGUE_STAGES = 2
EPILOGUE_STAGE_BYTES = 8192
"""64 rows of 128 bytes."""
WARPGROUP_BARRIER = 1
"""Named barrier of the first consumer warpgroup; the others' follow."""
CHUNK = 8
"""16-bit elements of one row of a matrix."""
SWIZZLES = {64: Swizzle.B128, 32: Swizzle.B64, 16: Swizzle.B32, CHUNK: Swizzle.NONE}
"""Columns of a panel, and the swizzle that spans them: 8 rows of a matrix lie in different banks in each."""

TID = Sym(t.THREAD)


@dataclass(frozen=True)
class EpilogueTile:
    """Columns of a block of 64 rows; of its kind it is number ``number`` in the tile."""

    block: int
    start: int
    width: int
    number: int

    @property
    def layout(self) -> SharedTile:
        """Where its elements lie."""
        return layout_of(self.width)


@dataclass(frozen=True)
class AccumulatorTile:
    """A stored tile that lies as accumulators do: ``columns`` in ``blocks`` of 64 rows of each warpgroup."""

    op: tile.Store
    columns: int
    blocks: int

    @staticmethod
    def of(placement: Placement, op: tile.Store) -> AccumulatorTile | None:
        """The stored value's, if it has 16-bit elements that lie so."""
        value = op.value
        axes = placement.axes_of[value]
        if element(value).bits != 16 or len(axes) != 2 or None in axes:
            return None
        m, n = axes
        assert m is not None
        assert n is not None
        rows, columns = placement.home.by_class[m], placement.home.by_class[n]
        if rows.thread_bits[:5] != (2, 3, 4, 5, 6) or columns.thread_bits != (0, 1) or columns.covered % CHUNK:
            return None
        return AccumulatorTile(op, columns.covered, rows.repeats)

    @property
    def widths(self) -> dict[int, list[int]]:
        """The first columns of the panels of each width."""
        return cut(self.columns)

    @property
    def side_by_side(self) -> Iterator[EpilogueTile]:
        """All panels, block by block."""
        for block in range(self.blocks):
            for width, starts in self.widths.items():
                yield from (EpilogueTile(block, s, width, block * len(starts) + i) for i, s in enumerate(starts))

    @property
    def kind_by_kind(self) -> Iterator[EpilogueTile]:
        """All panels, those of one width after the others."""
        yield from sorted(self.side_by_side, key=lambda panel: -panel.width)

    def registers(self, panel: EpilogueTile) -> tuple[int, int]:
        """A thread's first register of a panel, and how many it has: two of each row of each matrix."""
        return (panel.block * self.columns + panel.start) // 2, panel.width // 2

    def ahead(self, lowering: RoleContext, panels: Sequence[EpilogueTile]) -> Iterator[tuple[int, EpilogueTile]]:
        """The panels, numbered; what only the store needs of memory is loaded one panel ahead of its use. Not where
        warpgroups take turns: the products of the other hide the wait, and registers hold a whole tile already."""
        early = lowering.configuration.candidate.ping_pong == 1
        for panel in panels[:1] if early else ():
            lowering.fetch_late(self.op, *self.registers(panel))
        for number, panel in enumerate(panels):
            for following in panels[number + 1 : number + 2] if early else ():
                lowering.fetch_late(self.op, *self.registers(following))
            yield number, panel

    def fill(self, lowering: RoleContext, panel: EpilogueTile, base: Expr, computed: SSAValue | None = None) -> None:
        """Writes a panel's part of the tile at byte ``base``; computes it first unless ``computed`` holds it. A thread
        has two registers of each of the matrices."""
        source, at = (computed, 0) if computed else lowering.chunk(self.op.value, self.op, *self.registers(panel))
        shared = epilogue_buffer(lowering, self.op)
        for register, matrices, offset in _matrices(panel.width):
            lowering.emit(
                a.StoreMatrix(
                    shared,
                    source,
                    first=at + register,
                    base=base,
                    offset=offset,
                    bytes=panel.layout.size_bytes,
                    matrices=matrices,
                ),
                self.op,
            )


def cut(columns: int) -> dict[int, list[int]]:
    """The first columns of the panels of each width, the widest first, of so many columns: a multiple of 8."""
    found: dict[int, list[int]] = {}
    start = 0
    for width in SWIZZLES:
        while columns - start >= width:
            found.setdefault(width, []).append(start)
            start += width
    return found


def epilogue_buffer(lowering: RoleContext, op: tile.Store) -> SSAValue:
    """The shared memory of all warpgroups' epilogue tiles."""
    if lowering.panels is None:
        shared = t.Shared("panels", element(op.value), epilogue_bytes(lowering.configuration.consumers) // 2, 0)
        lowering.shared.append(shared)
        lowering.panels = shared.buffer
    return lowering.panels


def epilogue_bytes(warpgroups: int) -> int:
    """Shared memory for the panels of so many warpgroups."""
    return EPILOGUE_STAGES * EPILOGUE_STAGE_BYTES * warpgroups


def stage_offset(lowering: RoleContext, number: Expr | int) -> Expr:
    """Byte of the warpgroup's ``number``-th panel: two places, in turn."""
    return (lowering.number * EPILOGUE_STAGES + number % EPILOGUE_STAGES) * EPILOGUE_STAGE_BYTES


def warpgroup_barrier(lowering: RoleContext) -> a.NamedBarrierSync:
    """A barrier of the warpgroup's threads."""
    return a.NamedBarrierSync(WARPGROUP_BARRIER + lowering.number, a.WARPGROUP_THREADS)


@cache
def layout_of(width: int) -> SharedTile:
    """Where the elements of a panel of ``width`` columns lie."""
    return SharedTile.swizzled(ROWS, width, 2, SWIZZLES[width])


@cache
def _matrices(width: int) -> tuple[tuple[int, int, Expr], ...]:
    """How a panel is filled: the first register, the number of matrices and the place in the panel of each stmatrix.

    Four matrices each, two rows of them by two chunks, or two where the panel is one chunk wide.
    """
    chunks = min(2, width // CHUNK)
    row, chunk = TID // 32 % 4 * 16 + TID % 16, TID // 16 % chunks
    return tuple(
        (4 * begin, 2 * chunks, layout_of(width).offset_expr(row, (chunk + begin) * CHUNK))
        for begin in range(0, width // CHUNK, chunks)
    )
