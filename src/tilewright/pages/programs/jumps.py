"""Jumps out of a ``with``, found in the source of a function: tracing does not see what they leave out."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from types import CodeType


def jump_out_of_with(code: CodeType) -> tuple[str, int] | None:
    """A statement that jumps out of a ``with``, and its line."""
    first = code.co_firstlineno
    try:
        tree = _parsed(code)
    except (OSError, TypeError, SyntaxError, IndexError):
        return "a program whose source can't be read: a jump out of a branch would not be seen", first
    for jump in _jumps(tree, in_with=False, in_loop=False):
        return f"`{type(jump).__name__.lower()}` inside of a `with`", first + jump.lineno - 1
    return None


def _parsed(code: CodeType) -> ast.Module:
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : last_line(code)]
    try:
        return ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:  # the last statement goes on behind its last instruction
        return ast.parse(textwrap.dedent("".join(inspect.getsourcelines(code)[0])))


def _jumps(node: ast.AST, in_with: bool, in_loop: bool) -> Iterator[ast.stmt]:
    """Jumps that leave the innermost ``with`` around them, not only a loop of Python inside of it. A function begins
    anew; the ``else`` of a loop is behind it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return | ast.Break | ast.Continue):
            if in_with and (isinstance(child, ast.Return) or not in_loop):
                yield child
        elif isinstance(child, ast.With | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _jumps(child, isinstance(child, ast.With), False)
        elif isinstance(child, ast.For | ast.While):
            yield from _jumps(ast.Module(child.body, []), in_with, True)
            yield from _jumps(ast.Module(child.orelse, []), in_with, in_loop)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _jumps(child, in_with, in_loop)


def last_line(code: CodeType) -> int:
    """The last line of a function that has an instruction."""
    return max(line for _, _, line in code.co_lines() if line is not None)
