"""Layouts as grids of cells with text and a colour group, independent of the output format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tilewright.diag import fail
from tilewright.hw.banks import BANK_BYTES
from tilewright.layout.banks import WaveAccess
from tilewright.layout.cute import CuteLayout
from tilewright.layout.register import RegisterLayout
from tilewright.layout.shared import SharedTile
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle

Drawable: TypeAlias = CuteLayout | ComposedLayout | SharedTile | RegisterLayout | WaveAccess
MAX_CELLS = 64
GROUPS = 8


@dataclass(frozen=True)
class GridCell:
    """``text`` (one or two lines) and ``group``, a colour number in [0, GROUPS)."""

    text: tuple[str, ...]
    group: int


@dataclass(frozen=True)
class Grid:
    """``cells[row][column]`` with a title and a legend of the colours."""

    title: str
    legend: str
    cells: tuple[tuple[GridCell, ...], ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.cells)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.cells[0])


def read_layout(text: str, swizzle: str | None = None) -> CuteLayout | ComposedLayout:
    """A layout as typed on a command line: ``(8,8):(8,1)`` and a swizzle ``3,4,3`` (LAY013, LAY011)."""
    layout = CuteLayout.parse(text)
    return layout if swizzle is None else ComposedLayout(read_swizzle(swizzle), 0, layout)


def read_swizzle(swizzle: str) -> CuteSwizzle:
    """A swizzle as typed on a command line: ``3,4,3`` (LAY013, LAY011)."""
    parts = swizzle.split(",")
    if len(parts) != 3 or not all(re.fullmatch(r"\s*-?[0-9]{1,9}\s*", p) for p in parts):
        fail(
            "LAY013",
            title="the swizzle cannot be read",
            found=repr(swizzle[:60]),
            required="three integers B,M,S",
            help="write --swizzle 3,4,3",
        )
    bits, base, shift = map(int, parts)
    return CuteSwizzle(bits, base, shift)


def grid_of(layout: Drawable) -> Grid:
    """The grid of a layout: mode 0 downwards, mode 1 to the right (LAY018 beyond 64 x 64, LAY002 beyond two modes)."""
    match layout:
        case RegisterLayout():
            return register_grid(layout)
        case WaveAccess():
            return bank_grid(layout)
        case SharedTile():
            rows, columns = _fitting(layout.shape)
            table = [[layout.offset(i, j) for j in range(columns)] for i in range(rows)]
            title = f"{rows} x {columns}, {layout.element_bytes} B, swizzle {layout.mode.name}"
            chunks = [[(x // 16) % GROUPS for x in row] for row in table]
            return Grid(title, "colour: 16-byte column of the 128-byte line", _offset_cells(table, chunks))
        case CuteLayout() | ComposedLayout():
            inner = layout if isinstance(layout, CuteLayout) else layout.layout
            sizes = [m.size for m in inner.modes]
            rows, columns = _fitting([s if isinstance(s, int) else _symbolic(inner) for s in sizes])
            table = layout.offsets()
            offsets = [[table[i + j * rows] for j in range(columns)] for i in range(rows)]
            unit = _unit(layout)
            bands = [[(x // unit) % GROUPS for x in row] for row in offsets]
            return Grid(str(layout), f"colour: offset // {unit} % {GROUPS}", _offset_cells(offsets, bands))


def owners_of(layout: RegisterLayout) -> dict[tuple[int, int], tuple[int, int]]:
    """Thread and register of every element of a tile of one or two axes; the lowest thread of those that hold
    copies."""
    owners: dict[tuple[int, int], tuple[int, int]] = {}
    for thread in range(layout.threads):
        for register in range(layout.registers):
            where = layout.coordinate(thread, register)
            owners.setdefault((where[0], where[1]) if layout.rank == 2 else (0, where[0]), (thread, register))
    return owners


def register_grid(layout: RegisterLayout, corner: tuple[int, int] | None = None) -> Grid:
    """The grid of a register layout, or of its first ``corner`` rows and columns (LAY018, LAY002 as ``grid_of``)."""
    shape = layout.shape
    if corner is not None and layout.rank <= 2:
        shape = tuple(map(min, shape, corner[-layout.rank :]))
    rows, columns = _fitting(shape)
    owners = owners_of(layout)
    cells = tuple(
        tuple(GridCell((f"T{t}", f"r{r}"), t % GROUPS) for t, r in (owners[i, j] for j in range(columns)))
        for i in range(rows)
    )
    title = f"{' x '.join(map(str, layout.shape))} in {layout.threads} threads, {layout.registers} registers each"
    return Grid(title, f"colour: thread % {GROUPS}; of copies the first thread is shown", cells)


FREE, SERVED, CONFLICT = 7, 2, 3
"""Colours of a bank that no lane accesses, that serves one word, and that must serve several."""


def bank_grid(access: WaveAccess) -> Grid:
    """Bank accesses, phases downwards and banks to the right: the first lane that accesses the bank, and how many words
    the bank must serve where that is more than one."""
    row = access.access
    cells: list[tuple[GridCell, ...]] = []
    for group in row.groups or ():
        wanted: list[dict[int, int]] = [{} for _ in range(row.banks)]
        for lane in group:
            first = access.addresses[lane] // BANK_BYTES
            last = (access.addresses[lane] + row.bytes_per_lane - 1) // BANK_BYTES
            for word in range(first, last + 1):
                wanted[word % row.banks].setdefault(word, lane)
        cells.append(tuple(_bank_cell(words) for words in wanted))
    return Grid(
        f"{access.label} on {row.architecture}: {access.cost.total} cycles in {row.phases} phases",
        "rows: phases, columns: banks; T: the first lane, x: words of one bank, one cycle each",
        tuple(cells),
    )


def _bank_cell(words: dict[int, int]) -> GridCell:
    if not words:
        return GridCell(("",), FREE)
    lane, count = min(words.values()), len(words)
    return GridCell((f"T{lane}",), SERVED) if count == 1 else GridCell((f"T{lane}", f"x{count}"), CONFLICT)


def _unit(layout: CuteLayout | ComposedLayout) -> int:
    """Offsets that share a colour: the run of elements that a swizzle keeps together, so that its permutation is
    visible."""
    swizzle = layout.outer if isinstance(layout, ComposedLayout) else None
    return 1 << swizzle.base if isinstance(swizzle, CuteSwizzle) else 1


def _offset_cells(table: list[list[int]], groups: list[list[int]]) -> tuple[tuple[GridCell, ...], ...]:
    return tuple(
        tuple(GridCell((str(x),), g) for x, g in zip(row, colours, strict=True))
        for row, colours in zip(table, groups, strict=True)
    )


def _fitting(shape: Sequence[int]) -> tuple[int, int]:
    if not 1 <= len(shape) <= 2:
        fail(
            "LAY002",
            title="a picture has two dimensions",
            found=f"{len(shape)} modes",
            required="one or two",
            help="slice or group the layout's modes",
        )
    rows, columns = (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])
    if max(rows, columns) > MAX_CELLS:
        fail(
            "LAY018",
            found=f"{rows} x {columns} = {prod(shape)} cells",
            required=f"at most {MAX_CELLS} x {MAX_CELLS}",
            help="slice the layout, or draw one atom of it",
        )
    return rows, columns


def _symbolic(layout: CuteLayout) -> int:
    return fail(
        "LAY010",
        title="a layout with symbols has no picture",
        found=str(layout),
        required="integer extents and strides",
        help="put numbers for the symbols",
    )
