"""``tilewright explain CODE``: an entry of the error catalogue. Other things to explain register on ``app``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated

import typer

from tilewright.cli.group import group_with_default
from tilewright.cli.terminal import echo
from tilewright.diag import fail
from tilewright.diag.catalogue import CATALOGUE
from tilewright.diag.catalogue.entry import Code

RULE_PREFIXES = frozenset(("TMA", "BLK", "WGM", "UMM", "LIM"))
"""Codes that are rows of the hardware tables."""

app = group_with_default("code", "Explain an error code; without one, list them all.")


def register(top: typer.Typer) -> None:
    top.add_typer(app, name="explain")


@app.command("code")
def explain_code(code: Annotated[str | None, typer.Argument(help="such as RUN010")] = None) -> None:
    """Print an entry of the error catalogue."""
    if code is None:
        for entry in sorted(CATALOGUE.values(), key=lambda c: c.id):
            echo(f"{entry.id}  {entry.title}")
        return
    entry = CATALOGUE.get(code.upper())
    if entry is None:
        close = difflib.get_close_matches(code.upper(), CATALOGUE, n=3, cutoff=0.5)
        near = f"near it: {', '.join(close)}" if close else "tilewright explain, without a code, lists them all"
        if code.upper().startswith(("CUDA_ERROR", "CUTENSORMAP")):
            near = "what is wrong with a tensor map: tilewright explain tma --shape 4096x100 --dtype bf16 --box 64x64"
        fail("CMD003", found=code, required="a code of the catalogue", help=near)
    for line in rule(entry) if entry.id[:3] in RULE_PREFIXES else describe(entry):
        echo(line)


def rule(entry: Code) -> Iterator[str]:
    """The entry of a hardware rule, with its predicate, scope and evidence."""
    from tilewright.legal import explain_rule

    yield explain_rule(entry.id) or ""


def describe(entry: Code) -> Iterator[str]:
    """The entry as text."""
    yield f"{entry.id}: {entry.title}"
    yield ""
    yield entry.why
    for title, text in (("wrong", entry.bad), ("right", entry.good)):
        if text:
            yield f"\n{title}:"
            yield from (f"    {line}" for line in text.splitlines())
    if entry.help:
        yield f"\nhelp: {entry.help}"
    yield f"\nsource: {entry.source}"
