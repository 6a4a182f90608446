"""The Kernel object behind ``@tw.kernel``: key -> stored artifact or compile -> launch or simulate."""

from __future__ import annotations

from tilewright.jit.kernel import Kernel

__all__ = ["Kernel"]
