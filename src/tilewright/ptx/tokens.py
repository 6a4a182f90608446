"""Tokenises PTX text with line numbers (PTX ISA 9.1, 4 Syntax), and reports errors in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from tilewright.diag import Location, fail

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TOKEN = re.compile(
    r"""//.*
    | ( "[^"]*"
      | 0[fF][0-9a-fA-F]{8}(?!\w) | 0[dD][0-9a-fA-F]{16}(?!\w)
      | 0[xX][0-9a-fA-F]{1,16}U?(?!\w) | 0[bB][01]{1,64}U?(?!\w)
      | \d{1,20}\.\d{0,20}(?:[eE][+-]?\d{1,3})?(?!\w) | \d{1,20}U?(?!\w)
      | [.]?[A-Za-z_%$][\w$]*(?:(?:\.|::)[\w$]+)*
      | << | >> | \S )""",
    re.VERBOSE,
)

_MARKS = frozenset("{}:")

NAME = re.compile(r"[A-Za-z_%$][\w$]*$")
NUMBER = re.compile(r"\d")


@dataclass(slots=True)
class Tokens:
    """``text[i]`` stands on line ``lines[i]`` of ``file``; an empty token ends the text.

    ``marks`` are the places of braces and colons.
    """

    text: list[str]
    lines: list[int]
    marks: list[int]
    file: str

    def refuse(self, at: int, required: str, code: str = "PTX001", found: str = "") -> NoReturn:
        """Raise the diagnostic ``code`` at token ``at``."""
        at = min(at, len(self.text) - 1)
        shown = self.text[at][:60] or "the end of the text"
        fail(code, where=Location(self.file, self.lines[at]), found=found or shown, required=required)


def tokens(text: str, file: str) -> Tokens:
    """All tokens of a text; comments are dropped, characters that PTX lacks are tokens that no rule takes."""
    if "/*" in text:
        text = _COMMENT.sub(_blank, text)
    found: list[str] = []
    lines: list[int] = []
    marks: list[int] = []
    findall = _TOKEN.findall
    for number, line in enumerate(text.split("\n"), 1):
        here = findall(line)
        if "//" in line:
            here = [t for t in here if t]
        if "{" in line or "}" in line or ":" in line:
            marks += [i for i, t in enumerate(here, len(found)) if t in _MARKS]
        found += here
        lines += [number] * len(here)
    found.append("")
    lines.append(text.count("\n") + 1)
    return Tokens(found, lines, marks, file)


def _blank(match: re.Match[str]) -> str:
    """A comment as the line breaks that it holds; a string stays."""
    text = match[0]
    return "\n" * text.count("\n") + " " if text.startswith("/*") else text
