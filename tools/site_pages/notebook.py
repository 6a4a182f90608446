"""A notebook as a page: its text, and its code with what it printed when the page was made."""

from __future__ import annotations

import contextlib
import io
import json
import linecache
from pathlib import Path
from typing import Any


def cells(path: Path) -> list[tuple[str, str]]:
    """Kind (``markdown`` or ``code``) and source of every cell."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def run(path: Path) -> list[tuple[str, str, str]]:
    """The cells with what each code cell printed, run one after another in one process."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    result: list[tuple[str, str, str]] = []
    for number, (kind, source) in enumerate(cells(path)):
        printed = io.StringIO()
        if kind == "code":
            name = f"<cell {number}>"
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            with contextlib.redirect_stdout(printed):
                exec(compile(source, name, "exec"), scope)
        result.append((kind, source, printed.getvalue()))
    return result


def page(path: Path) -> str:
    """The notebook in Markdown."""
    parts: list[str] = []
    for kind, source, printed in run(path):
        parts.append(f"```python\n{source}\n```" if kind == "code" else source)
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
