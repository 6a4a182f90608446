"""``tilewright validate``: whether a bundle's PTX and launch recipes implement its Transport IR, and whether that
stores what its Tile IR specifies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.ending import Status, answering
from tilewright.cli.terminal import echo


def register(app: typer.Typer) -> None:
    told = "Compare a bundle's PTX and launch recipes with its Transport IR, and that with its Tile IR."
    app.command("validate", help=told)(validate)


def validate(bundle: Annotated[Path, typer.Argument(help="a bundle, folder or file")]) -> None:
    """Exit status 0: every kernel validated; 1: a recipe or a kernel's PTX is refuted; 2: no bundle; 3: some kernel is
    undecided, or tested on a few launches only.

    The machine code of the bundle is not compared with its PTX, and the proofs of its IR are not made again.
    """
    with answering():
        raise typer.Exit(_validated(bundle))


def _validated(bundle: Path) -> int:
    from tilewright.artifact.bundle import read
    from tilewright.artifact.schema import Launch
    from tilewright.compiler.recipe import recipe
    from tilewright.compiler.tested import tested
    from tilewright.transport.text import tile_kernel, transport_kernel
    from tilewright.validate.kernel import compare
    from tilewright.validate.lowering.compare import compare as compare_lowering
    from tilewright.validate.recipe import recipe_faults

    artifact = read(bundle)
    kernels = {image.symbol: transport_kernel(image.transport_ir) for image in artifact.kernels}
    faults = recipe_faults(artifact, kernels)
    for fault in faults:
        echo(f"recipe: {fault}")
    undecided = refuted = 0
    launches = {
        s.kernel: s for v in artifact.variants for s in v.steps if isinstance(s, Launch) and s.kernel in kernels
    }
    for name, launch in launches.items():
        found = compare(kernels[name], artifact.kernel(name).ptx, launch.args, launch.grid[0])
        undecided += bool(found)
        echo(f"{name}: {f'{len(found)} differences or open questions' if found else 'validated'}")
        for difference in found[:3]:
            echo(f"  {difference}")
        if found:
            executed = tested(kernels[name], artifact.kernel(name).ptx, recipe([kernels[name]]))
            refuted += len(executed.differences)
            for difference in executed.differences:
                echo(f"{name}: refuted: {difference}")
            for given in executed.launches:
                echo(f"{name}: tested: PTX and Transport IR agree on {given}")
        text = artifact.kernel(name).tile_ir
        unlike = compare_lowering(tile_kernel(text), kernels[name]) if text else ("the bundle has none of it",)
        undecided += bool(unlike)
        echo(f"{name}: {'not shown to store' if unlike else 'stores'} what its Tile IR says")
        for place in unlike[:3]:
            echo(f"  {place}")
    echo("not compared: machine code with PTX; not made again: the proofs of the IR")
    return Status.NO if faults or refuted else Status.UNKNOWN if undecided else Status.YES
