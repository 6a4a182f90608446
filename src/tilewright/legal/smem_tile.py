"""The layout of a tile in shared memory after its tensor copies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.hw.tensormap import PATTERNS, SHARED_ALIGN_BYTES, Swizzle
from tilewright.layout.shared import SharedTile


@dataclass(frozen=True)
class SmemTile:
    """A tile in shared memory, cut into panels along its innermost axis.

    ``extents`` are the tile's extents in elements, innermost first. A panel holds ``panel`` elements of the innermost
    axis (``row_bytes`` bytes) for every coordinate of the others; panels follow one another. Inside a panel the order
    is dense, innermost axis fastest, and the byte addresses are permuted by ``swizzle``::

        panel 0: row 0 | row 1 | ... | row R-1      panel 1: row 0 | ...
                 <---- row_bytes each ---->
    """

    extents: tuple[int, ...]
    panel: int
    element_bytes: int
    swizzle: Swizzle

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a panel."""
        return self.panel * self.element_bytes

    @property
    def rows(self) -> int:
        """Rows of a panel: the product of all extents but the innermost."""
        return prod(self.extents[1:])

    @property
    def panels(self) -> int:
        """Panels of the tile; the last one is stored whole."""
        return -(-self.extents[0] // self.panel)

    @property
    def whole_panels(self) -> SmemTile:
        """The tile with all columns of its last panel, which a padded copy fills too; as many bytes."""
        return replace(self, extents=(self.panels * self.panel, *self.extents[1:]))

    @property
    def panel_bytes(self) -> int:
        """Bytes from one panel to the next: its rows, up to the 128 bytes at which a tensor copy may begin."""
        return -(-self.rows * self.row_bytes // SHARED_ALIGN_BYTES) * SHARED_ALIGN_BYTES

    @property
    def size_bytes(self) -> int:
        """Bytes the tile occupies, panels padded."""
        return self.panels * self.panel_bytes

    @property
    def align_bytes(self) -> int:
        """Alignment of the tile's first byte at which the swizzle pattern begins."""
        return max(SHARED_ALIGN_BYTES, PATTERNS[self.swizzle].repeat_bytes)

    def logical_offset(self, coordinates: tuple[int, ...]) -> int:
        """Byte offset of an element before the swizzle; ``coordinates`` innermost first."""
        panel, inner = divmod(coordinates[0], self.panel)
        row = 0
        for extent, coordinate in zip(reversed(self.extents[1:]), reversed(coordinates[1:]), strict=True):
            row = row * extent + coordinate
        return panel * self.panel_bytes + row * self.row_bytes + inner * self.element_bytes

    def offset(self, coordinates: tuple[int, ...]) -> int:
        """Byte offset of an element, from a base aligned to ``align_bytes``."""
        return PATTERNS[self.swizzle].apply(self.logical_offset(coordinates))

    @property
    def shared_tile(self) -> SharedTile | None:
        """The same bytes as a rows x columns tile of the layout room; None where panels are padded or a panel does not
        fill whole swizzle periods, which that tile can't express."""
        pattern = PATTERNS[self.swizzle]
        dense = self.panel_bytes == self.rows * self.row_bytes or self.panels == 1
        whole = not pattern.pairs or (
            self.row_bytes == pattern.span_bytes and self.rows * self.row_bytes % pattern.repeat_bytes == 0
        )
        if not dense or not whole or self.extents[0] % self.panel:
            return None
        return SharedTile(self.rows, self.extents[0], self.element_bytes, self.panel, self.row_bytes, self.swizzle)
