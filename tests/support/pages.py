"""Runs the code of a document.

A fence of ``python`` is executed, all of a page in one scope, from the folder of the run; with a title it is also
written to a file of that name. One that begins with ``>>>`` is a doctest. A fence of ``py`` is for other systems: it is
parsed only. Lines of ``console`` that begin with ``$ tilewright`` are run and print what follows them. A fence of
``output`` is what the code before it has printed; ``...`` stands for anything, spaces do not count.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import linecache
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```([\w-]+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Fence:
    """One fenced block: its language, its title or nothing, its text."""

    language: str
    title: str
    text: str


def fences(page: Path) -> Iterator[Fence]:
    """Those of a page, in order."""
    for language, options, text in _FENCE.findall(page.read_text()):
        title = re.search(r'title="([^"]+)"', options)
        yield Fence(language, title[1] if title else "", text)


def run_page(page: Path, folder: Path) -> int:
    """Run its code in ``folder``, which is the current one; the number of blocks that were run or compared."""
    (folder / "examples").symlink_to(ROOT / "examples")
    scope: dict[str, Any] = {"__name__": page.stem}
    printed = ""
    count = 0
    for number, fence in enumerate(fences(page)):
        count += fence.language in ("python", "py", "console", "output")
        match fence.language:
            case "python" if fence.text.startswith(">>>"):
                _doctest(fence.text, scope, f"{page.name}, fence {number}")
            case "python":
                printed = _execute(fence, scope, folder, f"{page.stem}_{number}.py")
            case "py":
                ast.parse(fence.text)
            case "console":
                _commands(fence.text)
            case "output":
                _compare(fence.text, printed)
            case _:
                pass
    return count


def _execute(fence: Fence, scope: dict[str, Any], folder: Path, name: str) -> str:
    """What the code prints."""
    file = fence.title or name
    (folder / file).write_text(fence.text)
    linecache.checkcache(file)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(fence.text, file, "exec"), scope)
    return printed.getvalue()


def _doctest(text: str, scope: dict[str, Any], name: str) -> None:
    test = doctest.DocTestParser().get_doctest(text, scope, name, name, 0)
    report = io.StringIO()
    results = doctest.DocTestRunner(optionflags=_LIKE).run(test, out=report.write, clear_globs=False)
    assert results.failed == 0, report.getvalue()
    scope.update(test.globs)


def _commands(text: str) -> None:
    """Each command of ours with the output below it; the streams as a terminal shows them."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        words = shlex.split(line, comments=True)
        if words[0] != "tilewright":
            continue
        done = subprocess.run(
            [sys.executable, "-m", "tilewright", *words[1:]],
            env=os.environ | {"COLUMNS": "120", "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode != 70, done.stdout
        _compare(expected, done.stdout, line)


def _compare(expected: str, got: str, of: str = "the code before") -> None:
    checker = doctest.OutputChecker()
    assert checker.check_output(expected, got, _LIKE), f"{of} printed\n{got}\nnot\n{expected}"
