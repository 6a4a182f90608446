"""CONTRIBUTING's worked examples, followed to the letter in a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()

USES_THE_FUNCTION = """
import numpy as np
import tilewright as tw

@tw.kernel
def grown(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x.shape[0], 64)
    y[m] = tw.deg2rad(tw.exp(x[m]))

x = np.linspace(-3, 3, 100, dtype=np.float32)
y = np.empty_like(x)
grown(x, y)
np.testing.assert_allclose(y, np.deg2rad(np.exp(x)), rtol=1e-6)
assert tw.deg2rad(0.5) == __import__("math").radians(0.5)
artifact = grown.compile()
assert "0x1.1df46ap-6f" in artifact.kernels[0].source
assert artifact.kernels[0].cubin
"""

USES_THE_CODE = """
from tilewright.cli.commands import app
from tilewright.diag import TilewrightError, fail

try:
    fail("CODE", found="a", required="b", help="c")
except TilewrightError as error:
    print(error)
app(["explain", "CODE"])
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sources, which the process of ``run`` imports."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src" / "tilewright"


def run(sources: Path, program: str) -> subprocess.CompletedProcess[str]:
    file = sources.parent.parent / "program.py"
    file.write_text(program)
    store = {"TILEWRIGHT_STORE": str(file.parent / "store"), "PYTHONPATH": str(sources.parent)}
    return subprocess.run([sys.executable, file], env=os.environ | store, capture_output=True, text=True, check=False)


def insert(file: Path, behind: str, line: str) -> None:
    """Puts ``line`` behind the first match of the pattern."""
    text = file.read_text()
    at = re.search(behind, text, re.MULTILINE)
    assert at is not None, f"{file.name} has no {behind}"
    file.write_text(text[: at.end()] + line + text[at.end() :])


def quoted(pattern: str) -> str:
    """What CONTRIBUTING says to write."""
    found = re.search(pattern, TEXT)
    assert found is not None, f"CONTRIBUTING has no {pattern}"
    return found.group(1)


def test_a_new_function_is_a_row_and_its_export(sources: Path) -> None:
    row = quoted(r"(DEG2RAD = .*)")
    insert(sources / "lang/fns.py", r"^    ERF = .*\n", f"    {row}\n")
    insert(sources / "lang/elementwise.py", r"^erf = .*\n", f"{quoted(r'`(deg2rad = _unary[^`]*)`')}\n")
    for names in (r"    erf,\n", r'    "erf",\n'):
        insert(sources / "__init__.py", names, names.replace("erf", "deg2rad").replace(r"\n", "\n"))
    done = run(sources, USES_THE_FUNCTION)
    assert done.returncode == 0, done.stderr


def test_a_new_error_code_is_an_entry_and_a_line(sources: Path) -> None:
    file = sources / "diag/catalogue/run.py"
    code = quoted(r"`fail\(\"(RUN\d+)\"")
    numbers = sorted(re.findall(r'"(RUN\d+)"', file.read_text()))
    assert code == f"RUN{int(numbers[-1][3:]) + 1:03d}", "the example takes the next free number"
    text = file.read_text()
    entry = f'    Code("{code}", "managed memory", "It moves.", bad="x", good="y", source="a guide"),\n'
    file.write_text(text[: text.rindex(")")] + entry + ")\n")
    done = run(sources, USES_THE_CODE.replace("CODE", code))
    assert done.returncode == 0, done.stderr
    assert f"error[{code}]: managed memory" in done.stdout
    assert f"{code}: managed memory\n\nIt moves.\n\nwrong:\n    x" in done.stdout
