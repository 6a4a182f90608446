"""Debug mode of a pool: freed pages hold a pattern, and who writes to one is found when it is taken again."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.pages.size_class import Pages


class PageGuard(Protocol):
    """Debug mode: a pattern in freed pages, by page size and numbers; see ``HostPoison``."""

    def poison(self, page_tokens: int, pages: Pages) -> None:
        """Write the pattern."""
        ...

    def intact(self, page_tokens: int, pages: Pages) -> NDArray[np.bool_]:
        """For each page, whether it still holds the pattern."""
        ...


class HostPoison:
    """Debug mode for a cache in the host's memory: freed pages hold bytes 0xFF, which are NaN in every float dtype.

    ``memory``: an array whose first axis are the pages. A cache on the device needs two kernels that do the same.
    """

    def __init__(self, memory: NDArray[Any]) -> None:
        self._bytes = memory.reshape(len(memory), -1).view(np.uint8)
        self._bytes[:] = 0xFF

    def poison(self, page_tokens: int, pages: Pages) -> None:
        """Fill the pages."""
        del page_tokens
        self._bytes[pages] = 0xFF

    def intact(self, page_tokens: int, pages: Pages) -> NDArray[np.bool_]:
        """Which pages are filled still."""
        del page_tokens
        return (self._bytes[pages] == 0xFF).all(axis=1)
