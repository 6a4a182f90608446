"""``tilewright demo`` and ``tilewright show layout``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from support.gpu import gpu_present
from tilewright.cli import demo
from tilewright.cli.commands import app
from tilewright.diag import TilewrightError
from tilewright.jit.inspection import Case

EXAMPLES = Path(__file__).parents[2] / "examples"


def tilewright(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def test_the_demo_goes_the_whole_way(tmp_path: Path) -> None:
    page = tmp_path / "new" / "index.html"
    result = tilewright("demo", "--out", page, "--examples", EXAMPLES)
    assert result.exit_code == 0, result.output
    for part in ("softmax: tracing, scheduling and proving ... ", "matmul: simulating ... ", "obligations proved"):
        assert part in result.output
    for part in ("y in the simulator: greatest error", "c in the simulator: greatest error", page.as_uri()):
        assert part in result.output
    if not gpu_present():
        assert "not launched: no GPU driver" in result.output
    assert page.read_text().count("<section") == 2


def only_softmax(monkeypatch: pytest.MonkeyPatch, change: dict[str, object]) -> None:
    def changed(examples: Path) -> Case:
        return replace(demo.softmax(examples), **change)

    monkeypatch.setattr(demo, "CASES", (changed,))


def test_a_wrong_result_ends_with_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_softmax(monkeypatch, {"tolerance": 0.0})
    result = tilewright("demo", "--out", tmp_path / "x.html", "--examples", EXAMPLES)
    assert result.exit_code == 1
    assert "differs" in (tmp_path / "x.html").read_text()


def test_a_refusal_is_reported_and_ends_with_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_softmax(monkeypatch, {"keywords": {"upto": 100}})  # rows of 1000
    result = tilewright("demo", "--out", tmp_path / "x.html", "--examples", EXAMPLES)
    assert result.exit_code == 1
    assert "not compiled: error[RUN" in result.output
    assert "error[RUN" in (tmp_path / "x.html").read_text()


def test_the_demo_needs_its_examples(tmp_path: Path) -> None:
    result = tilewright("demo", "--out", tmp_path / "x.html", "--examples", tmp_path)
    assert isinstance(result.exception, TilewrightError)
    assert result.exception.code == "CMD001"


# -- show layout -----------------------------------------------------------------------------------------------------


def test_a_layout_in_the_terminal() -> None:
    lines = tilewright("show", "layout", "(8,8):(8,1)", "--swizzle", "3,0,3").output.splitlines()
    assert lines[0] == "Sw<3,0,3> o 0 o (8,8):(8,1)"
    assert [int(x) for x in lines[3].split()] == [1, *(8 + (j ^ 1) for j in range(8))]


def test_a_layout_as_svg(tmp_path: Path) -> None:
    out = tmp_path / "new" / "x.SVG"
    assert str(out) in tilewright("show", "layout", "(8,8):(8,1)", "--swizzle", "3,4,3", "--out", out).output
    root = ElementTree.fromstring(out.read_text())
    assert len([e for e in root.iter() if e.tag.endswith("rect")]) == 64


def test_a_layout_as_png(tmp_path: Path) -> None:
    out = tmp_path / "x.png"
    assert tilewright("show", "layout", "(64,64):(64,1)", "--out", out).exit_code == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("(8,8):(8,1)", "--out", "x.jpg"), "CMD005"),
        (("(8,8):(8,1)", "--out", "x"), "CMD005"),
        (("(65,8):(8,1)",), "LAY018"),
        (("(8,8:(8,1)",), "LAY013"),
        (("(8,8):(8,1)", "--swizzle", "3,4"), "LAY013"),
    ],
)
def test_what_cannot_be_shown(
    args: tuple[str, ...], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tilewright("show", "layout", *args)
    assert isinstance(result.exception, TilewrightError)
    assert result.exception.code == code
    assert list(tmp_path.iterdir()) == []
