"""The networks that sort, on terms: which comparisons there are, and in which order.

Minima and maxima of two terms are all that is known of an element's place, so that a network is compared with another
by its comparisons. These sort, by the theorem on bitonic sequences (Batcher, AFIPS 1968); tests ask the 0-1 principle
(Knuth, The Art of Computer Programming 3, 5.3.4) of the same code on numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.validate.undecided import Undecided

Terms: TypeAlias = npt.NDArray[Any]
Pick: TypeAlias = Callable[[Terms, Terms], Terms]
"""The lesser or the greater of each pair."""


class Network:
    """Networks along the last axis, by two functions of pairs."""

    def __init__(self, minimum: Pick, maximum: Pick, most: Any):
        self.minimum, self.maximum, self.most = minimum, maximum, most

    def sorted(self, keys: Terms) -> Terms:
        """All elements in ascending order; ``most`` follows them up to a power of two."""
        size = keys.shape[-1]
        keys = self._padded(keys, (size - 1).bit_length())
        for log in range(1, keys.shape[-1].bit_length()):
            for step in reversed(range(log)):
                keys = self._compared(keys, step, log)
        return keys[..., :size]

    def least(self, keys: Terms, count: int, order: Sequence[int]) -> Terms:
        """The ``count`` least elements. ``order``: all bits of the place, in the order in which they are taken; bits
        above those of the axis stand for elements that are ``most``."""
        above, length = len(order), (count - 1).bit_length()
        if sorted(order) != list(range(above)) or 1 << above < keys.shape[-1] or above < length:
            raise Undecided(f"a selection by the bits {list(order)}")
        place = np.arange(1 << above)
        at = sum((((place >> i) & 1) << bit for i, bit in enumerate(order)), np.zeros_like(place))
        runs = self._padded(keys, above)[..., at].reshape(*keys.shape[:-1], -1, 1 << length)
        runs = self.sorted(runs)
        while runs.shape[-2] > 1:
            runs = self.minimum(runs[..., 0::2, :], runs[..., 1::2, ::-1])
            for step in reversed(range(length)):
                runs = self._compared(runs, step, length)
        return runs[..., 0, :count]

    def _padded(self, keys: Terms, log: int) -> Terms:
        whole = np.full((*keys.shape[:-1], 1 << log), self.most, keys.dtype)
        whole[..., : keys.shape[-1]] = keys
        return whole

    def _compared(self, keys: Terms, step: int, direction: int) -> Terms:
        """Elements whose places differ in bit ``step``: the lesser stays where it equals bit ``direction``."""
        place = np.arange(keys.shape[-1], dtype=np.int64)
        other = keys[..., place ^ (1 << step)]
        lesser = np.equal(place >> step & 1, place >> direction & 1)
        return np.where(lesser, self.minimum(keys, other), self.maximum(keys, other))
