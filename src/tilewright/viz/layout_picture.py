"""Pictures of layouts: SVG and plain text (PNG: ``viz.png``)."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tilewright.viz.grid import Drawable, Grid, GridCell, grid_of

CELL_WIDTH, LINE_HEIGHT, MARGIN, GLYPH_WIDTH = 36, 14, 34, 6.6
COLOURS = ("#cfe3ff", "#ffe2c2", "#d3f2d0", "#f6d2dd", "#e3d7f7", "#fdf3b8", "#cdeff0", "#e2e2e2")
"""Light enough for black text; eight that differ also in brightness order for colour-blind readers."""


def layout_text(layout: Drawable) -> str:
    """The grid as an aligned table: row and column numbers, then ``offset`` or ``T3r1`` in each cell."""
    grid = grid_of(layout)
    texts = [["".join(cell.text) for cell in row] for row in grid.cells]
    width = max(len(t) for row in texts for t in row)
    width = max(width, len(str(grid.columns - 1)))
    head = len(str(grid.rows - 1))
    lines = [grid.title, " " * head + "  " + " ".join(str(j).rjust(width) for j in range(grid.columns))]
    lines += [str(i).rjust(head) + "  " + " ".join(t.rjust(width) for t in row) for i, row in enumerate(texts)]
    return "\n".join(lines)


def layout_svg(layout: Drawable) -> str:
    """The grid as SVG with selectable text."""
    return draw(grid_of(layout), strokes=False)


def draw(grid: Grid, *, strokes: bool, heading: bool = True) -> str:
    """A grid as SVG. With ``strokes`` its text is drawn in a built-in alphabet, needs no fonts, and has no heading."""
    lines_per_cell = max(len(cell.text) for row in grid.cells for cell in row)
    height = 8 + LINE_HEIGHT * lines_per_cell
    width_px = MARGIN + CELL_WIDTH * grid.columns + 2
    top = MARGIN + LINE_HEIGHT if heading else LINE_HEIGHT + 4
    height_px = top + height * grid.rows + 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_px}" height="{height_px}" '
        f'viewBox="0 0 {width_px} {height_px}" font-family="monospace" font-size="11">',
        f"<title>{escape(grid.title)}</title>",
        f"<desc>{escape(grid.legend)}</desc>",
    ]
    if heading and not strokes:
        parts.append(f'<text x="4" y="14">{escape(grid.title)}</text>')
        parts.append(f'<text x="4" y="28" fill="#555">{escape(grid.legend)}</text>')
    for j in range(grid.columns):
        parts += _text(MARGIN + CELL_WIDTH * (j + 0.5), top - 4, str(j), strokes, "#777")
    for i, row in enumerate(grid.cells):
        parts += _text(MARGIN / 2, top + height * (i + 0.5) + 4, str(i), strokes, "#777")
        for j, cell in enumerate(row):
            parts += _cell(MARGIN + CELL_WIDTH * j, top + height * i, height, cell, strokes)
    return "\n".join([*parts, "</svg>\n"])


def _cell(x: float, y: float, height: int, cell: GridCell, strokes: bool) -> Iterator[str]:
    yield (
        f'<rect x="{x:g}" y="{y:g}" width="{CELL_WIDTH}" height="{height}" fill="{COLOURS[cell.group]}" '
        'stroke="#888" stroke-width="0.5"/>'
    )
    for k, text in enumerate(cell.text):
        yield from _text(x + CELL_WIDTH / 2, y + LINE_HEIGHT * (k + 1) - 0.5, text, strokes, "#000")


def _text(x: float, y: float, text: str, strokes: bool, colour: str) -> Iterator[str]:
    """``text`` centred on x with its baseline at y."""
    if not strokes:
        yield f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{colour}">{escape(text)}</text>'
        return
    start = x - GLYPH_WIDTH * len(text) / 2
    path = "".join(_glyph(start + GLYPH_WIDTH * i, y, letter) for i, letter in enumerate(text))
    yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.1" stroke-linecap="round"/>'


# corners of a glyph: columns 0..2 from the left, rows 0..4 from the top
_STROKES: dict[str, tuple[str, ...]] = {
    "0": ("00 20 24 04 00",),
    "1": ("01 10 14", "04 24"),
    "2": ("00 20 22 02 04 24",),
    "3": ("00 20 24 04", "02 22"),
    "4": ("00 02 22", "20 24"),
    "5": ("20 00 02 22 24 04",),
    "6": ("20 00 04 24 22 02",),
    "7": ("00 20 14",),
    "8": ("00 20 24 04 00", "02 22"),
    "9": ("22 02 00 20 24 04",),
    "T": ("00 20", "10 14"),
    "r": ("02 04", "03 12 22"),
    "x": ("02 24", "22 04"),
}


def _glyph(x: float, y: float, letter: str) -> str:
    path = ""
    for stroke in _STROKES.get(letter, ()):
        points = [(x + 2.2 * int(c[0]) + 0.6, y - 8 + 2 * int(c[1])) for c in stroke.split()]
        path += "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
    return path
