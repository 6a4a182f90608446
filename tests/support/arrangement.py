"""Arrays with the same elements in other places of memory, and poison all around them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ARRANGEMENTS = ("plain", "offset", "sliced", "transposed", "reversed", "spread")


@dataclass(frozen=True)
class Arranged:
    """``view`` holds the elements; ``around`` is true for the elements of ``base`` that do not belong to it."""

    view: np.ndarray
    base: np.ndarray
    around: np.ndarray

    def untouched(self) -> bool:
        """The memory around the view still holds the poison."""
        return bool(
            (bits(self.base)[self.around] == bits(poisoned(self.base.shape, self.base.dtype))[self.around]).all()
        )


def bits(array: np.ndarray) -> np.ndarray:
    """The elements as unsigned integers, so that NaN equals itself."""
    return array.view(f"u{array.itemsize}")


def poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """NaN, or the most negative integer."""
    if dtype.kind in "iu":
        return np.full(shape, np.iinfo(dtype).min, dtype)
    return np.full(shape, True if dtype.kind == "b" else np.nan, dtype)


def arranged(values: np.ndarray, how: str) -> Arranged:
    """``values`` laid out another way.

    offset: contiguous from an unaligned base. sliced: a window of a larger array, odd strides. transposed: the first
    axis fastest. reversed: negative strides. spread: every second element along each axis.
    """
    shape, rank = values.shape, values.ndim
    inner: tuple[slice, ...]
    match how:
        case "plain":
            base, inner = poisoned(shape, values.dtype), (slice(None),) * rank
        case "offset":
            flat = poisoned((values.size + 9,), values.dtype)
            view = flat[1 : 1 + values.size].reshape(shape)
            view[...] = values
            around = np.ones(flat.shape, bool)
            around[1 : 1 + values.size] = False
            return Arranged(view, flat, around)
        case "sliced":
            base = poisoned(tuple(n + 3 for n in shape), values.dtype)
            inner = tuple(slice(1, 1 + n) for n in shape)
        case "transposed":
            base = poisoned(shape[::-1], values.dtype).T
            inner = (slice(None),) * rank
        case "reversed":
            base = poisoned(shape, values.dtype)
            inner = (slice(None, None, -1),) * rank
        case "spread":
            base = poisoned(tuple(2 * n + 1 for n in shape), values.dtype)
            inner = tuple(slice(1, 1 + 2 * n, 2) for n in shape)
        case _:
            raise ValueError(how)
    around = np.ones(base.shape, bool)
    around[inner] = False
    view = base[inner]
    view[...] = values
    return Arranged(view, base, around)
