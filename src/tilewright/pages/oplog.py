"""A log of a pool's operations as primitives that can be replayed. When a free happens depends on events, so the log
records it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Primitive(IntEnum):
    """An operation on pages; TAKE, SHARE and RELEASE name handles, the others page numbers."""

    TAKE = 0
    SHARE = 1
    RELEASE = 2
    FREE = 3
    DEFER = 4
    RETIRE = 5
    PUBLISH = 6
    UNPUBLISH = 7


class OperationLog:
    """Primitives in the order in which they happened, and the sizes of the pool."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = dict(sizes)
        self._heads: list[tuple[int, int, int, int]] = []
        self._values: list[NDArray[Any]] = []

    def __len__(self) -> int:
        return len(self._heads)

    def add(self, what: Primitive, page_tokens: int, values: NDArray[Any], entry: int) -> None:
        """One primitive; ``entry`` numbers what is deferred."""
        self._heads.append((what, page_tokens, entry, len(values)))
        self._values.append(np.array(values, np.int64))

    def __iter__(self) -> Iterator[tuple[Primitive, int, int, NDArray[np.int64]]]:
        """Primitive, page size, entry, values."""
        for (what, tokens, entry, _), values in zip(self._heads, self._values, strict=True):
            yield Primitive(what), tokens, entry, values

    def save(self, path: str | Path) -> None:
        """Save the log as an .npz file of NumPy."""
        values = np.concatenate(self._values) if self._values else np.zeros(0, np.int64)
        heads = np.array(self._heads, np.int64).reshape(-1, 4)
        np.savez_compressed(path, sizes=np.array(list(self.sizes.items()), np.int64), heads=heads, values=values)

    @staticmethod
    def load(path: str | Path) -> OperationLog:
        """Load what ``save`` wrote."""
        with np.load(path, allow_pickle=False) as file:
            sizes, heads, values = file["sizes"], file["heads"], file["values"]
        made = OperationLog({int(tokens): int(count) for tokens, count in sizes})
        ends = np.cumsum(heads[:, 3])
        made._heads = [tuple(h) for h in heads.tolist()]
        made._values = np.split(values, ends[:-1]) if len(ends) else []
        return made
