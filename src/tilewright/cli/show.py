"""``tilewright show DIR``: what is in a bundle. Other things to show register on ``app``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewright.artifact import bundle
from tilewright.artifact.disassemble import sass
from tilewright.artifact.schema import ASSUMED, Artifact, KernelImage, Obligation, ScalarParam, TensorParam
from tilewright.base.expr import TRUE
from tilewright.cli.group import group_with_default
from tilewright.cli.terminal import echo

app = group_with_default("bundle", "Show a bundle's plan, source, PTX, SASS, IR and certificate.")


class ShownPart(StrEnum):
    """What of a bundle to print."""

    PLAN = "plan"
    SOURCE = "source"
    PTX = "ptx"
    SASS = "sass"
    TILE = "tile"
    TRANSPORT = "transport"
    CERTIFICATE = "certificate"
    ALL = "all"


def register(top: typer.Typer) -> None:
    top.add_typer(app, name="show")


@app.command("bundle")
def show_bundle(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="a bundle's folder or file")],
    part: Annotated[list[ShownPart] | None, typer.Option(help="what to print; may be given several times")] = None,
) -> None:
    """Print parts of a bundle (plan and certificate by default)."""
    artifact = bundle.read(path)
    wanted = part or [ShownPart.PLAN, ShownPart.CERTIFICATE]
    if ShownPart.ALL in wanted:
        wanted = [p for p in ShownPart if p is not ShownPart.ALL]
    for p in wanted:
        if len(wanted) > 1:
            echo(f"== {p.value} {'=' * (76 - len(p.value))}")
        for line in lines(artifact, p):
            echo(line)


def lines(artifact: Artifact, part: ShownPart) -> Iterator[str]:
    """One part as text."""
    match part:
        case ShownPart.PLAN:
            yield from _plan(artifact)
        case ShownPart.SOURCE:
            yield artifact.source
        case ShownPart.PTX:
            yield artifact.ptx
        case ShownPart.SASS:
            yield from (sass(image.cubin) for image in artifact.kernels)
        case ShownPart.TILE:
            yield artifact.tile_ir
        case ShownPart.TRANSPORT:
            yield from (image.transport_ir for image in artifact.kernels)
        case ShownPart.CERTIFICATE:
            yield from _certificate(artifact)
        case ShownPart.ALL:
            for p in ShownPart:
                if p is not ShownPart.ALL:
                    yield from lines(artifact, p)


def _plan(artifact: Artifact) -> Iterator[str]:
    yield f"{artifact.name} for {artifact.target}, schema {artifact.schema_version}"
    for tool in artifact.toolchain:
        yield f"  built with {tool.name} {tool.version}"
    yield "parameters"
    for p in artifact.parameters:
        match p:
            case TensorParam(name, dtype, dims, access):
                yield f"  {name}: {dtype}[{', '.join(map(str, dims))}], {access.value}"
            case ScalarParam(name, dtype):
                yield f"  {name}: {dtype}"
    conditions = [*map(str, artifact.facts), *map(str, artifact.bounds)]
    if conditions:
        yield "serves arguments with"
        yield from (f"  {c}" for c in conditions)
    yield "variants, the first that holds"
    for v in artifact.variants:
        when = "always" if v.predicate == TRUE else f"if {v.predicate}"
        yield f"  {v.name} {when}: {len(v.steps)} step(s)" + (f", {v.plan}" if v.plan else "")
    if artifact.left_out:
        yield "left out"
        yield from (f"  {left}" for left in artifact.left_out)
    yield "kernels"
    yield from (f"  {_resources(image)}" for image in artifact.kernels)
    if artifact.schedule:
        yield f"schedule: {artifact.schedule}"
    yield from artifact.plan


def _resources(image: KernelImage) -> str:
    shared = image.shared_bytes + image.static_shared_bytes
    return (
        f"{image.symbol}: {image.threads} threads, cluster {image.cluster}, {image.registers} registers, "
        f"{shared} bytes of shared memory, {image.spill_bytes} bytes spilled"
    )


def _certificate(artifact: Artifact) -> Iterator[str]:
    for image in artifact.kernels:
        yield image.symbol
        yield from map(_obligation, image.certificate)
        yield from (f"  undecided: {reason}" for reason in image.undecided)
    for v in artifact.variants:
        if v.certificate:
            yield f"steps of {v.name}"
            yield from map(_obligation, v.certificate)
    yield from (f"assumed of {assumption}" for assumption in ASSUMED)


def _obligation(o: Obligation) -> str:
    return f"  {o.name}: {o.standing} by {o.method}" + (f" ({o.detail})" if o.detail else "")
