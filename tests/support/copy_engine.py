"""What the copy engine does with a tensor map, from the map's fields alone: an oracle for plans."""

from __future__ import annotations

import numpy as np

from tilewright.hw.tensormap import Swizzle
from tilewright.legal.tma import TensorMapPlan

_UNITS = {Swizzle.NONE: 0, Swizzle.B32: 1, Swizzle.B64: 3, Swizzle.B128: 7}


def copy_tile(
    memory: np.ndarray, plan: TensorMapPlan, values: dict[str, int], shared: np.ndarray, size: int, base: int = 0
) -> int:
    """Load a tile box after box: dense rows, zero outside, 16-byte units of a 128-byte line exchanged by the line's
    number. ``memory`` begins at byte address ``base``; ``values`` give every symbol. Returns the bytes that complete.
    """
    dims = [int(d.evaluate(values)) for d in plan.dims]
    strides = [size, *(int(s.evaluate(values)) for s in plan.strides)]
    origin = [int(c.evaluate(values)) for c in plan.coordinates]
    address = int(plan.address.evaluate(values)) - base
    moved = 0
    for box in plan.boxes:
        start = [o + s for o, s in zip(origin, box.start, strict=True)]
        for number, reverse in enumerate(np.ndindex(*reversed(plan.box))):
            at = [s + i for s, i in zip(start, reversed(reverse), strict=True)]
            inside = all(0 <= x < d for x, d in zip(at, dims, strict=True))
            source = address + sum(x * s for x, s in zip(at, strides, strict=True))
            target = box.shared_offset_bytes + number * size
            target ^= ((target >> 7) & _UNITS[plan.swizzle]) << 4
            shared[target : target + size] = memory[source : source + size] if inside else 0
            moved += size
    return moved
