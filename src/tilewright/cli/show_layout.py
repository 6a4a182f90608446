"""``tilewright show layout '(8,8):(8,1)' --swizzle 3,4,3 --out x.svg``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import show
from tilewright.cli.terminal import echo
from tilewright.diag import fail

if TYPE_CHECKING:
    from tilewright.viz.grid import Drawable


def register(_: typer.Typer) -> None:
    show.app.command("layout")(show_layout)


def show_layout(
    layout: Annotated[str, typer.Argument(metavar="SHAPE:STRIDE", help="a layout as CuTe prints it: (8,8):(8,1)")],
    swizzle: Annotated[str | None, typer.Option(metavar="B,M,S", help="a swizzle on its offsets")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="an .svg or .png; else text is printed")] = None,
) -> None:
    """Draw where a layout puts each coordinate: offsets by row and column, up to 64 x 64."""
    from tilewright.viz.grid import read_layout

    deliver(read_layout(layout, swizzle), out)


def deliver(drawable: Drawable, out: Path | None) -> None:
    """Print a picture as text, or write it in the format of the file's suffix (CMD005 for others)."""
    from tilewright.viz.layout_picture import layout_svg, layout_text

    suffix = out.suffix.lower() if out is not None else ""
    if out is None:
        echo(layout_text(drawable))
    elif suffix == ".svg":
        _write(out, layout_svg(drawable).encode())
    elif suffix == ".png":
        from tilewright.viz.png import layout_png

        _write(out, layout_png(drawable, zoom=2.0))
    else:
        fail("CMD005", found=str(out), required="a name that ends in .svg or .png")


def _write(out: Path, data: bytes) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(data)
    echo(str(out))
