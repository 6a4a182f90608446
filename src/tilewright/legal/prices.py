"""Prices of repairs: predicted time of a kernel that streams a tensor's tiles, with the repair and with legal
copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd, prod

from tilewright.base.expr import Expr, expr
from tilewright.hw.copy_prices import (
    CACHE_BYTES,
    LINE_BYTES,
    shifted_read_cycles,
    staging_seconds,
    stream_seconds,
    tensor_copy_cycles,
    thread_copy_cycles,
)
from tilewright.hw.target import Target
from tilewright.hw.tensormap import Swizzle
from tilewright.legal.repair_types import Remedy
from tilewright.legal.tma import TensorMapPlan, TileAccess


@dataclass(frozen=True)
class Workload:
    """Sizes that prices are computed with: values of symbols (others count as ``default_size``) and how often each byte
    of the tensor is copied into shared memory."""

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    reuse: int = 8
    default_size: int = 4096

    def value(self, node: Expr | int) -> int:
        """``node`` at the assumed sizes."""
        tree = expr(node)
        return int(tree.evaluate({name: self.sizes.get(name, self.default_size) for name in tree.symbols}))


def extra_seconds(remedy: Remedy, access: TileAccess, load: Workload, target: Target) -> float:
    """Predicted extra seconds of one call, against tensor copies of whole lines into one box a tile."""
    extents = [load.value(extent) for extent in access.shape]
    tensor = prod(extents) * access.dtype.bytes
    tiles = prod(-(-n // (t or 1)) for n, t in zip(extents, access.tile, strict=True)) * load.reuse
    tile = max(prod(t for t in access.tile if t is not None) * access.dtype.bytes, 1)
    ideal = stream_seconds(tensor_copy_cycles(-(-tile // LINE_BYTES), LINE_BYTES, 1), tiles, tensor, target)
    cycles, reading, memory, staging = 0.0, 0.0, tensor, 0.0
    classes = len(remedy.phases.classes) if remedy.phases else 0
    if remedy.plan is not None:
        cycles += plan_cycles(remedy.plan, classes or 1, load)
    if remedy.phases:
        rows, columns = _rows_and_columns(access, remedy.phases.dense_axis)
        reading = shifted_read_cycles(rows, columns, access.dtype.bytes)
    if remedy.threads is not None:
        copied = prod(remedy.threads.shared.extents) * access.dtype.bytes
        spent = thread_copy_cycles(remedy.threads.method, copied, remedy.threads.vector_bytes)
        axis = remedy.threads.tile_axes[0]
        across = -(-extents[axis] // (access.tile[axis] or 1))
        cycles += spent if remedy.tail is None else spent / across  # only the last tile of each row has a tail
    if remedy.staging is not None:
        staged = load.value(remedy.staging.size_bytes)
        staging = staging_seconds(tensor, target, staged)
        memory = staged if staged > CACHE_BYTES else 0
    return max(stream_seconds(cycles, tiles, memory, target, reading) + staging - ideal, 0.0)


def plan_cycles(plan: TensorMapPlan, plans: int = 1, load: Workload | None = None) -> float:
    """Cycles to copy one tile with ``plans`` tensor maps of one kind, for tensors that begin at whole lines."""
    boxes, rows, size = len(plan.boxes) * plans, prod(plan.box[1:]), plan.shared.element_bytes
    row_bytes = plan.box[0] * size
    strides = [(load or Workload()).value(stride) for stride in plan.strides]
    firsts = [size * first for first in (plan.first_multiple, *(b.start[0] for b in plan.boxes))]
    drifts = rows > 1 and (strides[0] - row_bytes) % LINE_BYTES != 0
    askew = drifts and plan.swizzle is Swizzle.NONE
    return tensor_copy_cycles(rows * boxes, row_bytes, boxes, gcd(LINE_BYTES, *firsts, *strides), askew)


def _rows_and_columns(access: TileAccess, dense: int) -> tuple[int, int]:
    """Rows and columns of the tile, with columns along axis ``dense``."""
    extents = [t or 1 for t in access.tile]
    return prod(extents) // extents[dense], extents[dense]
