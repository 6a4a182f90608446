"""Repairs of tile accesses as data that the compiler acts on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilewright.base.expr import TRUE, Expr
from tilewright.hw.copy_prices import CopyMethod
from tilewright.legal.misaligned_pitch import Phases
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tma import TensorMapPlan


class Change(Enum):
    """The kind of change that a repair makes."""

    CONDITION = "require the alignment at launch, with another kernel otherwise"
    SPLIT_BOX = "split the box into several copies"
    RESHAPE = "view the tensor through folded axes"
    SWIZZLE = "use another swizzle"
    WIDEN = "load a wider tile and ignore the extra columns"
    SPLIT_COLUMNS = "split off the columns that fill no 16 bytes"
    TAIL = "store the last columns of the tensor by threads, out of the same tile"
    PAD = "stage the tensor through padded rows"
    PHASES = "one map for each class of rows that begin equally far behind 16 bytes; readers shift"
    REINTERPRET = "copy the bytes as wider elements"
    CP_ASYNC = "copy by threads with cp.async, same swizzle"
    LOADS = "copy by threads through registers, same swizzle"


@dataclass(frozen=True)
class Staging:
    """A tensor that lies in a workspace while the kernel runs, copied once before it (or after it, if it is stored):
    same shape, ``strides`` in elements, ``size_bytes`` of workspace at ``address``."""

    strides: tuple[Expr, ...]
    size_bytes: Expr
    address: Expr


@dataclass(frozen=True)
class ThreadCopy:
    """A tile copied by threads in vectors of ``vector_bytes`` into ``shared``; ``tile_axes`` as in TensorMapPlan.

    ``first_column`` is the first element of the dense axis it copies; elements out of bounds are written as zero.
    """

    method: CopyMethod
    vector_bytes: int
    shared: SmemTile
    tile_axes: tuple[int, ...]
    first_column: int = 0


@dataclass(frozen=True)
class Remedy:
    """A repaired access: what changes, the map used afterwards (if any), and what else must be done.

    ``tile`` is the tile that is copied, by tensor axis. With ``folds`` everything describes a view: axes and columns
    are counted as the view's, and ``folds[i]`` lists the tensor axes folded into axis i, outermost first; coordinates
    are still over the tensor's own ``$index0, $index1, ...``. With ``words`` above 1 the plan counts words of
    so many elements along the dense axis. With ``phases`` there are several maps, of which ``plan`` is the first. With
    ``tail`` threads store what lies from that column of the tensor on, out of the plan's shared-memory tile.
    """

    change: Change
    plan: TensorMapPlan | None = None
    condition: Expr = TRUE
    staging: Staging | None = None
    threads: ThreadCopy | None = None
    tile: tuple[int | None, ...] = ()
    folds: tuple[tuple[int, ...], ...] = ()
    words: int = 1
    phases: Phases | None = None
    tail: Expr | None = None
