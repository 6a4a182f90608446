"""Large arrays that batches reuse: clearing an array is cheaper than allocating fresh pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ptx.opcodes.rows import Bits


class ArrayPool:
    """Arrays by name, kept from batch to batch."""

    def __init__(self) -> None:
        self._kept: dict[str, Bits] = {}

    def zeros(self, name: str, count: int, dtype: type[Any]) -> Bits:
        """``array`` of zeros."""
        found = self.array(name, count, dtype)
        found.fill(0)
        return found

    def array(self, name: str, count: int, dtype: type[Any]) -> Bits:
        """An array of ``count`` elements of any value; invalidates the array that ``name`` gave before."""
        kept = self._kept.get(name)
        if kept is None or kept.size < count:
            kept = self._kept[name] = np.empty(count, dtype)
        return kept[:count]
