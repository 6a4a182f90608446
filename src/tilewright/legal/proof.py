"""Proof that a plan copies the tile that was asked for: the right addresses, to the right places, each once.

Three obligations, none of which trusts the construction of the plan:

* *addresses*: the descriptor's address of a tile element equals the tensor's, as polynomials over the symbols;
* *landing*: inside each copy the dense order of the box equals the order of the tile. Both are affine in the box's
  coordinates (a box never crosses a panel), so the origin and one step along each dimension decide;
* *cover*: the copies' boxes partition the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.expr import Const, Expr, expr, own, sym
from tilewright.base.verdict import Obligation, Proof, Proved, Refuted, Unknown
from tilewright.hw.tensormap import Interleave
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.tma import TensorMapPlan, TileAccess


@dataclass(frozen=True)
class PlanMismatch:
    """Where plan and request differ."""

    planned: str
    asked: str


Folds = tuple[tuple[int, ...], ...]


def prove(
    plan: TensorMapPlan, access: TileAccess, facts: Facts | None = None, folds: Folds = ()
) -> Proof[PlanMismatch]:
    """Prove that ``plan`` performs ``access``, or say where it does not.

    ``folds`` lists the tensor axes of each axis that the plan counts, outermost first, if it describes a view; views
    with an axis that is split are not decided, since their coordinates are quotients.
    """
    known = facts or Facts()
    axes = folds or tuple((i,) for i in range(len(access.shape)))
    every = [axis for group in axes for axis in group]
    if len(set(every)) < len(every):
        return Unknown("addresses", "an axis of the view is split", "compare the addresses at every index")
    for wrong in (_addresses(plan, access, known, axes), _landing(plan), _cover(plan, access, axes)):
        if wrong is not None:
            return wrong
    return Proved(
        (
            Obligation("addresses", "polynomial identity"),
            Obligation("landing", "affine on every box"),
            Obligation("cover", "exact partition"),
        )
    )


def _addresses(plan: TensorMapPlan, access: TileAccess, facts: Facts, axes: Folds) -> Refuted[PlanMismatch] | None:
    """Compare byte addresses of tile element ``x0, x1, ...`` (one symbol for each kept tensor axis)."""
    if plan.interleave is not Interleave.NONE:
        return Refuted("addresses", PlanMismatch(plan.interleave.name, Interleave.NONE.name))
    steps = (Const(access.dtype.bytes), *plan.strides)
    groups = [axes[plan.tile_axes[d]] if d < len(plan.tile_axes) else () for d in range(plan.rank)]
    return _same_addresses(plan.address, tuple(zip(plan.coordinates, steps, groups, strict=True)), access, facts)


def prove_view(
    view: TileAccess, indices: Sequence[Expr], access: TileAccess, facts: Facts, folds: Folds
) -> Proof[PlanMismatch]:
    """Prove that ``view``, from ``indices`` on, reads the elements of ``access``, or say where it does not."""
    if len({axis for group in folds for axis in group}) < sum(map(len, folds)):
        return Unknown("addresses", "an axis of the view is split", "compare the addresses at every index")
    steps = [facts.apply(expr(stride)) * access.dtype.bytes for stride in view.strides]
    dimensions = tuple(zip(indices, steps, folds, strict=True))
    wrong = _same_addresses(facts.apply(view.address), dimensions, access, facts)
    return Proved((Obligation("addresses", "polynomial identity"),)) if wrong is None else wrong


def _same_addresses(
    first: Expr, dimensions: Sequence[tuple[Expr, Expr, tuple[int, ...]]], access: TileAccess, facts: Facts
) -> Refuted[PlanMismatch] | None:
    """Compare ``first`` and the dimensions, each a coordinate, a step in bytes and the tensor axes folded into it, with
    the addresses of ``access``."""
    size = access.dtype.bytes
    planned = first
    for coordinate, step, group in dimensions:
        inside: Expr = Const(0)
        for axis in group:
            local = Const(0) if access.tile[axis] is None else sym(own(f"x{axis}"))
            inside = inside * facts.apply(expr(access.shape[axis])) + local
        planned = planned + (coordinate + inside) * step
    asked: Expr = facts.apply(access.address)
    for axis, (stride, tile) in enumerate(zip(access.strides, access.tile, strict=True)):
        extent = facts.apply(expr(access.shape[axis])).constant
        index: Expr = Const(0) if tile is None and extent == 1 else index_symbol(axis)
        inside = Const(0) if tile is None else sym(own(f"x{axis}"))
        asked = asked + (index + inside) * facts.apply(expr(stride)) * size
    if planned == asked:
        return None
    return Refuted("addresses", PlanMismatch(str(planned), str(asked)))


def _landing(plan: TensorMapPlan) -> Refuted[PlanMismatch] | None:
    kept = len(plan.shared.extents)
    size = plan.shared.element_bytes
    if plan.shared.swizzle is not plan.swizzle or plan.box[0] != plan.shared.panel:
        return Refuted("landing", PlanMismatch(f"{plan.box[0]} wide, {plan.swizzle.name}", str(plan.shared)))
    for box in plan.boxes:
        start = box.start[:kept]
        if box.shared_offset_bytes != plan.shared.logical_offset(start):
            return Refuted("landing", PlanMismatch(str(box), str(plan.shared.logical_offset(start))))
        for d in range(kept):
            if plan.box[d] == 1:
                continue
            step = tuple(s + (i == d) for i, s in enumerate(start))
            moved = plan.shared.logical_offset(step) - box.shared_offset_bytes
            dense = prod(plan.box[:d]) * size
            if moved != dense:
                return Refuted("landing", PlanMismatch(f"step {dense} along dimension {d}", f"step {moved}"))
    return None


def _cover(plan: TensorMapPlan, access: TileAccess, axes: Folds) -> Refuted[PlanMismatch] | None:
    kept = len(plan.shared.extents)
    asked = tuple(prod(access.tile[a] or 1 for a in axes[axis]) for axis in plan.tile_axes)
    if asked != plan.shared.extents or any(b != 1 for b in plan.box[kept:]):
        return Refuted("cover", PlanMismatch(f"{plan.shared.extents}, box {plan.box}", str(asked)))
    cells = [range(0, extent, part) for extent, part in zip(plan.shared.extents, plan.box, strict=False)]
    starts = {box.start[:kept] for box in plan.boxes}
    whole = all(extent % part == 0 for extent, part in zip(plan.shared.extents, plan.box, strict=False))
    placed = all(all(s in cell for s, cell in zip(start, cells, strict=True)) for start in starts)
    still = all(not any(box.start[kept:]) for box in plan.boxes)
    if whole and placed and still and len(starts) == len(plan.boxes) == prod(map(len, cells)):
        return None
    return Refuted("cover", PlanMismatch(f"{len(plan.boxes)} boxes of {plan.box}", f"a partition of {asked}"))
