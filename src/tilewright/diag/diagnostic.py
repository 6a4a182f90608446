"""Diagnostics as values: what was found, what is required, where, by which source, and what helps."""

from __future__ import annotations

import linecache
import re
import unicodedata
from dataclasses import dataclass, field
from enum import Enum


class Severity(Enum):
    """How severe a diagnostic is: an error stops, a warning is shown."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Location:
    """A place in a user's file; ``line`` and ``column`` count from 1, 0 when unknown."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")

    @property
    def text(self) -> str:
        """The source line, stripped; empty when the file can't be read."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True)
class Label:
    """A secondary location with a note on its role."""

    where: Location
    message: str


@dataclass(frozen=True)
class Diagnostic:
    """One finding. ``code`` names an entry of the catalogue; ``title`` overrides its summary with the case's values."""

    code: str
    title: str = ""
    where: Location | None = None
    found: str = ""
    required: str = ""
    source: str = ""
    help: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR

    @property
    def summary(self) -> str:
        """The headline: ``title`` or the catalogue's."""
        if self.title:
            return self.title
        from tilewright.diag.catalogue import CATALOGUE

        return CATALOGUE[self.code].title

    @property
    def advice(self) -> str:
        """The help of this case, or else the catalogue's."""
        from tilewright.diag.catalogue import CATALOGUE

        return self.help or (CATALOGUE[self.code].advice if self.code in CATALOGUE else "")


def printable(text: str) -> str:
    """``text`` with control and format characters and lone surrogates, which could control a terminal, as escapes."""
    return text if text.isascii() and not _CONTROL.search(text) else "".join(map(_shown, text))


def shown(value: object, most: int = 80) -> str:
    """``repr(value)`` for a message, at most ``most`` characters; safe for any object that a caller passes."""
    try:
        text = repr(value)
    except Exception:  # a user's class, or an integer of more digits than Python prints
        if isinstance(value, int):
            return f"an integer of {value.bit_length()} bits"
        text = f"a {type(value).__name__} that can't be shown"
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def type_shown(value: object) -> str:
    """The type of a value, for a message: "an int", "a list"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _shown(character: str) -> str:
    if character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    return character.encode("unicode_escape").decode("ascii")


def render(diagnostic: Diagnostic) -> str:
    """Plain text in rustc's manner: headline, place, found, required, source, notes, help; for any terminal."""
    d = diagnostic
    lines = [f"{d.severity.value}[{d.code}]: {d.summary}"]
    if d.where is not None:
        lines.append(f"  --> {d.where}   {d.where.text}".rstrip())
    for label in d.labels:
        lines.append(f"  ::: {label.where}   {label.where.text}".rstrip())
        lines.append(f"      {label.message}")
    for name, value in (("found:   ", d.found), ("required:", d.required), ("source:  ", d.source)):
        if value:
            lines.append(f"   = {name} {value}")
    lines += [f"   = note:     {note}" for note in d.notes]
    if d.advice:
        lines.append(f"help: {d.advice}")
    return printable("\n".join(lines))


@dataclass(eq=False)
class TilewrightError(Exception):
    """The one exception of the public API; carries every diagnostic that was found."""

    diagnostics: tuple[Diagnostic, ...] = field(default=())

    def __str__(self) -> str:
        return "\n\n".join(map(render, self.diagnostics))

    @property
    def code(self) -> str:
        """The first diagnostic's code."""
        return self.diagnostics[0].code
