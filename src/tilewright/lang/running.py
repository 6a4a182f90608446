"""Running sums, products and extrema of recorded values, and the fragments that carry them from tile to tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

from tilewright.base.dtypes import DType, f32, i32, i64, u32
from tilewright.lang import arithmetic
from tilewright.lang.axes import Axis, show_axes
from tilewright.lang.enums import BinaryFn, identity
from tilewright.lang.recorder import Cell, Node, Recorder
from tilewright.lang.source_locations import refuse


class Carrier(Protocol):
    """A fragment: it holds a running state between scans."""

    @property
    def cell(self) -> Cell: ...


def running(
    rec: Recorder,
    fn: BinaryFn,
    x: Node,
    axis: int | None,
    carry: Carrier | None,
    *,
    exclusive: bool,
    reverse: bool,
) -> Node:
    """Running values by ``fn``: of narrow floats in f32, sums and products of integers in i64, others in 32
    bits."""
    dtype = x.dtype
    grows = fn in (BinaryFn.ADD, BinaryFn.MUL)
    if grows and not dtype.is_float:
        dtype = i64
    x = arithmetic.cast(rec, x, f32 if dtype.is_float else dtype if dtype in (i64, u32) else i32)
    at = position_of(axis, x.axes)
    # a state of 32 bits begins with what the narrower result can hold; a carried one is as wide as its fragment
    neutral = identity(fn, x.dtype if carry is not None or dtype.is_float else dtype)
    neutral = int(neutral) if isinstance(neutral, bool) else neutral
    carriers = () if carry is None else (carry,)
    before = state_of(rec, carriers, [x.dtype], without(x.axes, at))
    if exclusive and not before:
        before = [arithmetic.broadcast(rec, arithmetic.convert(rec, neutral, x.dtype), without(x.axes, at))]

    def combine(state: Sequence[Node], element: Sequence[Node]) -> list[Node]:
        return [arithmetic.binary(rec, fn, state[0], element[0])]

    found, last = rec.scan(combine, [x], before, at, exclusive=exclusive, reverse=reverse, neutral=neutral)
    leave(rec, carriers, last)
    return arithmetic.cast(rec, found[0], dtype) if grows else arithmetic.returned(rec, found[0], dtype)


def position_of(axis: int | None, axes: tuple[Axis, ...]) -> int:
    """The axis of a scan, counted from 0; None: the only one."""
    if axis is None and len(axes) == 1:
        return 0
    if not isinstance(axis, int) or not -len(axes) <= axis < len(axes):
        refuse(
            "LNG025",
            found=f"axis {axis} of a value with axes {show_axes(axes)}",
            required=f"an axis of {-len(axes)} to {len(axes) - 1}" if axes else "a value with axes",
            help="name one axis, counted from 0: axis=1",
        )
    return axis % len(axes)


def without(axes: tuple[Axis, ...], axis: int) -> tuple[Axis, ...]:
    """All axes but one."""
    return (*axes[:axis], *axes[axis + 1 :])


# -- carried states ---------------------------------------------------------------------------------------------------
def state_of(rec: Recorder, carriers: Sequence[Carrier], dtypes: Sequence[DType], axes: tuple[Axis, ...]) -> list[Node]:
    """The contents of fragments as the state before the first element; refuses fragments of other dtypes."""
    for carrier, dtype in zip(carriers, dtypes, strict=False):
        held = carrier.cell.dtype
        if held != dtype and not (held.is_int and dtype.is_int):
            refuse_state(f"a fragment of {held} that carries {dtype}", str(dtype), f"tw.zeros((m,), tw.{dtype})")
    read = [arithmetic.cast(rec, rec.read(c.cell), d) for c, d in zip(carriers, dtypes, strict=False)]
    return [arithmetic.broadcast(rec, r, axes) for r in read]


def leave(rec: Recorder, carriers: Sequence[Carrier], last: Sequence[Node]) -> None:
    """Writes the last state to the fragments."""
    for carrier, node in zip(carriers, last, strict=False):
        value = arithmetic.cast(rec, node, carrier.cell.dtype)
        rec.write(carrier.cell, arithmetic.broadcast(rec, value, carrier.cell.axes), carrier)


def refuse_state(found: str, required: str, help: str) -> NoReturn:
    """LNG038: states that do not fit each other."""
    refuse("LNG038", found=found, required=required, help=help)
