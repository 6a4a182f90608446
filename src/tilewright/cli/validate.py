"""``tilewright validate``: whether a bundle's machine code is that of its PTX, whether PTX and launch recipes implement
its Transport IR, whether that stores what its Tile IR specifies, and whether it is proved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.exit_status import Status, answering
from tilewright.cli.terminal import echo
from tilewright.diag import TilewrightError

if TYPE_CHECKING:
    from tilewright.compiler.bundle_verdict import KernelVerdict, PartVerdict

_MOST = 3


def register(app: typer.Typer) -> None:
    summary = "Compare a bundle's machine code, PTX, launch recipes, Transport IR and Tile IR; prove it again."
    app.command("validate", help=summary)(validate)


def validate(
    bundle: Annotated[Path, typer.Argument(help="a bundle, folder or file")],
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
    seconds: Annotated[float, typer.Option(min=0.001, max=1e6, help="of the processor, for each question")] = 60.0,
) -> None:
    """Exit status 0: every kernel is validated, proved again, and its machine code is what the assembler makes of its
    PTX; 1: a recipe or a kernel's PTX is refuted; 2: no bundle; 3: something of this is undecided, or tested only.
    """
    with answering():
        raise typer.Exit(_as_json(bundle, seconds) if as_json else _as_text(bundle, seconds))


def _as_text(path: Path, seconds: float) -> Status:
    from tilewright.artifact.bundle import read
    from tilewright.compiler.bundle_verdict import NOT_COMPARED, ReadBundle, worst

    bundle = ReadBundle.of(read(path), seconds)
    recipe = bundle.recipe()
    for fault in (*recipe.refuted, *recipe.open):
        echo(f"recipe: {fault}")
    variants, promises = bundle.variants(), bundle.promises()
    steps = bundle.steps()
    _print_executed("variants", "agree", variants)
    _print_executed("promises", "checked by", promises)
    for reason in steps.open:
        echo(f"steps: {reason}")
    answers = [recipe.answer, steps.answer, variants.answer, promises.answer]
    for found in bundle.each():
        _print_kernel(found)
        answers.append(found.answer)
    echo(f"not compared: {', '.join(NOT_COMPARED)}")
    return _STATUSES[worst(answers).value]


_STATUSES = {"decided": Status.YES, "refuted": Status.NO, "undecided": Status.UNKNOWN}


def _print_executed(name: str, what: str, found: PartVerdict) -> None:
    for difference in found.refuted:
        echo(f"{name}: refuted: {difference}")
    for launch in found.shown:
        echo(f"{name}: tested: {what}: {launch.detail}")
    for reason in found.open:
        echo(f"{name}: {reason}")


def _print_kernel(found: KernelVerdict) -> None:
    """Prints the verdict on one kernel, a line per question."""
    name, ptx = found.symbol, found.ptx
    against = f"{len(ptx.open)} differences or open questions" if ptx.open else "validated"
    echo(f"{name}: PTX against Transport IR: {against}")
    _print_open(ptx)
    for difference in ptx.refuted:
        echo(f"{name}: refuted: {difference}")
    for launch in (o for o in ptx.shown if o.standing == "tested"):
        echo(f"{name}: tested: PTX and Transport IR agree on {launch.detail}")
    other = "".join(found.machine_code.open)
    echo(f"{name}: cubin against PTX: {f'not shown to be ptxas output: {other}' if other else 'ptxas output'}")
    echo(f"{name}: Transport IR against Tile IR: {'undecided' if found.tile_ir.open else 'validated'}")
    _print_open(found.tile_ir)
    echo(f"{name}: proofs: {'not proved' if found.proofs.open else 'proved again'}")
    _print_open(found.proofs)


def _print_open(part: PartVerdict) -> None:
    for reason in part.open[:_MOST]:
        echo(f"  {reason}")


def _as_json(path: Path, seconds: float) -> Status:
    """Prints one JSON document, also for a bundle that can't be read."""
    from tilewright.artifact.bundle import read
    from tilewright.compiler.bundle_verdict import ReadBundle, as_dict, worst

    try:
        bundle = ReadBundle.of(read(path), seconds)
    except (TilewrightError, OSError) as error:
        _print_document(path, Status.USAGE, {"reasons": [str(error)]})
        raise
    recipe, variants, kernels = bundle.recipe(), bundle.variants(), list(bundle.each())
    parts = recipe, bundle.steps(), variants, bundle.promises()
    status = _STATUSES[worst(found.answer for found in (*parts, *kernels)).value]
    _print_document(path, status, as_dict(bundle.artifact, *parts, kernels))
    return status


_VERDICTS = {Status.YES: "validated", Status.NO: "refuted", Status.UNKNOWN: "undecided", Status.USAGE: "unreadable"}


def _print_document(path: Path, status: Status, fields: dict[str, object]) -> None:
    head = {"bundle": str(path), "verdict": _VERDICTS[status], "exit_status": int(status)}
    echo(
        json.dumps({**head, **fields}, indent=2).replace("\x7f", "\\u007f")
    )  # the only control character that JSON lets through
