"""Pictures of register layouts: which warp holds which part of a tile, and one corner element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from tilewright.layout.register import LANES, RegisterLayout
from tilewright.viz.grid import GROUPS, owners_of, register_grid
from tilewright.viz.layout_picture import COLOURS, draw

CORNER = (16, 24)
"""Rows and columns of the corner: as wide as the page."""

WIDTH, MARGIN = 900, 34
_ROW_HEIGHT, _HEIGHT = 22, 320
_LABEL_WIDTH, _LABEL_HEIGHT = 7, 13  # of one glyph, and of a line


@dataclass(frozen=True)
class MapBlock:
    """Rows [top, bottom) and columns [left, right) of a tile that one warp holds."""

    warp: int
    top: int
    bottom: int
    left: int
    right: int


def warp_blocks(layout: RegisterLayout) -> tuple[MapBlock, ...]:
    """The tile cut into blocks of one warp each: runs along the rows, equal rows merged."""
    owners = owners_of(layout)
    rows, columns = (1, layout.shape[0]) if layout.rank == 1 else (layout.shape[0], layout.shape[1])
    found: list[MapBlock] = []
    start = 0
    runs = list(_runs([owners[0, j][0] // LANES for j in range(columns)]))
    for i in range(1, rows + 1):
        here = list(_runs([owners[i, j][0] // LANES for j in range(columns)])) if i < rows else []
        if here != runs:
            found += [MapBlock(warp, start, i, left, right) for warp, left, right in runs]
            start, runs = i, here
    return tuple(found)


def warp_picture(layout: RegisterLayout) -> str:
    """The whole tile as SVG, to scale along each axis, coloured by warp."""
    rows, columns = (1, layout.shape[0]) if layout.rank == 1 else (layout.shape[0], layout.shape[1])
    across = WIDTH / columns
    down = min(_ROW_HEIGHT, _HEIGHT / rows)
    height = round(down * rows) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * MARGIN}" height="{height}" '
        f'viewBox="0 0 {WIDTH + 2 * MARGIN} {height}" font-family="monospace" font-size="11" role="img">',
        f"<title>{rows} x {columns} elements by warp</title>",
    ]
    blocks = warp_blocks(layout)
    for b in blocks:
        x, y = MARGIN + b.left * across, 20 + b.top * down
        w, h = (b.right - b.left) * across, (b.bottom - b.top) * down
        parts.append(
            f'<rect x="{x:.5g}" y="{y:.5g}" width="{w:.5g}" height="{h:.5g}" fill="{COLOURS[b.warp % GROUPS]}" '
            'stroke="#888" stroke-width="0.5"/>'
        )
        for label in (f"warp {b.warp}", f"{b.warp}"):
            if w > _LABEL_WIDTH * len(label) and h > _LABEL_HEIGHT:
                parts.append(f'<text x="{x + w / 2:.5g}" y="{y + h / 2 + 4:.5g}" text-anchor="middle">{label}</text>')
                break
    parts += _ruler(sorted({b.left for b in blocks} | {columns}), across)
    parts += _scale(sorted({b.top for b in blocks}), down)
    return "\n".join([*parts, "</svg>"])


def corner_picture(layout: RegisterLayout) -> str:
    """The first rows and columns as SVG: thread and register of each element."""
    return draw(register_grid(layout, CORNER), strokes=False, heading=False)


def corner_words(layout: RegisterLayout) -> str:
    """The corner's contents as text, for readers of the page without pictures."""
    shown = " x ".join(str(min(n, m)) for n, m in zip(layout.shape, CORNER[-layout.rank :], strict=True))
    return escape(f"The first {shown} elements: T is the thread, r its register; colour is thread % {GROUPS}.")


def _runs(warps: list[int]) -> Iterator[tuple[int, int, int]]:
    start = 0
    for j in range(1, len(warps) + 1):
        if j == len(warps) or warps[j] != warps[start]:
            yield warps[start], start, j
            start = j


def _ruler(marks: list[int], across: float) -> Iterator[str]:
    """Column numbers above, as many as fit."""
    last = -1e9
    for mark in marks:
        x = MARGIN + mark * across
        if x - last >= 40:
            last = x
            yield f'<text x="{x:.5g}" y="14" text-anchor="middle" fill="#777">{mark}</text>'


def _scale(marks: list[int], down: float) -> Iterator[str]:
    """Row numbers at the left, as many as fit."""
    last = -1e9
    for mark in marks:
        y = 20 + mark * down
        if y - last >= _LABEL_HEIGHT:
            last = y
            yield f'<text x="{MARGIN - 6}" y="{y + 11:.5g}" text-anchor="end" fill="#777">{mark}</text>'
