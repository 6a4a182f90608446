"""The code for PyTorch in README and docs: fences of ``py``, all of a page in one scope."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

from support.pages import ROOT, fences
from support.pytorch import torch_or_skip

torch = torch_or_skip()


@pytest.mark.parametrize("page", ["README.md", "docs/from-pytorch.md"])
def test_the_code_for_pytorch_runs(page: str, tmp_path: Path) -> None:
    scope: dict[str, Any] = {"__name__": "page"}
    blocks = [fence for fence in fences(ROOT / page) if fence.language == "py"]
    assert blocks
    for number, fence in enumerate(blocks):
        file = tmp_path / f"{number}_{fence.title or 'block'}.py"
        file.write_text(fence.text)
        exec(compile(fence.text, str(file), "exec"), scope)
    linecache.checkcache()
