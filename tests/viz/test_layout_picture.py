"""Pictures say what the layouts say."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tilewright.base.expr import sym
from tilewright.cli.commands import app
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import Swizzle
from tilewright.layout.banks import WaveAccess, instruction
from tilewright.layout.cute import CuteLayout
from tilewright.layout.library import fragments
from tilewright.layout.shared import SharedTile
from tilewright.viz.grid import Drawable, grid_of, read_layout
from tilewright.viz.layout_picture import layout_svg, layout_text
from tilewright.viz.png import layout_png

pytestmark = pytest.mark.sample(4)

DRAWABLE: list[Drawable] = [
    read_layout("(8,8):(8,1)"),
    read_layout("(8,64):(64,1)", "3,3,3"),
    read_layout("((2,4),8):((1,16),2)"),
    read_layout("16:3"),
    fragments.wgmma_accumulator(64, 24),
    fragments.wgmma_accumulator(64, 8).slice(1),
    SharedTile.swizzled(8, 64, 2, Swizzle.B128),
    CuteLayout((64, 64)),
]


def test_text_is_the_table() -> None:
    lines = layout_text(read_layout("(4,8):(8,1)")).splitlines()
    assert lines[0] == "(4,8):(8,1)"
    assert lines[1].split() == [str(j) for j in range(8)]
    assert [line.split() for line in lines[2:]] == [[str(i), *(str(8 * i + j) for j in range(8))] for i in range(4)]
    assert len({len(line) for line in lines[1:]}) == 1


def test_swizzled_text() -> None:
    lines = layout_text(read_layout("(8,8):(8,1)", "3,0,3")).splitlines()
    assert lines[0] == "Sw<3,0,3> o 0 o (8,8):(8,1)"
    assert [int(x) for x in lines[3].split()[1:]] == [8 + (j ^ 1) for j in range(8)]


def test_register_text_names_thread_and_register() -> None:
    row = layout_text(fragments.wgmma_accumulator(64, 8)).splitlines()[2 + 9].split()
    assert row[1:] == ["T4r2", "T4r3", "T5r2", "T5r3", "T6r2", "T6r3", "T7r2", "T7r3"]


@pytest.mark.parametrize("layout", DRAWABLE)
def test_svg_is_well_formed_and_complete(layout: Drawable) -> None:
    grid = grid_of(layout)
    root = ElementTree.fromstring(layout_svg(layout))
    rects = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(rects) == grid.rows * grid.columns
    texts = [e.text for e in root.iter() if e.tag.endswith("}text")]
    assert set(texts) >= {t for row in grid.cells for cell in row for t in cell.text}
    # every label fits its cell: 6.6 units per glyph
    assert all(6.6 * len(t) <= 36 for row in grid.cells for cell in row for t in cell.text)
    assert layout_svg(layout) == layout_svg(layout)


@pytest.mark.parametrize("layout", DRAWABLE)
def test_png(layout: Drawable) -> None:
    data = layout_png(layout)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    wide, high = (int(re.search(rf'{n}="(\d+)"', layout_svg(layout))[1]) for n in ("width", "height"))  # type: ignore[index]
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (wide, high)


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: layout_svg(CuteLayout((65, 8))), "LAY018"),
        (lambda: layout_text(CuteLayout((4, 4, 4))), "LAY002"),
        (lambda: layout_text(CuteLayout((sym("M"), 4))), "LAY010"),
        (lambda: read_layout("(8,8):(8,1)", "3,4"), "LAY013"),
        (lambda: read_layout("(8,8):(8,1)", "3,4,2"), "LAY011"),
        (lambda: read_layout("(8,8:(8,1)"), "LAY013"),
    ],
)
def test_what_cannot_be_drawn_is_refused(build: object, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        build()  # type: ignore[operator]
    assert (caught.value.code, bool(caught.value.diagnostics[0].help)) == (code, True)


def test_bank_pictures_mark_conflicts() -> None:
    read = instruction("sm_90a", "ld.shared.b128")
    rows = WaveAccess.of(read, lambda t: 128 * t, "column of rows")
    grid = grid_of(rows)
    assert (grid.rows, grid.columns) == (4, 32)
    assert grid.cells[1][0].text == ("T8", "x8")
    assert grid.cells[1][4].text == ("",)
    free = grid_of(rows.moved(lambda a: a ^ (a >> 7 & 7) << 4))
    assert {len(cell.text) for row in free.cells for cell in row} == {1}
    assert free.cells[0][4].text == ("T1",)
    assert "x8" in layout_text(rows)
    assert "x8" not in layout_svg(rows.moved(lambda a: a ^ (a >> 7 & 7) << 4))
    assert layout_png(rows)[:4] == b"\x89PNG"


def test_show_banks(tmp_path: Path) -> None:
    run = CliRunner()
    found = run.invoke(app, ["show", "banks", "32:32", "--find", "xor"])
    assert "Sw<5,2,5>: free of conflicts" in found.stdout
    assert "1 cycles in 1 phases" in found.stdout
    matrix = ["show", "banks", "32:64", "--element", "2", "--op", "ldmatrix.x4", "--swizzle", "3,4,3"]
    assert "4 cycles in 4 phases" in run.invoke(app, matrix).stdout
    run.invoke(app, ["show", "banks", "32:32", "--out", str(tmp_path / "banks.svg")])
    assert (tmp_path / "banks.svg").read_text().startswith("<svg")
    refused = run.invoke(app, ["show", "banks", "31:32"]).exception
    assert isinstance(refused, TilewrightError)
    assert refused.code == "LAY027"
