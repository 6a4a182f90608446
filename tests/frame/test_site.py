"""The site: the code of every page runs, and what is generated has all that it is generated from."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT, run_page
from tilewright.diag.catalogue import CATALOGUE

DOCS = ROOT / "docs"
PAGES = sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
WITHOUT_CODE = (
    "contracts.md",
    "inside.md",
    "language.md",
    "legality.md",
    "measured.md",
    "tma-rules.md",
    "validation.md",
)
sys.path.append(str(ROOT / "tools"))

from site_pages import compared, errors, gallery, notebook, reference  # noqa: E402

pytestmark = pytest.mark.sample(3)


@pytest.mark.parametrize("page", PAGES)
def test_code_of_every_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    assert run_page(DOCS / page, tmp_path) or page in WITHOUT_CODE or page.startswith("measured/")


def test_the_notebook_runs() -> None:
    """As on a laptop: no GPU is asked for."""
    cells = notebook.run(DOCS / "notebook.ipynb")
    printed = [text for _, _, text in cells if text]
    assert len(printed) >= 3
    stored = json.loads((DOCS / "notebook.ipynb").read_text())
    assert all(cell.get("outputs", []) == [] for cell in stored["cells"])


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert set(PAGES) <= set(named)
    assert len(named) == len(set(named))


def test_every_code_is_on_the_page_of_errors() -> None:
    page = errors.page()
    assert {code for code in CATALOGUE if f"### {code}: " not in page} == set()
    assert {code[:3] for code in CATALOGUE} == set(errors.GROUPS)


def test_every_export_is_on_the_page_of_the_api() -> None:
    """A class or function without a docstring would end the build."""
    page = reference.page()
    for name in ("tw.stream", "tw.Kernel", "jit.kernel.Kernel.compile", "runtime.program.load", "ops.kernels.softmax"):
        assert f"### {name} " in page


def test_the_gallery_has_its_pictures() -> None:
    files = gallery.files(ROOT)
    page = str(files["gallery.md"])
    named = re.findall(r"\]\((pictures/[^)]+|report\.html)\)", page)
    assert set(named) == files.keys() - {"gallery.md"}
    assert all("<svg" in str(files[name]) for name in named)


def test_every_measured_case_is_compared() -> None:
    page = compared.page(ROOT)
    for name in ("memory_bound", "products", "unaligned"):
        for row in json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["rows"]:
            assert f"| {row['case']} | " in page
    ratios = [float(r) for r in re.findall(r"^\| [^|]+ \| ([\d.]+) \|", page, re.MULTILINE)]
    assert min(ratios) < 1 < max(ratios)


@pytest.mark.parametrize("link", ["ok.md", "nowhere.md", "ok.md#nothing"])
def test_a_broken_link_ends_the_build(link: str, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    settings = (ROOT / "mkdocs.yml").read_text()
    checks = settings[settings.index("validation:") : settings.index("nav:")]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"[a link]({link})\n")
    (tmp_path / "docs" / "ok.md").write_text("# Right\n")
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\nplugins: []\n{checks}")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (link == "ok.md"), done.stderr
