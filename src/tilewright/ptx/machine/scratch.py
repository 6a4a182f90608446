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
        """An array of ``count`` zeros; invalidates the array that ``name`` gave before."""
        kept = self._kept.get(name)
        if kept is None or kept.size < count:
            kept = self._kept[name] = np.zeros(count, dtype)
            return kept
        found = kept[:count]
        found.fill(0)
        return found
