"""Encodings of tiles in shared and tensor memory: offset (or row and column) and CTA onto the tensor."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.diag import fail
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library.encodings.builder import ONE_CTA, Builder, CtaSplit, Shape, fast_last


@dataclass(frozen=True)
class SwizzledShared:
    """Rows of the fastest dimension; vectors of ``vector`` elements are xored with the row's phase, ``row //
    per_phase % max_phase``. With ``rotating`` (AMD) the phase is also xored with the number of its repetition."""

    vector: int
    per_phase: int
    max_phase: int
    order: tuple[int, ...]
    rotating: bool = False
    cluster: CtaSplit = ONE_CTA

    def layout(self, shape: Shape) -> F2Layout:
        """offset, block onto the tensor."""
        builder = Builder([s // p for s, p in zip(shape, self.cluster.parts(shape), strict=True)])
        builder.axis("offset")
        builder.fill("offset", self.order)
        if len(shape) > 1:
            fast, slow = self.order[:2]
            columns = builder.shape[fast]
            for i, basis in enumerate(builder.bases["offset"]):
                if row := basis[slow]:
                    swizzled = list(basis)
                    swizzled[fast] = self.vector * self._phase(row) % columns
                    builder.bases["offset"][i] = tuple(swizzled)
        return builder.result(self.cluster, shape)

    def _phase(self, row: int) -> int:
        phase = row // self.per_phase % self.max_phase
        if self.rotating:
            phase ^= row // self.per_phase // self.max_phase % self.max_phase
        return phase


@dataclass(frozen=True)
class TmaShared:
    """What TMA writes with a 32, 64 or 128 byte swizzle (0: none): boxes as wide as the swizzle, one after the other.

    ``transposed``: the first dimension is the contiguous one.
    """

    swizzle_bytes: int
    element_bits: int
    transposed: bool = False
    cluster: CtaSplit = ONE_CTA

    def layout(self, shape: Shape) -> F2Layout:
        """offset, block onto the tensor."""
        rank = len(shape)
        builder = Builder([s // p for s, p in zip(shape, self.cluster.parts(shape), strict=True)])
        builder.axis("offset")
        # dimensions, fastest first: the contiguous one, then the others from the last to the first
        order = [0, *reversed(range(1, rank))] if self.transposed else fast_last(rank)
        box = [min(s, 256) for s in builder.shape]
        if self.swizzle_bytes:
            box[order[0]] = min(box[order[0]], self.swizzle_bytes * 8 // self.element_bits)
        for dim in order:
            builder.add("offset", dim, box[dim])
        self._swizzle(builder, order[0], box[order[0]])
        builder.fill("offset", range(rank))
        return builder.result(self.cluster, shape)

    def _swizzle(self, builder: Builder, fast: int, width: int) -> None:
        """Row bits (by address: bits 7, 8, 9) move 16-byte vectors (bits 4, 5, 6)."""
        if not self.swizzle_bytes:
            return
        vector = 128 // self.element_bits
        if width * self.element_bits != self.swizzle_bytes * 8:
            fail(
                "LAY012",
                found=f"rows of {width * self.element_bits // 8} B",
                required=f"rows of at least {self.swizzle_bytes} B",
                source="PTX ISA 9.1, 5.5.7",
                help="use a narrower swizzle or a wider tile",
            )
        line = 1024 // self.element_bits  # elements of 128 bytes, where address bit 7 starts
        first = line.bit_length() - 1
        columns = builder.bases["offset"]
        for i in range((self.swizzle_bytes // 16).bit_length() - 1):
            if first + i >= len(columns):
                fail(
                    "LAY012",
                    found=f"{len(columns)} offset bits",
                    required=f"at least {first + i + 1}",
                    source="PTX ISA 9.1, 5.5.7",
                    help="a swizzled tile needs a whole period",
                )
            basis = list(columns[first + i])
            basis[fast] ^= vector << i
            columns[first + i] = tuple(basis)


@dataclass(frozen=True)
class TensorMemory:
    """Blackwell's TMEM: ``row`` (128 lanes) and ``column``, for accumulator blocks of 64 or 128 rows.

    Blocks of 64 rows use lanes 0-15 of each quarter; the next block, along rows first, uses lanes 16-31.
    """

    block_m: int
    block_n: int

    def layout(self, shape: Shape) -> F2Layout:
        """row, col, block onto the tensor."""
        builder = Builder(shape)
        builder.axis("row", "col")
        if self.block_m == 64:
            builder.add("row", 0, 16)
            builder.extents[0] = 64
            builder.extents[1] = self.block_n
            if shape[0] > 64:
                builder.add("row", 0, 2)
            elif shape[1] > self.block_n:
                builder.add("row", 1, 2)
            else:
                builder.copies("row", 2)
            builder.bases["row"] += [(16, 0), (32, 0)]
            above = builder.extents[1]
            builder.extents[1] = 1
            builder.add("col", 1, self.block_n)
            builder.extents[1] = above
        else:
            builder.add("row", 0, self.block_m)
            builder.add("col", 1, self.block_n)
        builder.fill("col", range(len(shape)))
        return builder.result(ONE_CTA, shape)
