"""Pictures of layouts as PNG.

Text is drawn as strokes of a small built-in alphabet, so that pictures look alike where no fonts are installed.
"""

from __future__ import annotations

from resvg_py import svg_to_bytes

from tilewright.viz.grid import Drawable, grid_of
from tilewright.viz.layout_picture import draw


def layout_png(layout: Drawable, *, zoom: float = 1.0) -> bytes:
    """The grid as PNG, ``zoom`` pixels per unit."""
    picture = draw(grid_of(layout), strokes=True)
    return bytes(svg_to_bytes(svg_string=picture, background="#ffffff", zoom=zoom, skip_system_fonts=True))
