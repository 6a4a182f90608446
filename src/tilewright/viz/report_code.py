"""Program text as HTML: escaped, with comments, strings and keywords marked."""

from __future__ import annotations

import builtins
import io
import keyword
import re
import tokenize
from html import escape

_CUDA = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>\"[^\"\n]*\")", re.DOTALL)


def python_html(source: str) -> str:
    """Python source; plain where it can't be tokenised."""
    lines = source.splitlines(keepends=True)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return escape(source)
    parts: list[str] = []
    row, column = 1, 0
    for token in tokens:
        style = _style(token)
        if not style or token.start < (row, column):
            continue
        parts.append(escape(_between(lines, (row, column), token.start)))
        parts.append(f'<span class="{style}">{escape(token.string)}</span>')
        row, column = token.end
    parts.append(escape(_between(lines, (row, column), (len(lines) + 1, 0))))
    return "".join(parts)


def cuda_html(source: str) -> str:
    """CUDA C++ source."""
    parts: list[str] = []
    end = 0
    for match in _CUDA.finditer(source):
        style = "c" if match.lastgroup == "comment" else "s"
        parts.append(escape(source[end : match.start()]))
        parts.append(f'<span class="{style}">{escape(match.group())}</span>')
        end = match.end()
    return "".join([*parts, escape(source[end:])])


def _style(token: tokenize.TokenInfo) -> str:
    match token.type:
        case tokenize.COMMENT:
            return "c"
        case tokenize.STRING:
            return "s"
        case tokenize.NAME if keyword.iskeyword(token.string):
            return "k"
        case tokenize.NAME if token.string in vars(builtins) and token.string.islower():
            return "b"
        case _:
            return ""


def _between(lines: list[str], start: tuple[int, int], stop: tuple[int, int]) -> str:
    """Text from ``start`` to ``stop``, each a row from 1 and a column from 0."""
    (first, left), (last, right) = start, stop
    if first == last:
        return lines[first - 1][left:right]
    whole = lines[first : last - 1]
    head = lines[first - 1][left:] if first <= len(lines) else ""
    tail = lines[last - 1][:right] if last <= len(lines) else ""
    return head + "".join(whole) + tail
