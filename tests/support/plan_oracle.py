"""An oracle of plans: a proof that a ``TensorMapPlan`` copies the tile that was asked for, each element once.

Three obligations, none of which trusts the construction of the plan:

* *addresses*: the descriptor's address of a tile element equals the tensor's, as polynomials over the symbols;
* *shared*: inside each copy the dense order of the box equals the order of the tile in shared memory. Both are affine
  in the box's coordinates (a box never crosses a panel), so the origin and one step along each dimension decide;
* *cover*: the copies' boxes partition the tile.
"""

from __future__ import annotations

from math import prod

from tilewright.base.expr import Const
from tilewright.base.verdict import Discharged, Proof, Proved, Refuted, Unknown
from tilewright.hw.tensormap import Interleave
from tilewright.legal.facts import Facts
from tilewright.legal.proof import Folds, PlanMismatch, same_addresses
from tilewright.legal.tma import TensorMapPlan, TileAccess


def prove_plan(
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
    for wrong in (_addresses(plan, access, known, axes), _shared(plan), _cover(plan, access, axes)):
        if wrong is not None:
            return wrong
    return Proved(
        (
            Discharged("addresses", "polynomial identity"),
            Discharged("shared", "affine on every box"),
            Discharged("cover", "exact partition"),
        )
    )


def _addresses(plan: TensorMapPlan, access: TileAccess, facts: Facts, axes: Folds) -> Refuted[PlanMismatch] | None:
    """Compare byte addresses of tile element ``x0, x1, ...`` (one symbol for each kept tensor axis)."""
    if plan.interleave is not Interleave.NONE:
        return Refuted("addresses", PlanMismatch(plan.interleave.name, Interleave.NONE.name))
    steps = (Const(access.dtype.bytes), *plan.strides)
    groups = [axes[plan.tile_axes[d]] if d < len(plan.tile_axes) else () for d in range(plan.rank)]
    return same_addresses(plan.address, tuple(zip(plan.coordinates, steps, groups, strict=True)), access, facts)


def _shared(plan: TensorMapPlan) -> Refuted[PlanMismatch] | None:
    kept = len(plan.shared.extents)
    size = plan.shared.element_bytes
    if plan.shared.swizzle is not plan.swizzle or plan.box[0] != plan.shared.panel:
        return Refuted("shared", PlanMismatch(f"{plan.box[0]} wide, {plan.swizzle.name}", str(plan.shared)))
    for box in plan.boxes:
        start = box.start[:kept]
        if box.shared_offset_bytes != plan.shared.logical_offset(start):
            return Refuted("shared", PlanMismatch(str(box), str(plan.shared.logical_offset(start))))
        for d in range(kept):
            if plan.box[d] == 1:
                continue
            step = tuple(s + (i == d) for i, s in enumerate(start))
            moved = plan.shared.logical_offset(step) - box.shared_offset_bytes
            dense = prod(plan.box[:d]) * size
            if moved != dense:
                return Refuted("shared", PlanMismatch(f"step {dense} along dimension {d}", f"step {moved}"))
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
