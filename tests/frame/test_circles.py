"""No two files of a room need each other, be it for types only or inside of a function."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def modules(root: Path) -> dict[str, Path]:
    """Files by module name; a package is its ``__init__``."""
    found: dict[str, Path] = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: Collection[str]) -> Iterator[str]:
    """Every module that a file imports or takes a name from, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            taken = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else str(node.module) for name in taken)


def imports(root: Path) -> dict[str, set[str]]:
    """The modules of its own room that each module of a room imports."""
    files = modules(root)
    rooms = {name: name.split(".")[1] for name in files if name.count(".")}
    return {name: {t for t in imported(files[name], rooms) if rooms.get(t) == rooms[name]} - {name} for name in rooms}


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that reach each other, sorted, a list for each circle (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    least: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = least[name] = len(number)
        open_.append(name)
        for target in edges[name]:
            if target not in number:
                visit(target)
                least[name] = min(least[name], least[target])
            elif target in open_:
                least[name] = min(least[name], number[target])
        if least[name] == number[name]:
            circle = open_[open_.index(name) :]
            del open_[open_.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return found


def test_rooms_have_no_circles() -> None:
    edges = imports(SOURCES)
    assert sum(map(len, edges.values())) > 500
    assert circles(edges) == []


HIDDEN = {
    "plain": "from tilewright.room import a\n",
    "for types only": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tilewright.room.a import A\n",
    "inside of a function": "def f() -> None:\n    import tilewright.room.a\n",
}


@pytest.mark.parametrize("back", HIDDEN)
def test_a_circle_is_found_where_it_hides(back: str, tmp_path: Path) -> None:
    room = tmp_path / "tilewright" / "room"
    room.mkdir(parents=True)
    (room / "a.py").write_text("from tilewright.room.b import B\n")
    (room / "b.py").write_text("from tilewright.room import c\n")
    (room / "c.py").write_text(HIDDEN[back])
    (room / "d.py").write_text("from tilewright.room import a\n")
    assert circles(imports(tmp_path)) == [["tilewright.room.a", "tilewright.room.b", "tilewright.room.c"]]
