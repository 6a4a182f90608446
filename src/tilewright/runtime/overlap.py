"""Which bytes a strided tensor touches, and whether two of them, or two of its own elements, share one.

All questions are one: does ``delta + sum(c_k * x_k)``, every x_k in its own integer range, fall into a small window?
Solved exactly by descending through the coefficients from the largest, keeping only values from which the rest can
still reach the window. For strides that nest (slices, transposes, permutes of one buffer) each level keeps one or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MAX_STEPS = 20_000


@dataclass(frozen=True)
class MemoryFootprint:
    """The bytes of a tensor relative to its base address: the range ``[low, high)`` and the strides inside it.

    ``axes`` holds (stride_bytes, extent) of every axis longer than 1; an empty tensor has ``high == low``.
    """

    low: int
    high: int
    axes: tuple[tuple[int, int], ...]
    item_bytes: int


def footprint(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> MemoryFootprint:
    """Footprint of a tensor with ``strides`` in elements."""
    if 0 in shape:
        return MemoryFootprint(0, 0, (), item_bytes)
    axes = tuple((s * item_bytes, n) for n, s in zip(shape, strides, strict=True) if n > 1)
    low = sum(s * (n - 1) for s, n in axes if s < 0)
    high = sum(s * (n - 1) for s, n in axes if s > 0) + item_bytes
    return MemoryFootprint(low, high, axes, item_bytes)


def overlaps_itself(f: MemoryFootprint) -> bool:
    """Two different indices reach a common byte. When the search gives up, the answer is True."""
    axes = sorted((abs(s), n) for s, n in f.axes)
    reach = f.item_bytes
    for stride, extent in axes:  # nested strides, the normal case
        if stride < reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    # A collision is a difference of indices, not all zero; by symmetry its first non-zero one is positive.
    for k, (stride, extent) in enumerate(axes):
        terms = [(stride, 1, extent - 1), *((s, 1 - n, n - 1) for s, n in axes[k + 1 :])]
        if _reaches(0, terms, 1 - f.item_bytes, f.item_bytes - 1) is not False:
            return True
    return False


def overlap(a: MemoryFootprint, a_address: int, b: MemoryFootprint, b_address: int) -> bool:
    """Some byte belongs to both. When the search gives up, the answer is True."""
    if a_address + a.low >= b_address + b.high or b_address + b.low >= a_address + a.high:
        return False
    if a.low == a.high or b.low == b.high:
        return False
    ranges: dict[int, tuple[int, int]] = {}
    for sign, axes in ((1, a.axes), (-1, b.axes)):
        for stride, extent in axes:
            c = abs(stride)
            near, far = sorted((0, (extent - 1) * sign * (1 if stride >= 0 else -1)))
            low, high = ranges.get(c, (0, 0))
            ranges[c] = (low + near, high + far)
    terms = [(c, low, high) for c, (low, high) in ranges.items()]
    return _reaches(a_address - b_address, terms, 1 - a.item_bytes, b.item_bytes - 1) is not False


def _reaches(delta: int, terms: list[tuple[int, int, int]], low: int, high: int) -> bool | None:
    """Whether ``delta + sum(c*x)`` can lie in [low, high]; a term is (c >= 0, least x, greatest x). None: gave up."""
    terms = sorted(terms, reverse=True)
    rest = [(0, 0)]  # what the terms after position i can add, least and most
    for c, least, most in reversed(terms):
        rest.append((rest[-1][0] + c * least, rest[-1][1] + c * most))
    rest.reverse()
    pending = [(0, delta)]
    for _ in range(_MAX_STEPS):
        if not pending:
            return False
        i, value = pending.pop()
        if i == len(terms):
            if low <= value <= high:
                return True
            continue
        c, least, most = terms[i]
        if c == 0:
            pending.append((i + 1, value))
            continue
        below, above = rest[i + 1]
        first = max(least, -((value + above - low) // c))  # ceil((low - above - value) / c)
        last = min(most, (high - below - value) // c)
        if last - first > _MAX_STEPS:
            return None
        pending.extend((i + 1, value + c * x) for x in range(first, last + 1))
    return None
