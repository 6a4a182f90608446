"""MkDocs hook: adds the pages that are generated from the source, and those whose text lies outside of docs/.

The page of errors comes from the catalogue, the API from docstrings, the gallery from ``viz``, the notebook from its
cells. README, ARCHITECTURE, CONTRIBUTING and CHANGELOG become pages; their links are turned to the site's.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

from site_pages import compared, errors, gallery, notebook, reference  # noqa: E402

ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/layouts.md": "layouts.md",
}
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and their pictures."""
    pages: dict[str, str | bytes] = {page: _moved((ROOT / file).read_text()) for file, page in ELSEWHERE.items()}
    pages |= {"errors.md": errors.page(), "api.md": reference.page(), "notebook.md": notebook.page(NOTEBOOK)}
    pages["compared.md"] = compared.page(ROOT)
    pages |= gallery.files(ROOT)
    pages |= {f"pictures/{p.name}": p.read_bytes() for p in sorted((ROOT / "examples" / "pictures").glob("*.svg"))}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def _moved(text: str) -> str:
    """A document of the root, with links as from docs/."""
    text = text.replace("](docs/", "](")
    for file, page in ELSEWHERE.items():
        text = text.replace(f"]({file})", f"]({page})")
    return re.sub(r"\]\(LICENSE\)", "](https://www.apache.org/licenses/LICENSE-2.0)", text)
