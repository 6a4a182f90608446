"""PyTorch for tests, which are skipped with a message where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest


def installed() -> bool:
    """Whether there is PyTorch (the folder tests/torch, which is on the path, is a package without an origin)."""
    spec = find_spec("torch")
    return spec is not None and spec.origin is not None


def torch_or_skip() -> Any:
    """The module."""
    if not installed():
        pytest.skip("PyTorch is not installed: pip install 'tilewright[torch]'", allow_module_level=True)
    import torch  # noqa: PLC0415

    return torch
