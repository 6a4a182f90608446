"""PyTorch for tests, which are skipped with a message where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest


def torch_or_skip() -> Any:
    """The module. The folder ``tests/torch`` is on the path and would be taken for a package without an origin."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("PyTorch is not installed: pip install 'tilewright[torch]'", allow_module_level=True)
    import torch  # noqa: PLC0415

    return torch
