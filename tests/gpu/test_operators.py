"""PyTorch's own checks of every operator, on CUDA tensors."""

from __future__ import annotations

import pytest

from support.pytorch import torch_or_skip

torch_or_skip()
pytestmark = pytest.mark.gpu

from support import operators  # noqa: E402


@pytest.mark.parametrize("name", operators.CALLS)
def test_opcheck(name: str) -> None:
    operators.opcheck(name, "cuda")
