"""``tilewright build ops``: the folder of shipped artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.terminal import echo
from tilewright.diag import fail
from tilewright.diag.configuration import Configuration

if TYPE_CHECKING:
    from tilewright.ops.listing import Ready
    from tilewright.ops.shipping import ShippingOutcome

app = typer.Typer(help="Build artifacts ahead of time.", no_args_is_help=True)


def register(top: typer.Typer) -> None:
    top.add_typer(app, name="build")


@app.callback()
def build() -> None:
    """Build artifacts ahead of time."""


@app.command("ops", help="Compile the operators that ship, those that are missing, into a folder.")
def build_ops(
    target: Annotated[str, typer.Option(help="architecture")] = "sm_90a",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="the folder (by default the setting `shipped`)")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="OPERATOR", help="these operators")] = None,
    dtype: Annotated[list[str] | None, typer.Option(metavar="DTYPE", help="these dtypes")] = None,
) -> None:
    from tilewright.hw.target import TARGETS
    from tilewright.ops.shipping import build

    if target not in TARGETS:
        fail("JIT004", found=target, required=", ".join(TARGETS))
    folder = out or Configuration.from_environment().shipped
    wanted = _wanted(only or [], dtype or [])
    outcomes: list[ShippingOutcome] = []
    for outcome in build(folder, target, wanted):
        outcomes.append(outcome)
        echo(f"[{len(outcomes)}/{len(wanted)}] {outcome.ready}: {_text(outcome)}")
    problems = [o for o in outcomes if o.problem]
    made = sum(o.made for o in outcomes)
    size = sum(o.bytes for o in outcomes) / 1e6
    seconds = sum(o.seconds for o in outcomes)
    there = len(outcomes) - made - len(problems)
    echo(f"{folder}: {made} made, {there} there before, {len(problems)} refused; {size:.1f} MB, {seconds:.0f} s")
    if problems:
        raise typer.Exit(1)


def _wanted(only: list[str], dtypes: list[str]) -> list[Ready]:
    """The operators selected by ``--only``; CMD002 for names that match none."""
    from tilewright.ops.listing import listing

    everything = listing()
    _check("--only", only, {ready.operator for ready in everything})
    _check("--dtype", dtypes, {str(ready.dtype) for ready in everything})
    return [r for r in everything if (not only or r.operator in only) and (not dtypes or str(r.dtype) in dtypes)]


def _check(option: str, given: list[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            fail("CMD002", found=f"{option} {name}", required=", ".join(sorted(known)))


def _text(outcome: ShippingOutcome) -> str:
    if outcome.problem:
        return f"refused\n{outcome.problem}"
    return f"{outcome.seconds:.1f} s, {outcome.bytes / 1e6:.2f} MB" if outcome.made else "there"
