"""What the documents say is true: examples run, paths and codes exist, commands are there."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
from typer.testing import CliRunner

from support.pytorch import installed
from tilewright.cli.commands import app
from tilewright.diag.catalogue import CATALOGUE
from tilewright.diag.diagnostic import TilewrightError

pytestmark = pytest.mark.sample(1)

ROOT = Path(__file__).parents[2]
PAGES = ["docs/contracts.md", "docs/inside.md", "docs/legality.md", "docs/measured.md"]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *PAGES]


def test_the_readmes_kernel_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "readme.py"
    file.write_text(block)
    scope: dict[str, np.ndarray] = {"__name__": "readme"}
    exec(compile(block, str(file), "exec"), scope)
    e = np.exp(scope["x"].astype(np.float64) - scope["x"].max(1, keepdims=True))
    np.testing.assert_allclose(scope["y"], e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


EVERY = sorted({*DOCUMENTS, *(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))})


@pytest.mark.parametrize("document", EVERY)
def test_paths_exist(document: str) -> None:
    paths = re.findall(r"\b((?:src|tests|examples|tools|benchmarks)/[\w/.]*\w)", (ROOT / document).read_text())
    assert [p for p in paths if not (ROOT / p).exists()] == []


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d != "README.md"])
def test_modules_and_what_is_in_them_exist(document: str) -> None:
    package = ROOT / "src" / "tilewright"
    rooms = "|".join(p.name for p in package.iterdir() if p.is_dir())
    named = re.findall(rf"`(?:tilewright\.)?((?:{rooms})(?:\.\w+)+)[`(]", (ROOT / document).read_text())
    assert named or document in ("CONTRIBUTING.md", "docs/measured.md")
    assert [name for name in named if not exists(f"tilewright.{name}")] == []


def exists(name: str) -> bool:
    """Whether there is a module of this name, or something of this name in one."""
    try:
        resolve_name(name)
    except (ImportError, AttributeError, TilewrightError):
        # a module that imports PyTorch, where that is not installed
        return name.startswith("tilewright.ops.") and not installed() and find_spec(name) is not None
    return True


@pytest.mark.parametrize("document", ["ARCHITECTURE.md"])
def test_rooms_exist(document: str) -> None:
    rows = [line for line in (ROOT / document).read_text().splitlines() if line.startswith("| | `")]
    named = {room for row in rows for room in re.findall(r"(?:\| |· )`(\w+)`", row)}
    rooms = {p.name for p in (ROOT / "src" / "tilewright").iterdir() if (p / "__init__.py").is_file()}
    assert named == rooms


def test_tables_are_those_of_the_results() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "measured.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_protocol_of_the_readme_is_refuted_as_documented(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```\n(error.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = (ROOT / "examples" / "protocols" / "matmul.txt").read_text().splitlines(keepends=True)
    unfenced = tmp_path / "unfenced.txt"
    unfenced.write_text("".join(line for line in lines if "FenceProxyAsync" not in line))
    answer = CliRunner().invoke(app, ["check", str(unfenced)])
    assert answer.exit_code == 1
    assert [line for line in shown.splitlines() if line not in answer.output.splitlines()] == []


def test_commands_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for words in sorted(set(re.findall(r"^tilewright ([\w-]+(?: layout| banks| tma| wgmma)?)", text, re.MULTILINE))):
        assert CliRunner().invoke(app, [*words.split(), "--help"]).exit_code == 0
    for code in re.findall(r"tilewright explain ([A-Z]+\d+)", text):
        assert code in CATALOGUE
