"""How rows are distributed over buckets."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.diag import fail

MAX_BUCKETS = 1024
"""The table of counts has a row of this many integers in one program's registers."""


@dataclass(frozen=True)
class PackPolicy:
    """``align``: each bucket begins at a multiple of it, so that a tile of as many rows has one bucket. ``capacity``: a
    bucket takes its first so many rows, in the order of the pairs, and drops the others; None keeps all."""

    align: int = 1
    capacity: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("align", self.align, 1), ("capacity", self.capacity, 0)):
            if value is not None and (type(value) is not int or not least <= value < 2**31):
                fail("JIT012", found=f"{name}={value!r}", required=f"an integer from {least} to 2^31 - 1")

    def block_count(self, pairs: int, buckets: int) -> int:
        """The most blocks of ``align`` rows that as many pairs can need, whichever buckets they choose."""
        most = pairs if self.capacity is None else min(pairs, buckets * self.capacity)
        filled = min(buckets, most)  # one row in each costs the most blocks, align rows more cost one more
        return filled + (most - filled) // self.align


KEEP_ALL = PackPolicy()
"""Buckets one behind the other, of any number of rows."""
