"""Tiles in shared memory: logical coordinates to byte offsets, plain, padded or swizzled as TMA swizzles.

A tile is panels of rows: the fast dimension is cut into panels as wide as the swizzle span (TMA boxes can be no wider),
the panels lie one after the other, each row after row. The swizzle then exchanges bits of the byte offset; it repeats
every ``repeat_bytes``, so the tile starts at a multiple of that.

    row r, column c, panel width w elements:
        offset = swizzle(((c // w) * rows + r) * pitch_bytes + (c % w) * element_bytes)

Tiles that only threads touch may have any ``XorSwizzle`` of whole lines instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from tilewright.base.expr import Expr, Interval, expr, simplify
from tilewright.diag import fail
from tilewright.hw.banks import LINE_BYTES
from tilewright.hw.tensormap import PATTERNS, Swizzle, SwizzlePattern
from tilewright.layout.checks import extent, integer
from tilewright.layout.xor_swizzle import UNMOVED, XorSwizzle


@dataclass(frozen=True)
class SharedTile:
    """A rows x columns tile (columns fastest) of ``element_bytes`` elements.

    ``panel`` is the number of columns in one panel (all of them without swizzle), ``pitch_bytes`` the distance of two
    rows in a panel, ``mode`` the swizzle. ``transposed`` says that coordinates are given as (column, row). ``exchange``
    is a swizzle that no tensor copy makes; its tile is rounded up to whole lines.
    """

    rows: int
    columns: int
    element_bytes: int
    panel: int
    pitch_bytes: int
    mode: Swizzle = Swizzle.NONE
    transposed: bool = False
    exchange: XorSwizzle = UNMOVED

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
        """Rows without gaps."""
        return SharedTile(rows, columns, element_bytes, columns, columns * element_bytes)

    @staticmethod
    def padded(rows: int, columns: int, element_bytes: int, pad_bytes: int) -> SharedTile:
        """Rows with ``pad_bytes`` unused bytes after each."""
        if integer(pad_bytes, "padding") < 0:
            fail(
                "LAY001", title="padding is negative", found=str(pad_bytes), required=">= 0", help="pad with 0 or more"
            )
        return SharedTile(rows, columns, element_bytes, columns, columns * element_bytes + pad_bytes)

    @staticmethod
    def swizzled(rows: int, columns: int, element_bytes: int, mode: Swizzle) -> SharedTile:
        """As TMA writes boxes of ``rows`` x (span / element_bytes), one behind the other (LAY012 if it can't)."""
        if mode is Swizzle.NONE:
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

    @staticmethod
    def exchanged(rows: int, columns: int, element_bytes: int, exchange: XorSwizzle) -> SharedTile:
        """Rows without gaps, with the bytes of each line permuted (LAY012 if an element would be split)."""
        plain = SharedTile.plain(rows, columns, element_bytes)
        low = min((1 << target for target, _ in exchange.pairs), default=LINE_BYTES)
        high = max((2 << target for target, _ in exchange.pairs), default=1)
        source = min((1 << source for _, source in exchange.pairs), default=LINE_BYTES)
        if low % element_bytes or high > LINE_BYTES or source < LINE_BYTES:
            fail(
                "LAY012",
                title="the swizzle does not move whole elements within lines",
                found=f"{exchange} of {element_bytes}-byte elements",
                required=f"targets of {element_bytes} to {LINE_BYTES // 2} B, sources of {LINE_BYTES} B or more",
                help="keep the elements whole: synthesise with keep_bytes",
            )
        return replace(plain, exchange=exchange)

    def transpose(self) -> SharedTile:
        """The same bytes addressed by (column, row)."""
        return replace(self, transposed=not self.transposed)

    def __str__(self) -> str:
        rows = f"{self.rows} x {self.columns} of {self.element_bytes} B, rows of {self.pitch_bytes} B"
        if self.exchange.pairs:
            return f"{rows}, {self.exchange}"
        return rows if self.mode is Swizzle.NONE else f"{rows}, swizzled {self.pattern.span_bytes} B"

    # -- sizes ----------------------------------------------------------------------------------------------------
    @property
    def pattern(self) -> SwizzlePattern:
        """The hardware swizzle of address bits."""
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
        size = self.panels * self.rows * self.pitch_bytes
        return -(-size // LINE_BYTES) * LINE_BYTES if self.exchange.pairs else size

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
        return self.exchange(self.pattern.apply(linear))

    def offset_expr(
        self, *coordinate: Expr | int, bounds: dict[str, Interval] | None = None, unit_bytes: int = 1
    ) -> Expr:
        """The offset as an expression of coordinates inside the tile, in units of ``unit_bytes`` (which divides the
        element); simplified under ``bounds``."""
        first, second = map(expr, coordinate)
        row, column = (second, first) if self.transposed else (first, second)
        panel, within = (column // self.panel, column % self.panel) if self.panels > 1 else (expr(0), column)
        known = bounds or {}
        line = simplify(panel * self.rows + row, known)
        pitch, size = self.pitch_bytes // unit_bytes, self.element_bytes // unit_bytes
        linear = simplify(line * pitch + within * size, known)
        return simplify(reduce(lambda a, b: a ^ b, [linear, *self._exchanges(line, linear, unit_bytes)]), known)

    def in_row_expr(self, row: Expr, column: Expr) -> Expr:
        """The byte at which an element lies in its row, for tiles of one panel: swizzles of tensor copies move nothing
        from row to row, so ``offset`` is ``row * pitch_bytes`` more."""
        assert self.panels == 1
        assert not self.exchange.pairs
        assert not self.transposed
        linear = row * self.pitch_bytes + column * self.element_bytes
        return reduce(lambda a, b: a ^ b, [column * self.element_bytes, *self._exchanges(row, linear, 1)])

    def _exchanges(self, line: Expr, linear: Expr, unit_bytes: int) -> list[Expr]:
        """What the swizzle xors onto the offset: one field for each run of bits at one distance. Source bits above a
        row whose pitch is a power of two are bits of ``line``, the number of the row."""
        pitch, unit = self.pitch_bytes, unit_bytes.bit_length() - 1
        terms: list[Expr] = []
        for target, source, bits in XorSwizzle(tuple(sorted((*self.pattern.pairs, *self.exchange.pairs)))).runs:
            if pitch & (pitch - 1) == 0 and pitch <= 1 << source:
                field = line // ((1 << source) // pitch)
            else:
                field = linear // (1 << (source - unit))
            terms.append(field % (1 << bits) * (1 << (target - unit)))
        return terms
