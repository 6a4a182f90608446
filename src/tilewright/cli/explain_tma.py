"""``tilewright explain tma``: is there a legal tensor map for a box of a tensor, and if not, why and what helps?"""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from tilewright.cli import explain
from tilewright.cli.terminal import echo
from tilewright.diag import fail


def register(app: typer.Typer) -> None:
    explain.app.command("tma", help="Judge the tensor map of a box of a tensor.")(explain_map)


def explain_map(
    shape: Annotated[str, typer.Option(metavar="MxN", help="extents, last axis innermost")],
    dtype: Annotated[str, typer.Option(help="such as bf16")],
    box: Annotated[str, typer.Option(metavar="MxN", help="extents of the box, in the same order")],
    strides: Annotated[str | None, typer.Option(metavar="MxN", help="in elements; dense if not given")] = None,
    address_align: Annotated[int, typer.Option(help="what divides the address, in bytes")] = 16,
    arch: Annotated[str, typer.Option(help="architecture")] = "sm_90a",
    swizzle: Annotated[str | None, typer.Option(help="none, 32B, 64B or 128B; else the widest that fits")] = None,
    store: Annotated[bool, typer.Option("--store", help="for stores through the map, not loads")] = False,
    reuse: Annotated[int, typer.Option(help="how often a call moves each tile, for prices")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Print verdict, fields, reasons and repairs; exit status 1 unless the map is legal."""
    from tilewright.legal import explain_tma

    found = explain_tma(
        extents("--shape", shape),
        dtype,
        extents("--box", box),
        strides=None if strides is None else extents("--strides", strides),
        address_align=address_align,
        arch=arch,
        swizzle=swizzle,
        store=store,
        reuse=reuse,
    )
    echo(json.dumps(found.as_dict(), indent=2) if as_json else found.text)
    if not found.legal:
        raise typer.Exit(1)


def extents(option: str, text: str) -> tuple[int, ...]:
    """The numbers of ``4100x4100``; CMD002 for anything else."""
    parts = text.lower().split("x")
    if not all(re.fullmatch(r"-?[0-9]{1,20}", part) for part in parts):
        fail("CMD002", found=f"{option} {text}", required=f"{option} with numbers between x, such as 4096x64")
    return tuple(map(int, parts))
