"""``tilewright show banks '32:32' --element 4 --op ld.shared.b32``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import show
from tilewright.cli.show_layout import deliver
from tilewright.cli.terminal import echo
from tilewright.diag import fail

_ELEMENT_BYTES = (1, 2, 4, 8, 16)


class Find(StrEnum):
    """The family of swizzles to search."""

    NO = "no"
    XOR = "xor"
    SWIZZLE = "swizzle"
    TMA = "tma"


def register(_: typer.Typer) -> None:
    show.app.command("banks")(show_banks)


def show_banks(
    layout: Annotated[str, typer.Argument(metavar="SHAPE:STRIDE", help="lane to element offset: (8,4):(64,8)")],
    op: Annotated[str, typer.Option(help="ld.shared.b32, ldmatrix.x4, ds_read_b128, ...")] = "ld.shared.b32",
    target: Annotated[str, typer.Option(help="sm_90a, gfx942, gfx950")] = "sm_90a",
    element: Annotated[int, typer.Option(help="bytes of one element")] = 4,
    swizzle: Annotated[str | None, typer.Option(metavar="B,M,S", help="a swizzle on byte addresses")] = None,
    find: Annotated[Find, typer.Option(help="search a swizzle free of conflicts, and draw it")] = Find.NO,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="an .svg or .png; else text is printed")] = None,
) -> None:
    """Draw which bank each lane of one access uses, phase by phase, and where several words conflict in one bank."""
    from tilewright.layout.banks import WaveAccess, instruction
    from tilewright.layout.synthesis import Family, SwizzleConstraints, synthesise_swizzle
    from tilewright.viz.grid import read_layout, read_swizzle

    if element not in _ELEMENT_BYTES:
        fail("CMD002", found=f"--element {element}", required=f"one of {', '.join(map(str, _ELEMENT_BYTES))}")
    row = instruction(target, op)
    lanes = read_layout(layout)
    if lanes.size != row.lanes:
        fail("LAY027", found=f"{lanes.size} addresses", required=f"{row.lanes} for {op}")
    access = WaveAccess(row, tuple(x * element for x in lanes.offsets()), f"{op} by {layout}")
    if swizzle is not None:
        access = access.moved(read_swizzle(swizzle))
    if find is not Find.NO:
        size = 1 << (max(access.addresses) + access.access.bytes_per_lane - 1).bit_length()
        constraints = SwizzleConstraints(max(size, access.access.line_bytes), family=Family(find.value))
        found = synthesise_swizzle([access], target, constraints)
        echo(str(found))
        access = access.moved(found.swizzle)
    deliver(access, out)
