"""Tiles in shared memory: logical coordinates to byte offsets, plain, padded or swizzled as TMA swizzles.

A tile is panels of rows: the fast dimension is cut into panels as wide as the swizzle span (TMA boxes can be no wider),
the panels lie one after the other, each row after row. The swizzle then exchanges bits of the byte offset; it repeats
every ``repeat_bytes``, so the tile starts at a multiple of that.

    row r, column c, panel width w elements:
        offset = swizzle(((c // w) * rows + r) * pitch_bytes + (c % w) * element_bytes)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from tilewright.base.expr import Expr, Interval, expr, simplify
from tilewright.diag import fail
from tilewright.hw.tensormap import PATTERNS, SwizzlePattern
from tilewright.hw.tensormap import Swizzle as SwizzleMode
from tilewright.layout.checks import extent, integer
from tilewright.layout.f2 import F2Layout


@dataclass(frozen=True)
class SharedTile:
    """A rows x columns tile (columns fastest) of ``element_bytes`` elements.

    ``panel`` is the number of columns in one panel (all of them without swizzle), ``pitch_bytes`` the distance of two
    rows in a panel, ``mode`` the swizzle. ``transposed`` says that coordinates are given as (column, row).
    """

    rows: int
    columns: int
    element_bytes: int
    panel: int
    pitch_bytes: int
    mode: SwizzleMode = SwizzleMode.NONE
    transposed: bool = False

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "element_bytes", "panel", "pitch_bytes"):
            extent(getattr(self, name), name)
        if self.columns % self.panel or self.panel * self.element_bytes > self.pitch_bytes:
            fail(
                "LAY002",
                title="panels do not tile the row",
                found=f"{self.columns} columns, panels of {self.panel}, pitch {self.pitch_bytes} B",
                required="columns % panel == 0 and panel * element_bytes <= pitch_bytes",
                help="choose a panel that divides the columns",
            )
        self._check_swizzle()

    def _check_swizzle(self) -> None:
        pattern = self.pattern
        if not pattern.pairs:
            return
        if self.pitch_bytes != pattern.span_bytes or self.size_bytes % pattern.repeat_bytes:
            rows = pattern.repeat_bytes // pattern.span_bytes
            fail(
                "LAY012",
                found=f"rows of {self.pitch_bytes} B, {self.rows} rows, {self.size_bytes} B in all",
                required=f"rows of {pattern.span_bytes} B and a multiple of {pattern.repeat_bytes} B",
                source="PTX ISA 9.1, 5.5.7",
                help=f"use panels of {pattern.span_bytes} B and a multiple of {rows} rows, or a narrower swizzle",
            )

    # -- construction ---------------------------------------------------------------------------------------------
    @staticmethod
    def plain(rows: int, columns: int, element_bytes: int) -> SharedTile:
        """Row after row without gaps."""
        return SharedTile(rows, columns, element_bytes, columns, columns * element_bytes)

    @staticmethod
    def padded(rows: int, columns: int, element_bytes: int, pad_bytes: int) -> SharedTile:
        """Row after row with ``pad_bytes`` unused bytes behind each."""
        if integer(pad_bytes, "padding") < 0:
            fail(
                "LAY001", title="padding is negative", found=str(pad_bytes), required=">= 0", help="pad with 0 or more"
            )
        return SharedTile(rows, columns, element_bytes, columns, columns * element_bytes + pad_bytes)

    @staticmethod
    def swizzled(rows: int, columns: int, element_bytes: int, mode: SwizzleMode) -> SharedTile:
        """As TMA writes boxes of ``rows`` x (span / element_bytes), one behind the other (LAY012 if it can't)."""
        if mode is SwizzleMode.NONE:
            return SharedTile.plain(rows, columns, element_bytes)
        span = PATTERNS[mode].span_bytes
        if extent(columns, "columns") * extent(element_bytes, "element_bytes") % span:
            fail(
                "LAY012",
                title="the tile's rows are not whole swizzle spans",
                found=f"{columns} x {element_bytes} B = {columns * element_bytes} B",
                required=f"a multiple of {span} B",
                source="PTX ISA 9.1, 5.5.7",
                help=f"widen the tile to {-(-columns * element_bytes // span) * span // element_bytes} columns, "
                "or use a narrower swizzle",
            )
        return SharedTile(rows, columns, element_bytes, span // element_bytes, span, mode)

    def transpose(self) -> SharedTile:
        """The same bytes addressed by (column, row)."""
        return SharedTile(
            self.rows, self.columns, self.element_bytes, self.panel, self.pitch_bytes, self.mode, not self.transposed
        )

    # -- sizes ----------------------------------------------------------------------------------------------------
    @property
    def pattern(self) -> SwizzlePattern:
        """The hardware's exchange of address bits."""
        return PATTERNS[self.mode]

    @property
    def shape(self) -> tuple[int, int]:
        """Logical extents, in the order coordinates are given."""
        return (self.columns, self.rows) if self.transposed else (self.rows, self.columns)

    @property
    def panels(self) -> int:
        """Number of panels."""
        return self.columns // self.panel

    @property
    def size_bytes(self) -> int:
        """Bytes of shared memory, padding included."""
        return self.panels * self.rows * self.pitch_bytes

    @property
    def align_bytes(self) -> int:
        """Alignment the tile's start needs for its swizzle (a full period), at least 16."""
        return max(16, self.pattern.repeat_bytes) if self.pattern.pairs else 16

    # -- addresses ------------------------------------------------------------------------------------------------
    def offset(self, *coordinate: int) -> int:
        """Byte offset of an element (LAY005 outside the tile)."""
        if len(coordinate) != 2 or not all(0 <= x < n for x, n in zip(coordinate, self.shape, strict=True)):
            fail("LAY005", found=str(coordinate), required=f"a coordinate of {self.shape}", help="stay inside the tile")
        row, column = reversed(coordinate) if self.transposed else coordinate
        panel, within = divmod(column, self.panel)
        linear = (panel * self.rows + row) * self.pitch_bytes + within * self.element_bytes
        return self.pattern.apply(linear)

    def offset_expr(self, *coordinate: Expr | int, bounds: dict[str, Interval] | None = None) -> Expr:
        """The byte offset as an expression of coordinates inside the tile; simplified under ``bounds``."""
        first, second = map(expr, coordinate)
        row, column = (second, first) if self.transposed else (first, second)
        panel, within = (column // self.panel, column % self.panel) if self.panels > 1 else (expr(0), column)
        known = bounds or {}
        line = simplify(panel * self.rows + row, known)
        linear = simplify(line * self.pitch_bytes + within * self.element_bytes, known)
        return simplify(reduce(lambda a, b: a ^ b, [linear, *self._exchanges(line)]), known)

    def _exchanges(self, line: Expr) -> list[Expr]:
        """What the swizzle xors onto the offset. Its source bits lie above a row, so they are bits of ``line``, the
        number of the row; targets at one distance from their sources are consecutive bits in every mode."""
        groups: dict[int, list[int]] = {}
        for target, source in self.pattern.pairs:
            groups.setdefault(source - target, []).append(target)
        row_bits = self.pitch_bytes.bit_length() - 1
        terms: list[Expr] = []
        for distance, targets in groups.items():
            low = min(targets)
            field = line // (1 << (low + distance - row_bits)) % (1 << len(targets))
            terms.append(field * (1 << low))
        return terms

    def f2(self) -> F2Layout:
        """Byte offset to (dim0, dim1, byte) as an F2 layout (LAY003 unless all extents are powers of two)."""
        plain = F2Layout.identity(self.element_bytes, "offset", "byte")
        fast, slow = ("dim0", "dim1") if self.transposed else ("dim1", "dim0")
        plain = plain * F2Layout.identity(self.panel, "offset", fast)
        plain = plain * F2Layout.zeros(self.pitch_bytes // (self.panel * self.element_bytes), "offset", fast)
        plain = plain * F2Layout.identity(self.rows, "offset", slow) * F2Layout.identity(self.panels, "offset", fast)
        n = plain.in_bits
        columns = [1 << i for i in range(n)]
        for target, source in self.pattern.pairs:
            columns[source] |= 1 << target
        swizzle = F2Layout(plain.ins, (("offset", n),), tuple(columns))
        return swizzle.compose(plain).transpose_outs(("dim0", "dim1", "byte"))
