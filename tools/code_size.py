"""The size and shape of ``src`` at two commits, as docs/inside.md has it ("Code size and structure, before and after").

    python tools/code_size.py [BEFORE] [AFTER]

Lines are those of ``git ls-tree``, blank ones and docstrings included. A room is a package of ``src/tilewright``.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median

BEFORE = "afa54bfa"
"""The tree before the restructuring: 417 files, 66,483 lines."""
OTHERS = ("pages", "ops", "ptx", "validate")
"""Rooms that did not exist then: PyTorch, paged caches, PTX, validation."""
RENAMED = {"contract": "verify"}
"""Rooms by their present names."""
_OF_OP = re.compile(r"\bops\.[A-Z]\w+")
_WAIT = re.compile(r"\bops\.Wait\b")


@dataclass(frozen=True)
class Source:
    """A file of ``src``."""

    path: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        parts = self.path.split("/")
        return RENAMED.get(parts[2], parts[2]) if len(parts) > 3 else "(top)"

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def outside(self) -> bool:
        """Whether it uses protocol ops, rather than defining them."""
        return "/protocol/ops" not in self.path


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def sources(commit: str) -> Iterator[Source]:
    for path in git("ls-tree", "-r", "--name-only", commit, "src").splitlines():
        if path.endswith(".py"):
            text = git("show", f"{commit}:{path}")
            yield Source(path, text, ast.parse(text))


def functions(files: list[Source]) -> list[int]:
    """Lines of each."""
    nodes = (n for f in files for n in ast.walk(f.tree) if isinstance(n, ast.FunctionDef))
    return [(n.end_lineno or n.lineno) - n.lineno + 1 for n in nodes]


def docstrings(files: list[Source]) -> int:
    """Lines of them, attributes' too."""
    nodes = (n for f in files for n in ast.walk(f.tree) if isinstance(n, ast.Expr))
    told = (n for n in nodes if isinstance(n.value, ast.Constant) and isinstance(n.value.value, str))
    return sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in told)


def shape(files: list[Source]) -> dict[str, str]:
    """What one commit is told by."""
    lines, lengths = sum(f.lines for f in files), functions(files)
    blank = sum(not line.strip() for f in files for line in f.text.splitlines())
    classes = Counter(n.name for f in files for n in f.tree.body if isinstance(n, ast.ClassDef))
    shared = [count for count in classes.values() if count > 1]
    outside = [f for f in files if f.outside]
    return {
        "files": f"{len(files):,}",
        "lines": f"{lines:,}",
        "of these in rooms of that time": f"{sum(f.lines for f in files if f.room not in OTHERS):,}",
        "functions": f"{len(lengths):,}",
        "lines of a function: median, mean, most": f"{median(lengths):.0f}, {mean(lengths):.1f}, {max(lengths)}",
        "blank lines": f"{blank / lines:.1%}",
        "docstrings": f"{docstrings(files) / lines:.1%}",
        "classes that share their name": f"{sum(shared)} of {sum(classes.values()):,}",
        "uses of an op of protocols": f"{sum(len(_OF_OP.findall(f.text)) for f in outside):,}",
        "files that name its `Wait`": f"{sum(bool(_WAIT.search(f.text)) for f in outside)}",
    }


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", default=BEFORE)
    parser.add_argument("after", nargs="?", default="HEAD")
    args = parser.parse_args()
    before, after = (list(sources(commit)) for commit in (args.before, args.after))
    print(f"| | {args.before} | {args.after} |\n|---|---|---|")
    for (name, old), new in zip(shape(before).items(), shape(after).values(), strict=True):
        print(f"| {name} | {old} | {new} |")
    old, new = (Counter[str]() for _ in range(2))
    for rooms, files in ((old, before), (new, after)):
        for f in files:
            rooms[f.room] += f.lines
    print(f"\n| room | {args.before} | {args.after} |\n|---|---|---|")
    for room in sorted(new | old, key=lambda r: (r in OTHERS, -new[r])):
        print(f"| `{room}` | {old[room]:,} | {new[room]:,} |")


if __name__ == "__main__":
    main()
