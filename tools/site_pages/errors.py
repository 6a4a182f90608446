"""The page of errors, from the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tilewright.diag.catalogue import CATALOGUE
from tilewright.diag.catalogue.entry import Code

GROUPS = {
    "ACC": "Accesses",
    "ART": "Bundles and the store",
    "BLK": "Blackwell descriptors",
    "CGN": "Code generation",
    "CMD": "Command line",
    "CRT": "Certificates",
    "JIT": "Calls",
    "LAY": "Layouts",
    "LIM": "Limits",
    "LNG": "Language",
    "MBR": "Protocols",
    "PAG": "Pages",
    "PTX": "PTX",
    "RUN": "Launches",
    "SCH": "Schedules",
    "SIM": "Simulator",
    "TMA": "Tensor maps",
    "UMM": "tcgen05 operands",
    "WGM": "wgmma operands",
}


def page() -> str:
    """Every code with what `tilewright explain` says of it."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Errors\n"
    yield "Every refusal has a code, says what was found and what is required, and what helps. "
    yield "`tilewright explain RUN010` prints an entry of this page.\n"
    entries = sorted(CATALOGUE.values(), key=lambda code: code.id)
    for prefix, codes in groupby(entries, key=lambda code: code.id[:3]):
        yield f"## {GROUPS.get(prefix, prefix)}\n"
        for code in codes:
            yield from _entry(code)


def _entry(code: Code) -> Iterator[str]:
    yield f"### {code.id}: {_plain(code.title)} {{ #{code.id.lower()} }}\n"
    yield _plain(code.why) + "\n"
    for name, text in (("wrong", code.bad), ("right", code.good)):
        if text:
            yield f"{name}:\n\n```text\n{text}\n```\n"
    if code.help:
        yield f"**Help**: {_plain(code.help)}\n"
    if code.source:
        yield f"*Source: {_plain(code.source)}*\n"


def _plain(text: str) -> str:
    """Text in which Markdown sees no markup."""
    for mark in "\\`*_<[]":
        text = text.replace(mark, f"\\{mark}" if mark != "<" else "&lt;")
    return text
