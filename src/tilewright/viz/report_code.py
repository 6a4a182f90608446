"""Program text as HTML: escaped, with comments, strings and keywords marked."""

from __future__ import annotations

import builtins
import io
import keyword
import re
import tokenize
from html import escape
from itertools import accumulate

_CUDA = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>\"[^\"\n]*\")", re.DOTALL)


def python_html(source: str) -> str:
    """Python source; plain where it can't be tokenised."""
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return escape(source)
    parts: list[str] = []
    end = 0
    for token in tokens:
        style = _style(token)
        begin = starts[token.start[0] - 1] + token.start[1]
        if not style or begin < end:
            continue
        parts.append(escape(source[end:begin]))
        parts.append(f'<span class="{style}">{escape(token.string)}</span>')
        end = begin + len(token.string)
    return "".join([*parts, escape(source[end:])])


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
