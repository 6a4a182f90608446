"""Cache programs of ``tests/data/pages`` as functions, each in several surroundings.

A case is a header and a body. ``#! CODE`` marks the line of the refusal, ``#? CODE`` one whose refusal is told at the
program's end, ``#: CODE`` a call whose refusal is told in a helper before it.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import pages

FOLDER = Path(__file__).parents[1] / "data" / "pages"
PLACES = (
    'cell, spare, tables = pages.cell("cell"), pages.cell("spare"), pages.cell("tables")\n'
    'held, others = pages.slots(requests, "held"), pages.slots(requests, "others")\n'
)
AROUND = {
    "alone": "{}",
    "in a phase": 'with pages.phase("serving"):\n{1}',
    "in a loop": 'for _ in pages.repeat("engine"):\n{1}',
    "of a request": "for each_request in pages.each(requests):\n{1}",
    "in a branch": 'with pages.when(pages.flag("serves")):\n{1}',
    "in the other branch": 'with pages.when(pages.flag("idle")):\n    pages.fence()\nwith pages.otherwise():\n{1}',
    "behind work": "before = pool.table()\nbefore.append(99)\n{}\npages.fence()\nbefore.release()",
}
"""Surroundings; ``{1}``: indented once."""


@dataclass(frozen=True)
class Case:
    """One program: its source, and where it is refused by which code (None: it is right)."""

    name: str
    source: str
    code: str | None = None
    line: int | None = None

    def function(self) -> Callable[..., Any]:
        file = f"<page program: {self.name}>"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(keepends=True), file)
        scope: dict[str, Any] = {"pages": pages}
        exec(compile(self.source, file, "exec"), scope)
        return scope["serve"]


def cases(kind: str) -> Iterator[Case]:
    """Those of ``wrong`` or ``right``, in all surroundings that they can stand in."""
    for part in re.split(r"^== ", (FOLDER / f"{kind}.txt").read_text(), flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        for around, template in AROUND.items():
            if "requests" in template and ("requests" in body or "PAG008" in body):
                continue  # loops over requests do not nest
            if "PAG008" in body and around == "in a loop":
                continue  # the second iteration finds another cell
            if "#?" in body and around in ("in a loop", "of a request"):
                continue
            yield _case(f"{name}, {around}", body.rstrip(), template)


def _case(name: str, body: str, template: str) -> Case:
    around = template.format(body, _indented(body)) if "{1}" in template else template.replace("{}", body)
    source = f"def serve(pool: pages.Pool, requests: pages.Requests):\n{_indented(PLACES + around)}\n"
    for number, line in enumerate(source.splitlines(), 1):
        marked = re.search(r"#([!?:]) (PAG\d{3})", line)
        if marked:
            where = {"!": number, "?": len(source.splitlines()), ":": None}[marked[1]]
            return Case(name, source, marked[2], where)
    return Case(name, source)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines()).rstrip("\n")
