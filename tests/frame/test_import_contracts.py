"""Every import contract can fail: violating imports in a copy of the package break the contract that forbids them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

pytestmark = pytest.mark.sample(2)

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = next(c for c in CONTRACTS if c["id"] == "layers")


def rows() -> list[list[str]]:
    """Rooms with code, row by row from the top."""
    named = ([room.strip() for room in row.split("|")] for row in LAYERS["layers"])
    return [built for row in named if (built := [r for r in row if not r.startswith("(")])]


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    yield tmp_path
    shutil.rmtree(tmp_path / "src")


def lint(copy: Path, *contracts: str) -> tuple[bool, str]:
    """Whether the contracts are kept, and what import-linter says."""
    named = [word for contract in contracts for word in ("--contract", contract)]
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo", *named]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "400"}
    config = ["--config", str(copy / "pyproject.toml")]
    done = subprocess.run(
        [*command, *config], cwd=copy / "src", env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode == 0, done.stdout


def plant(copy: Path, room: str, *imports: str, name: str = "planted") -> None:
    (copy.joinpath("src", "tilewright", *room.split("."), f"{name}.py")).write_text(
        "".join(f"import {i}\n" for i in imports)
    )


def test_the_code_keeps_all_contracts(copy: Path) -> None:
    kept, said = lint(copy, *(contract["id"] for contract in CONTRACTS))
    assert kept, said


def test_every_row_and_every_neighbour(copy: Path) -> None:
    forbidden: list[tuple[str, str]] = []
    order = rows()
    for upper, lower in combinations(order, 2):
        forbidden += [(low, up) for low in lower for up in upper]
    for row in order:
        forbidden += [(a, b) for a in row for b in row if a != b]
    assert len(forbidden) > 100
    for room in {low for low, _ in forbidden}:
        plant(copy, room, *(f"tilewright.{up}" for low, up in forbidden if low == room))
    kept, said = lint(copy, "layers")
    assert not kept
    missed = [
        pair for pair in forbidden if f"tilewright.{pair[0]} is not allowed to import tilewright.{pair[1]}" not in said
    ]
    assert missed == []


def test_a_new_room_needs_a_row(copy: Path) -> None:
    (copy / "src" / "tilewright" / "attic").mkdir()
    (copy / "src" / "tilewright" / "attic" / "__init__.py").touch()
    kept, said = lint(copy, "layers")
    assert not kept
    assert "attic" in said


DIRECT = [
    (c["id"], source.removeprefix("tilewright").removeprefix("."), module)
    for c in CONTRACTS
    if c["type"] == "forbidden"
    for source in c["source_modules"]
    for module in c["forbidden_modules"]
]


@pytest.mark.parametrize("contract", [c["id"] for c in CONTRACTS if c["type"] == "forbidden"])
def test_forbidden_imports(contract: str, copy: Path) -> None:
    broken = [(source or "base", module) for name, source, module in DIRECT if name == contract]
    for source in {s for s, _ in broken}:
        plant(copy, source, *(m for s, m in broken if s == source))
    kept, said = lint(copy, contract)
    assert not kept
    missed = [
        w
        for w in broken
        if f"tilewright.{w[0]} is not allowed to import {w[1]}"
        not in said.replace("tilewright is", "tilewright.base is")
    ]
    assert missed == []


@pytest.mark.parametrize(
    ("contract", "room", "through", "module"),
    [
        ("runtime", "runtime", "hw", "numpy"),
        ("verify", "verify", "protocol", "xdsl"),
        ("model-checker", "verify.model_checker", "protocol", "tilewright.protocol.graph"),
        ("ptx", "ptx", "hw", "tilewright.layout"),
        ("torch", "jit", "base", "torch"),
        ("proofs", "compiler.proofs", "transport", "tilewright.schedule"),
        ("kv-cache", "pages", "runtime", "tilewright.compiler"),
    ],
)
def test_contracts_that_count_indirect_imports(contract: str, room: str, through: str, module: str, copy: Path) -> None:
    plant(copy, through, module, name="between")
    plant(copy, room, f"tilewright.{through}.between")
    assert not lint(copy, contract)[0]


@pytest.mark.parametrize(
    ("contract", "room", "through", "module"),
    [
        ("simulate", "simulate", "transport", "tilewright.layout"),
        ("codegen", "codegen", "transport", "tilewright.legal"),
    ],
)
def test_contracts_that_count_direct_imports(contract: str, room: str, through: str, module: str, copy: Path) -> None:
    plant(copy, through, module, name="between")
    plant(copy, room, f"tilewright.{through}.between")
    assert lint(copy, contract)[0]
