"""One tensor map for all groups of a ragged tensor, with copies clipped at the end of their group.

Rows of groups of unequal size lie one after the other. A plain map clips at the end of the tensor only, so the last
tile of a group would read, or overwrite, rows of the next one. Two more dimensions with a box of one move the end: rows
are counted up to a fixed bound B, so that whatever lies beyond the group is out of bounds, and the two dimensions take
the address back::

    dimension    extent   stride        coordinate
    rows         B        s             B - (end - start) + row
    end          large    s             end
    wrap         large    2^34 - s      B = 2^30

    address = base + (B - end + start + row) s + end s + B (2^34 - s) = base + (start + row) s + 2^64

Addresses are 64-bit numbers, so the last term vanishes: strides count elements here, and B times 2^34 of any whole
number of bytes is a multiple of 2^64. Triton's ragged descriptors use the same wrap (triton/tools/ragged_tma.py,
3.9.0). Stores of products, and their operands, whose domain ends inside of their tensor use such maps
(``schedule.hopper.ragged_maps``), for whom ``start`` is 0 and rows count those of the tensor;
``tools/tma_execute.py --family ragged`` executes copies both ways.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.expr import Const, ExprLike, Sym, expr
from tilewright.base.verdict import Illegal, Legal, Violation
from tilewright.hw.target import SM90A, Target
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.tma import TensorMapPlan, TileAccess, plan
from tilewright.legal.tma_preconditions import too_many_dimensions

BOUND = 1 << 30
"""Extent that rows are counted up to; no group is longer."""
LARGE = 0x7FFF_0000
"""Extent of the two dimensions that are added: any coordinate lies inside."""
WRAP = 1 << 34
"""BOUND * WRAP is 2^64: elements of any whole number of bytes."""


def ragged_plan(
    access: TileAccess, axis: int, start: ExprLike, end: ExprLike, facts: Facts | None = None, target: Target = SM90A
) -> Legal[TensorMapPlan] | Illegal:
    """The map of ``access`` whose copies stay in rows ``start`` to ``end`` along ``axis``, one for all groups.

    ``index{axis}`` counts rows of the group, from 0; ``start`` and ``end`` are expressions over what the kernel knows
    of it. The map takes two dimensions more than ``access`` has (TMA061 beyond five), which stand behind all others,
    and the axis must not be the dense one (TMA060).
    """
    known = facts or Facts()
    step = known.apply(expr(access.strides[axis]))
    if known.decide(step.eq(1)):
        place = f"the ragged axis {axis} is the dense one"
        return Illegal((Violation("TMA060", place, "another dense axis", "dimension 0 holds no rows"),))
    rank = len(access.shape)
    shape = [*access.shape]
    shape[axis] = BOUND
    firsts = tuple(access.first_multiple(i) for i in range(rank))
    asked = replace(
        access,
        shape=(*shape, LARGE, LARGE),
        strides=(*access.strides, step, WRAP - step),
        tile=(*access.tile, None, None),
        first_multiples=(*firsts, 1, 1),
    )
    answer = plan(asked, known, target)
    if not isinstance(answer, Legal):
        assert isinstance(answer, Illegal), "the direct way has no other answers"
        return answer
    row, group = index_symbol(axis), expr(end) - expr(start)
    last, beyond = index_symbol(rank), index_symbol(rank + 1)
    names = {row.name: row + BOUND - group, last.name: expr(end), beyond.name: expr(BOUND)}
    found = _moved_behind(answer.fields, (last, beyond))
    if found is None or row not in found.coordinates:
        return Illegal((too_many_dimensions(len(answer.fields.dims) + 1),))
    coordinates = tuple(c.substitute(names) for c in found.coordinates)
    return Legal(replace(found, coordinates=coordinates, ragged_axis=axis))


def _moved_behind(found: TensorMapPlan, added: tuple[Sym, Sym]) -> TensorMapPlan | None:
    """The plan with the dimensions of two coordinates behind all others; None where one was merged with another."""
    if any(symbol not in found.coordinates for symbol in added):
        return None
    behind = [found.coordinates.index(symbol) for symbol in added]
    order = [*(i for i in range(found.rank) if i not in behind), *behind]
    steps = (Const(0), *found.strides)
    return replace(
        found,
        dims=tuple(found.dims[i] for i in order),
        strides=tuple(steps[i] for i in order[1:]),
        box=tuple(found.box[i] for i in order),
        coordinates=tuple(found.coordinates[i] for i in order),
        boxes=tuple(replace(box, start=tuple(box.start[i] for i in order)) for box in found.boxes),
    )
