"""``tilewright validate``: whether a bundle's machine code is that of its PTX, whether PTX and launch recipes implement
its Transport IR, whether that stores what its Tile IR specifies, and whether it is proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.ending import Status, answering
from tilewright.cli.terminal import echo

if TYPE_CHECKING:
    from tilewright.artifact.schema import KernelImage, Launch
    from tilewright.transport.dialect import Kernel


def register(app: typer.Typer) -> None:
    told = "Compare a bundle's machine code, PTX, launch recipes, Transport IR and Tile IR; prove it again."
    app.command("validate", help=told)(validate)


def validate(bundle: Annotated[Path, typer.Argument(help="a bundle, folder or file")]) -> None:
    """Exit status 0: every kernel is validated, proved again, and its machine code is what the assembler makes of its
    PTX; 1: a recipe or a kernel's PTX is refuted; 2: no bundle; 3: something of this is undecided, or tested only.
    """
    with answering():
        raise typer.Exit(_validated(bundle))


def _validated(bundle: Path) -> int:
    from tilewright.artifact.bundle import read
    from tilewright.artifact.schema import Launch
    from tilewright.transport.text import transport_kernel
    from tilewright.validate.recipe import recipe_faults

    artifact = read(bundle)
    kernels = {image.symbol: transport_kernel(image.transport_ir) for image in artifact.kernels}
    faults = recipe_faults(artifact, kernels)
    for fault in faults:
        echo(f"recipe: {fault}")
    launches = {
        s.kernel: s for v in artifact.variants for s in v.steps if isinstance(s, Launch) and s.kernel in kernels
    }
    found = [
        _kernel_status(artifact.kernel(name), kernels[name], launch, artifact.target)
        for name, launch in launches.items()
    ]
    echo("not compared: programs of variants with each other or with Python, what certificates say of steps")
    if faults or Status.NO in found:
        return Status.NO
    return Status.UNKNOWN if Status.UNKNOWN in found else Status.YES


def _kernel_status(image: KernelImage, kernel: Kernel, launch: Launch, target: str) -> Status:
    """What is shown of one kernel, printed a line each."""
    from tilewright.codegen.reassemble import machine_code_differs
    from tilewright.compiler.recipe import recipe
    from tilewright.compiler.reproved import unproved
    from tilewright.compiler.tested import tested
    from tilewright.transport.text import tile_kernel
    from tilewright.validate.kernel import compare
    from tilewright.validate.lowering.compare import compare as compare_lowering

    name, refuted = image.symbol, False
    found = _or_why(lambda: compare(kernel, image.ptx, launch.args, launch.grid[0]))
    echo(f"{name}: {f'{len(found)} differences or open questions' if found else 'validated'}")
    for difference in found[:3]:
        echo(f"  {difference}")
    if found:
        executed = tested(kernel, image.ptx, recipe([kernel]))
        refuted = bool(executed.differences)
        for difference in executed.differences:
            echo(f"{name}: refuted: {difference}")
        for given in executed.launches:
            echo(f"{name}: tested: PTX and Transport IR agree on {given}")
    other = machine_code_differs(image, target)
    echo(f"{name}: {f'machine code not shown to be that of its PTX: {other}' if other else 'machine code of its PTX'}")
    unlike: Sequence[object] = ("the bundle has none of it",)
    open_: Sequence[object] = ("nothing says what the kernel computes",)
    if image.tile_ir:
        source = tile_kernel(image.tile_ir)
        unlike = _or_why(lambda: compare_lowering(source, kernel))
        open_ = _or_why(lambda: tuple(unproved(source, kernel, image.certificate)))
    echo(f"{name}: {'not shown to store' if unlike else 'stores'} what its Tile IR says")
    for place in unlike[:3]:
        echo(f"  {place}")
    echo(f"{name}: {'not proved' if open_ else 'proved again'}")
    for why in open_[:3]:
        echo(f"  {why}")
    if refuted:
        return Status.NO
    return Status.UNKNOWN if found or other or unlike or open_ else Status.YES


def _or_why(comparison: Callable[[], Sequence[object]]) -> Sequence[object]:
    """What a comparison finds; where a text is such as no compiler of ours writes and it ends in an error, that."""
    try:
        return comparison()
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        return (f"the texts can't be compared: {type(error).__name__} {error}"[:300],)
