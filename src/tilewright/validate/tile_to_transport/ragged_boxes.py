"""Boxes of tensor maps in the coordinates of their tensor, those of ragged maps, too.

A map is ragged along an axis if two dimensions more, behind all others, move where copies end. Their coordinates are an
end and a constant; boxes have one element there. With all strides and the extent b of the rows taken from the map, the
byte at which row c of the box begins is, of 64 bits, that of row c + end - b of the tensor, and it lies inside if that
is before the end, unless it lies more than b rows before. Rows before the first of the tensor are not clipped: none may
be copied. That coordinates are 32-bit integers is for the compiler's proofs, as it is of other copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.expr import Compare, Const, Expr, Max, Min, Sym, conjuncts
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import TmaNumbers
from tilewright.validate.undecided import Undecided


def begin_of(numbers: TmaNumbers, coords: Sequence[Expr]) -> tuple[Expr, ...]:
    """The first element of a box along each of the map's axes."""
    if numbers.ragged_axis is None:
        return tuple(coords)
    rows, moved = numbers.axes.index(numbers.ragged_axis), list(coords[:-2])
    moved[rows] = moved[rows] - numbers.dims[rows] + coords[-2]
    return tuple(moved)


def ends_of(kernel: t.Kernel, op: a.TmaLoad | a.TmaStore, numbers: TmaNumbers) -> tuple[tuple[Expr, ...], ...]:
    """What the elements that are copied lie before, along each of the map's axes. Undecided for a ragged map whose
    added dimensions do not cancel for a copy, or whose rows might be too many."""
    if numbers.ragged_axis is None:
        return tuple((extent,) for extent in numbers.dims)
    rows = numbers.axes.index(numbers.ragged_axis)
    bound, pitch, (to_end, back) = (
        numbers.dims[rows].constant,
        numbers.strides_bytes[rows - 1],
        numbers.strides_bytes[-2:],
    )
    end, last = (c.expr for c in op.coords.data[-2:])
    around, extent = (back + pitch).constant, _extent(op, numbers.ragged_axis)
    if bound is None or around is None or to_end != pitch or last != Const(int(bound)) or around * bound % (1 << 64):
        raise Undecided(f"a ragged map with rows of {pitch}, {to_end} and {back} bytes, counted to {bound}, at {last}")
    parts = _least(end)
    larger = [d for d in numbers.dims[-2:] if d.constant is None or d.constant <= bound]
    if extent not in parts or larger or not _at_most(kernel, extent, int(bound)) or numbers.box[-2:] != (1, 1):
        raise Undecided(f"rows of a ragged map up to {end}, of {extent} and of {bound}")
    return tuple(parts if i == rows else (d,) for i, d in enumerate(numbers.dims[:-2]))


def _least(end: Expr) -> tuple[Expr, ...]:
    """What rows from 0 on lie before where they lie before ``end``."""
    match end:
        case Max((Const(0), rest)) | Max((rest, Const(0))):
            return _least(rest)
        case Min(args):
            return args
        case _:
            return (end,)


def _extent(op: a.TmaLoad | a.TmaStore, axis: int) -> Expr:
    declared = op.map.owner
    assert isinstance(declared, a.TensorMap)
    kind = declared.tensor.type
    assert isinstance(kind, t.TensorType)
    return kind.dims.data[axis].expr


def _at_most(kernel: t.Kernel, extent: Expr, bound: int) -> bool:
    """Whether the kernel is launched for no more rows: then none lies ``bound`` before an end."""
    if extent.constant is not None:
        return extent.constant <= bound
    asked = (part for fact in kernel.assumptions for part in conjuncts(fact.expr))
    limits = (x.rhs.constant for x in asked if isinstance(x, Compare) and x.op in ("<=", "<") and x.lhs == extent)
    return isinstance(extent, Sym) and any(limit is not None and limit <= bound for limit in limits)
