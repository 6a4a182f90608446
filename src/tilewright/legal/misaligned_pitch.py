"""Rows whose pitch or first byte is no multiple of 16 bytes, loaded through one map for each class of rows.

Rows n apart, with n * pitch a multiple of 16 bytes, begin equally far behind a 16-byte unit. A map for row j, j + n,
j + 2n, ... that begins at that unit is legal whatever the pitch is; its rows land as many elements further right as
they began behind the unit, and whoever reads the tile adds that shift. Elements in front of a row are those of the row
before it, or of the same 16 bytes as the tensor's first::

    pitch 5 elements, units of 4       class 0: | 0 1 2 3 | 4 . . . |     shift 0
    row 0: 0 1 2 3 4                   class 1: | . 0 1 2 | 3 4 . . |     shift 1
    row 1: 0 1 2 3 4                   ...

Nothing is staged, but readers can't take 16 bytes at a time. A warp that keeps to rows of the same classes looks its
shifts up once for all tiles, since a tile begins at a row of class 0. The tile has no swizzle, so this is for
tiles that threads read, not for operands of products. It is for loads only: a store would write the elements in front.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from tilewright.base.expr import Expr, divisor, expr, sym
from tilewright.hw.target import Target
from tilewright.hw.tensormap import ADDRESS_ALIGN_BYTES, Direction, Swizzle
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.tma import TensorMapPlan, TileAccess, candidates


@dataclass(frozen=True)
class RowClass:
    """The rows whose index is ``j`` modulo the number of classes.

    ``address`` is the value of the plan's address symbol; ``shift`` the elements by which its rows lie further right in
    ``plan.shared``; row r of the tile is row r // classes of the class.
    """

    plan: TensorMapPlan
    address: Expr
    shift: Expr


@dataclass(frozen=True)
class Phases:
    """Classes of rows along tensor axis ``axis``; their tiles follow one another in shared memory."""

    axis: int
    dense_axis: int
    classes: tuple[RowClass, ...]

    @property
    def size_bytes(self) -> int:
        """Shared memory of all tiles."""
        return sum(c.plan.shared.size_bytes for c in self.classes)


def phases(access: TileAccess, dense: int, facts: Facts, target: Target) -> Phases | None:
    """Maps for the classes of rows of ``access`` along its one badly aligned axis; None if that is not what ails it."""
    if access.direction is not Direction.LOAD or (access.swizzles and Swizzle.NONE not in access.swizzles):
        return None
    size = access.dtype.bytes
    unit = ADDRESS_ALIGN_BYTES // size
    strides = [facts.apply(expr(s)) for s in access.strides]
    uneven = [i for i, s in enumerate(strides) if i != dense and divisor(s * size, facts.divisors) % 16]
    if unit == 1 or len(uneven) > 1:
        return None
    axis = uneven[0] if uneven else next((i for i, t in enumerate(access.tile) if i != dense and t is not None), dense)
    count = unit // gcd(divisor(strides[axis], facts.divisors), unit) if uneven else 1
    rows = access.tile[axis]
    if uneven and (rows is None or rows % count or access.first_multiple(axis) % count):
        return None
    classes: list[RowClass] = []
    for j in range(count):
        made = _row_class(access, dense, axis, count, j, facts, target)
        if made is None:
            return None
        classes.append(made)
    return Phases(axis, dense, tuple(classes))


def _row_class(
    access: TileAccess, dense: int, axis: int, count: int, j: int, facts: Facts, target: Target
) -> RowClass | None:
    size = access.dtype.bytes
    unit = ADDRESS_ALIGN_BYTES // size
    shape = [facts.apply(expr(n)) for n in access.shape]
    strides = [facts.apply(expr(s)) for s in access.strides]
    tile = list(access.tile)
    first = facts.apply(expr(access.address)) + (strides[axis] * (j * size) if axis != dense else 0)
    shift = first % ADDRESS_ALIGN_BYTES // size
    inner = tile[dense] or 1
    tile[dense] = -(-(inner + unit - 1) // unit) * unit
    shape[dense] = shape[dense] + shift
    firsts = [access.first_multiple(i) for i in range(len(shape))]
    if axis != dense:
        shape[axis] = (shape[axis] + (count - 1 - j)) // count
        strides[axis] = strides[axis] * count
        tile[axis] = None if tile[axis] is None else (tile[axis] or 1) // count
        firsts[axis] //= count
    name = f"{access.name}.phase{j}"
    known = replace(facts, divisors={**facts.divisors, name: ADDRESS_ALIGN_BYTES})
    asked = replace(
        access,
        shape=tuple(shape),
        strides=tuple(strides),
        address=sym(name),
        tile=tuple(tile),
        swizzles=(Swizzle.NONE,),
        panel_bytes=0,
        first_multiples=tuple(firsts),
    )
    plan = next(iter(candidates(asked, known, target, limit=1).plans), None)
    if plan is None:
        return None
    index = {index_symbol(axis).name: index_symbol(axis) // count} if axis != dense and count > 1 else {}
    plan = replace(plan, coordinates=tuple(c.substitute(index) for c in plan.coordinates))
    return RowClass(plan, first - first % ADDRESS_ALIGN_BYTES, shift)
