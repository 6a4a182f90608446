"""Why a tile access can't become a tensor map at all, checked before the rules of a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.base.dtypes import DType
from tilewright.base.expr import Expr
from tilewright.base.verdict import Violation
from tilewright.hw.tensormap import MAX_RANK, MAX_SMEM_TILE_BYTES, Swizzle


def no_dense_axis(strides: Iterable[Expr]) -> Violation:
    """TMA060; ``strides`` of the tile's axes in elements."""
    return Violation(
        "TMA060",
        f"strides of the tile's axes in elements: {', '.join(map(str, strides)) or 'none'}",
        "one axis of the tile with stride 1",
        "CUDA Driver API, cuTensorMapEncodeTiled, globalStrides: dimension 0 is dense",
    )


def too_many_dimensions(rank: int) -> Violation:
    """TMA061; ``rank`` is what is left after merging."""
    return Violation(
        "TMA061",
        f"{rank} dimensions after merging those whose strides nest",
        f"at most {MAX_RANK} dimensions",
        "CUDA Driver API, cuTensorMapEncodeTiled, tensorRank",
    )


def inner_bytes(dtype: DType, swizzles: Sequence[Swizzle], extent: int) -> Violation:
    """TMA062; ``extent`` of the tile along the dense axis, in elements."""
    wanted = ", ".join(s.name for s in swizzles) or "any"
    return Violation(
        "TMA062",
        f"{extent} x {dtype} = {extent * dtype.bytes} bytes along the dense axis, swizzle {wanted}",
        "a multiple of the swizzle span (128, 64 or 32 bytes), or of 16 bytes without swizzle",
        "CUDA Driver API, cuTensorMapEncodeTiled, boxDim and swizzle",
    )


def smem_bytes(size_bytes: int) -> Violation:
    """TMA064; what the whole tile takes in shared memory."""
    return Violation(
        "TMA064",
        f"{size_bytes} bytes",
        f"at most {MAX_SMEM_TILE_BYTES} bytes",
        "CUDA Programming Guide, 5.1, table 30: shared memory of a block",
    )
