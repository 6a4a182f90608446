"""``tilewright explain wgmma``: does the instruction read a tile as it lies in shared memory, and with which fields?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tilewright.cli import explain
from tilewright.cli.explain_tma import extents
from tilewright.cli.terminal import echo
from tilewright.diag import fail


def register(app: typer.Typer) -> None:
    explain.app.command("wgmma", help="Judge a tile in shared memory as an operand of wgmma.")(explain_operand)


def explain_operand(
    tile: Annotated[str, typer.Option(metavar="MNxK", help="rows of A, or columns of B, by depth")],
    dtype: Annotated[str, typer.Option(help="such as bf16")],
    operand: Annotated[str, typer.Option(help="A or B")] = "B",
    major: Annotated[str, typer.Option(help="K or MN: which axis is contiguous")] = "K",
    swizzle: Annotated[str, typer.Option(help="none, 32B, 64B or 128B")] = "128B",
    row_bytes: Annotated[int, typer.Option(help="width of a panel; the swizzle's span if not given")] = 0,
    n: Annotated[int, typer.Option("--n", help="N of the instruction; that of the tile if not given")] = 0,
    accumulator: Annotated[str, typer.Option(help="D type; the widest if not given")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Print verdict, fields, reasons and near layouts; exit status 1 unless the operand is legal."""
    from tilewright.hw.tensormap import Swizzle
    from tilewright.legal.explain_wgmma import explain_wgmma
    from tilewright.legal.wgmma import Major, OperandRole

    swizzles = {"none": Swizzle.NONE, "32b": Swizzle.B32, "64b": Swizzle.B64, "128b": Swizzle.B128}
    sizes = extents("--tile", tile)
    if len(sizes) != 2:
        fail("CMD002", found=f"--tile {tile}", required="two numbers with an x between, such as 128x64")
    for option, given, known in (
        ("--operand", operand.upper(), OperandRole.__members__),
        ("--major", major.upper(), Major.__members__),
        ("--swizzle", swizzle.lower(), swizzles),
    ):
        if given not in known:
            fail("CMD002", found=f"{option} {given}", required=f"one of {', '.join(known)}")
    found = explain_wgmma(
        *sizes,
        dtype,
        role=OperandRole[operand.upper()],
        major=Major[major.upper()],
        swizzle=swizzles[swizzle.lower()],
        row_bytes=row_bytes,
        n=n,
        accumulator=accumulator,
    )
    echo(json.dumps(found.as_dict(), indent=2) if as_json else found.text)
    if not found.legal:
        raise typer.Exit(1)
