"""``tilewright show DIR``: what is in a bundle. Other things to show register on ``app``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilewright.artifact import bundle
from tilewright.artifact.disassemble import code_bytes, sass
from tilewright.artifact.sass_accesses import kernel_accesses
from tilewright.artifact.schema import ASSUMED, Artifact, KernelImage, Obligation, ScalarArgument, TensorArgument
from tilewright.base.readable import conditions, when
from tilewright.cli.group import group_with_default
from tilewright.cli.terminal import echo

app = group_with_default("bundle", "Show a bundle's plan, source, PTX, SASS, IR and certificate.")


class BundlePart(StrEnum):
    """The part of a bundle to print."""

    SUMMARY = "summary"
    PLAN = "plan"
    SOURCE = "source"
    PTX = "ptx"
    SASS = "sass"
    ACCESSES = "accesses"
    TILE = "tile"
    TRANSPORT = "transport"
    CERTIFICATE = "certificate"
    ALL = "all"


_PARTS = tuple(part for part in BundlePart if part not in (BundlePart.SUMMARY, BundlePart.ALL))


def register(top: typer.Typer) -> None:
    top.add_typer(app, name="show")


@app.command("bundle")
def show_bundle(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="a bundle's folder or file")],
    part: Annotated[list[BundlePart] | None, typer.Option(help="what to print; may be given several times")] = None,
) -> None:
    """Print parts of a bundle (a summary by default)."""
    artifact = bundle.read(path)
    wanted = part or [BundlePart.SUMMARY]
    if BundlePart.ALL in wanted:
        wanted = list(_PARTS)
    for p in wanted:
        if len(wanted) > 1:
            echo(f"== {p.value} {'=' * (76 - len(p.value))}")
        for line in lines(artifact, p):
            echo(line)


def lines(artifact: Artifact, part: BundlePart) -> Iterator[str]:
    """One part as text."""
    match part:
        case BundlePart.SUMMARY:
            yield from _summary(artifact)
        case BundlePart.PLAN:
            yield from _plan(artifact)
        case BundlePart.SOURCE:
            yield artifact.source
        case BundlePart.PTX:
            yield artifact.ptx
        case BundlePart.SASS:
            yield from (sass(image.cubin) for image in artifact.kernels)
        case BundlePart.ACCESSES:
            yield from _accesses(artifact)
        case BundlePart.TILE:
            yield artifact.tile_ir
        case BundlePart.TRANSPORT:
            yield from (image.transport_ir for image in artifact.kernels)
        case BundlePart.CERTIFICATE:
            yield from _certificate(artifact)
        case BundlePart.ALL:
            for p in _PARTS:
                yield from lines(artifact, p)


def _summary(artifact: Artifact) -> Iterator[str]:
    """One screen: parameters, number of variants, and counts of obligations by standing."""
    yield from _head(artifact)
    counts = (f"{len(artifact.variants)} variant(s)", f"{len(artifact.facts)} fact(s) that a launch has to satisfy")
    left = [f"{len(artifact.left_out)} class(es) left out"] if artifact.left_out else []
    yield ", ".join([*counts, *left])
    yield from _first(f"{_resources(image)}; {_standings(image)}" for image in artifact.kernels)
    yield f"more with --part {'|'.join(_PARTS)}"


_MOST_LISTED = 6


def _first(texts: Iterator[str]) -> Iterator[str]:
    every = list(texts)
    yield from (f"  {text}" for text in every[:_MOST_LISTED])
    if len(every) > _MOST_LISTED:
        yield f"  and {len(every) - _MOST_LISTED} more"


def _standings(image: KernelImage) -> str:
    """The numbers of obligations proved, validated, tested, checked and assumed."""
    counts = Counter(o.standing for o in image.certificate)
    printed = [f"{number} {standing}" for standing, number in counts.items()]
    return (
        ", ".join([*printed, *([f"{len(image.undecided)} undecided"] if image.undecided else [])]) or "nothing proved"
    )


def _head(artifact: Artifact) -> Iterator[str]:
    yield f"{artifact.name} for {artifact.target}, schema {artifact.schema_version}"
    for tool in artifact.toolchain:
        yield f"  built with {tool.name} {tool.version}"
    yield "parameters"
    for p in artifact.parameters:
        match p:
            case TensorArgument(name, dtype, dims, access):
                yield f"  {name}: {dtype}[{', '.join(map(str, dims))}], {access.value}"
            case ScalarArgument(name, dtype):
                yield f"  {name}: {dtype}"


def _plan(artifact: Artifact) -> Iterator[str]:
    yield from _head(artifact)
    asked = [*conditions(artifact.facts), *map(str, artifact.bounds)]
    if asked:
        yield "serves arguments of which"
        yield from (f"  {c}" for c in asked)
    yield "variants, the first that holds"
    printed = set[str]()
    for v in artifact.variants:
        yield f"  {v.name} {when(v.predicate)}: {len(v.steps)} step(s)"
        for line in v.plan.splitlines():
            printed.add(f"{v.name}: {line}")
            yield f"    {_PATH.sub('', line)}"
    if artifact.left_out:
        yield "left out"
        yield from (f"  {left}" for left in artifact.left_out)
    yield "kernels"
    yield from (f"  {_resources(image)}" for image in artifact.kernels)
    if artifact.schedule:
        yield f"schedule: {artifact.schedule}"
    yield from (line for line in artifact.plan if line not in printed)


_PATH = re.compile(r"(?<![^\s:])\S*/(?=[^/\s]+\.py:\d)")
"""The folders of a place in a source file."""


def _resources(image: KernelImage) -> str:
    shared = image.shared_bytes + image.static_shared_bytes
    return (
        f"{image.symbol}: {image.threads} threads, cluster {image.cluster}, {image.registers} registers, "
        f"{shared} bytes of shared memory, {image.spill_bytes} bytes spilled"
    )


def _accesses(artifact: Artifact) -> Iterator[str]:
    """The width and number of every kernel's global memory accesses in machine code."""
    code = sum(code_bytes(image.cubin) for image in artifact.kernels)
    yield f"{len(artifact.kernels)} kernel(s), {code:,} bytes of machine code"
    for image in artifact.kernels:
        yield f"{image.symbol}: {code_bytes(image.cubin):,} bytes, {image.registers} registers"
        yield from (f"  {line}" for line in kernel_accesses(sass(image.cubin)).lines())


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
