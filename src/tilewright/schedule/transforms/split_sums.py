"""Split reductions of kernels without products: for which launches, and into how many parts.

A sum over the rows of a narrow matrix, or of a whole tensor, has few programs of many steps: most SMs are idle. Its
stream is split like that of a product (``schedule.transforms.split_k``), and another kernel adds the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.base.expr import Expr, all_of, ceildiv, maximum, minimum
from tilewright.hw.target import Target
from tilewright.schedule.transforms.split_k import NotSplitError, Split, split
from tilewright.tile import dialect as tile
from tilewright.tile.queries import spans_of

_BYTES_OF_AN_SM = 65536
"""Bytes in flight per SM."""
_LEAST, _MOST = 4, 64
"""Steps of a part at least, and parts at most (1 x 2^24 bf16 in steps of 16,384, H200: 16, 64, 128 and 256 parts 55,
31, 35 and 49 us; in steps of 4,096 148, 55, 46 and 53)."""
_FEWEST = 3
"""The least number of parts that pays: with 2 of 16384 x 4096 bf16 48 us, without parts in tiles of half the width 46
(H200)."""
_ADDING = 8
"""The least number of steps to save: the second kernel takes as long."""


@dataclass(frozen=True)
class SplitSumLaunches:
    """The launches for which a kernel's sums are split, and the number of parts."""

    predicate: Expr
    parts: Expr


def split_sum_launches(kernel: tile.Kernel, target: Target) -> SplitSumLaunches | None:
    """None where the kernel is anything but a sum."""
    try:
        found = split(kernel, many=True)
    except NotSplitError:
        return None
    step = _bytes_of_a_step(found)
    if step == 0:
        return None
    steps = found.stream.trip.expr
    busy = target.sm_count * max(1, _BYTES_OF_AN_SM // step)
    parts = minimum(maximum(busy // maximum(found.programs, 1), 1), maximum(steps // _LEAST, 1), _MOST)
    return SplitSumLaunches(all_of([parts >= _FEWEST, steps - ceildiv(steps, parts) >= _ADDING]), parts)


def _bytes_of_a_step(found: Split) -> int:
    loads = [op for op in found.stream.walk() if isinstance(op, tile.Load)]
    return sum(
        prod(span.size for span in spans_of(op.result) if span is not None) * tile.tensor_type(op.tensor).element.bytes
        for op in loads
    )
