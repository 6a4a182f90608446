"""The functions of the language: grids, streams and axes; fragments; dot; stores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from tilewright.base.dtypes import DType, f32
from tilewright.base.expr import Const, Expr
from tilewright.base.expr import minimum as least
from tilewright.diag import shown, type_shown
from tilewright.lang import arithmetic
from tilewright.lang.arithmetic import Operand
from tilewright.lang.axes import Axis, Coord, Span, whole
from tilewright.lang.calls import operands_of, recorder_of
from tilewright.lang.enums import AtomicFn
from tilewright.lang.operators import number_of, operand_of
from tilewright.lang.params import ChosenExtent
from tilewright.lang.recorder import Node, OpenStream, Recorder
from tilewright.lang.source_locations import refuse
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Fragment, Int, Range, Scalar, Tile, check_dtype, integer_of, scalar_of

Extent: TypeAlias = Tensor | Int
Bound: TypeAlias = Int | Tile | Fragment


# -- places -----------------------------------------------------------------------------------------------------------
def grid(over: Extent | Sequence[Extent], blocks: int | Sequence[int | None] | None = None) -> Any:
    """One program per block of a tensor's leading dimensions, or of the given extents; once per kernel.

    An int n gives a ``Range`` of n coordinates, None a scalar index. A tuple or list of blocks gives as many values; a
    single block its one value. Without blocks there is a scalar index for each extent.
    """
    parts = tuple(over) if isinstance(over, tuple | list) else (cast("Extent", over),)
    rec = recorder_of(parts)
    extents = _extents(over if isinstance(over, Tensor) else parts)
    sizes = tuple(blocks) if isinstance(blocks, tuple | list) else (blocks,) * (len(parts) if blocks is None else 1)
    if isinstance(over, Tensor):
        extents = extents[: len(sizes)]
    if len(sizes) != len(extents) or not extents:
        refuse(
            "LNG021",
            found=f"{len(sizes)} blocks for {len(extents)} extents",
            required="one block per extent, or per leading dimension of a tensor",
            help="a block is a tile extent, or None for a scalar index",
        )
    coords = rec.grid(extents, [None if b is None else _tile_extent(b, "a block") for b in sizes])
    values = [_coordinate(rec, c) for c in coords]
    return values[0] if len(values) == 1 else tuple(values)


def axis(extent: Int, upto: int | None = None, start: Bound | None = None, until: Bound | None = None) -> Range:
    """A whole axis in every program: a tile of ``upto`` coordinates; launches with a greater extent are refused.

    It begins at ``start`` or 0, and ends at ``until``, which may be loaded, and at the extent at the latest.
    """
    if isinstance(extent, ChosenExtent):
        refuse(
            "LNG021",
            found="an extent that the schedule chooses, of a keyword left to it with tw.auto",
            required="an extent that says what is computed: an int, or a dimension of a tensor",
            help="a whole dimension is tw.axis(x.shape[1], upto=4096); tw.grid(x, (bm, bn)) and tw.stream cut one into "
            "tiles of such an extent; the places in a tile of a Range n are n.index - n.start",
        )
    rec = recorder_of((extent, start, until))
    stop = integer_of(extent, "the extent")
    rec.use(stop)
    known = stop.constant
    if upto is None and known is None:
        refuse(
            "LNG021",
            found=f"the symbolic extent {stop}",
            required="upto=, the greatest extent that a tile has to hold",
            help="tw.axis(x.shape[1], upto=4096); longer axes are walked with tw.stream",
        )
    limit = _tile_extent(upto, "upto") if upto is not None else known
    assert limit is not None
    if known is not None and known < 1:
        refuse("LNG021", found=f"an extent of {known}", required="at least 1", help="leave the axis out")
    if known is not None and known > limit:
        refuse("LNG018", found=f"an extent of {known}", required=f"1 to {limit}", help="raise upto=")
    if known is None:
        limit = rec.bound(stop, limit)
    begin = _bound(rec, start, "start", stop)
    end = stop if until is None else least(stop, _bound(rec, until, "until", stop))
    return Range(rec, Span(begin, limit if known is None else known, end))


def stream(extent: Extent, step: int | None = None, start: Bound | None = None, until: Bound | None = None) -> _Stream:
    """A loop over an axis in tiles of ``step``, from ``start`` or 0 to the extent or ``until``, whichever comes first.

    The body is recorded once. With ``step`` None the loop variable is a scalar index. A bound may be loaded,
    ``until=lengths[b]``: an integer tile of rank 0, which is clipped to the extent, so that a negative length is an
    empty stream.
    """
    rec = recorder_of((extent, start, until))
    stop = _of_one_axis(extent) if isinstance(extent, Tensor) else integer_of(extent, "an extent", code="LNG021")
    begin = _bound(rec, start, "start", stop)
    if until is not None:
        stop = least(stop, _bound(rec, until, "until", stop))
    for bound in (begin, stop):
        rec.use(bound)
    return _Stream(rec, begin, stop, None if step is None else _tile_extent(step, "the step"))


def ragged_grid(offsets: Tensor, extent: Int | tuple[Int, ...], block: Any, *, rest: str = "zero") -> tuple[Any, ...]:
    """One program per tile of at most ``block`` rows of a group; once per kernel. Gives the group and the rows.

    Group g has the rows from ``offsets[g]`` to ``offsets[g + 1]``, of ``extent`` rows in all; groups may be empty. A
    tile has rows of one group. Plain stores to the rows write 0 to those in no group, with ``rest="keep"`` nothing.
    Tuples of extents and blocks, that of the rows first, give further axes as ``grid`` does.
    """
    extents = extent if isinstance(extent, tuple) else (extent,)
    blocks = cast("tuple[Any, ...]", block) if isinstance(block, tuple) else (block,)
    rec = recorder_of((offsets, *extents))
    if not isinstance(cast(object, offsets), Tensor) or offsets.ndim != 1 or not offsets.dtype.is_int:
        refuse(
            "LNG021",
            found="a ragged grid over " + (repr(offsets) if isinstance(cast(object, offsets), Tensor) else "no tensor"),
            required="integers of one dimension, where groups begin and end",
            help='annotate them as offsets: tw.Offsets["G + 1"]',
        )
    if rest not in ("zero", "keep"):
        refuse(
            "LNG021", found=f"rest={rest!r}", required='"zero" or "keep"', help='rest="keep" leaves rows in no group'
        )
    if len(blocks) != len(extents) or not extents:
        refuse(
            "LNG021",
            found=f"{len(blocks)} blocks for {len(extents)} extents",
            required="one block per extent, those of the rows first",
            help="tw.ragged_grid(offsets, (x.shape[0], w.shape[1]), (64, 128))",
        )
    rows, *others = (integer_of(e, "an extent", code="LNG021") for e in extents)
    size, *sizes = (None if b is None else _tile_extent(b, "a block") for b in blocks)
    if size is None:
        refuse(
            "LNG021",
            found="rows one by one",
            required="tiles of rows",
            help="tw.ragged_grid(offsets, x.shape[0], 1)",
        )
    group, span, beside = rec.ragged(offsets.array, rows, size, others, sizes, keep=rest == "keep")
    return (scalar_of(rec, group), Range(rec, span), *(_coordinate(rec, c) for c in beside))


def clipped(x: Tile | Fragment, extent: Int) -> Int:
    """One loaded integer as an index of an axis of ``extent`` elements, clipped to 0 .. extent - 1: a Scalar, so that
    ``table[clipped(owner[p], table.shape[0]), n]`` is a row that a program chooses by what it loads."""
    rec = recorder_of((x, extent))
    stop = integer_of(extent, "the extent")
    rec.use(stop)
    operand = _one_integer(x, "an index", "load one: tw.clipped(owner[p], q.shape[0]), or owner[p.start] of a Range p")
    return scalar_of(rec, rec.clipped(operand, stop))


def _bound(rec: Recorder, value: object, what: str, extent: Expr) -> Expr:
    """The begin or end of an axis; loaded integers are clipped to ``0 .. extent``."""
    if value is None:
        return Const(0)
    if not isinstance(value, Tile | Fragment):
        return integer_of(value, what)
    return rec.bind(
        _one_integer(
            value, what, "load one: until=lengths[b], where b is an index of the grid, or lengths[b.start] of a Range b"
        ),
        extent,
    )


def _one_integer(value: object, what: str, help: str) -> Node:
    """The operand of a loaded integer of rank 0."""
    if not isinstance(value, Tile | Fragment) or value.ndim or not value.dtype.is_int:
        kind = f"{value.dtype} of {value.ndim} axes" if isinstance(value, Tile | Fragment) else shown(value)
        refuse(
            "LNG022",
            found=f"{what} is {kind}",
            required="an int, an integer of extents, program indices and scalars, or one loaded integer",
            help=help,
        )
    return value._operand()  # pyright: ignore[reportPrivateUsage] - proxies are this room's


class _Stream:
    """Iterated once by a ``for``: yields one loop value, then ends the recorded body."""

    def __init__(self, recorder: Recorder, start: Expr, stop: Expr, step: int | None):
        self._recorder, self._start, self._stop, self._step = recorder, start, stop, step

    def __iter__(self) -> _Pass:
        return _Pass(self._recorder, self._start, self._stop, self._step)

    def __repr__(self) -> str:
        return "a stream that no loop walks (for k in tw.stream(...))"


class _Pass:
    """The iterator of one ``for``. If the loop is left early Python drops it without asking for a second value."""

    def __init__(self, recorder: Recorder, start: Expr, stop: Expr, step: int | None):
        self._recorder, self._start, self._stop, self._step = recorder, start, stop, step
        self._open: OpenStream | None = None
        self._value: object = None

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - the frame with the user's `for`
        if self._open is None:
            self._open = self._recorder.open_stream(self._start, self._stop, self._step or 1, frame)
            span = self._open.span
            self._value = Scalar(self._recorder, span.origin) if self._step is None else Range(self._recorder, span)
            return self._value
        stream, self._open = self._open, None
        self._recorder.close_stream(stream, self._value, frame)
        raise StopIteration

    def __del__(self) -> None:
        if self._open is not None:
            frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
            self._recorder.abandon_stream(self._open, frame)


def _of_one_axis(tensor: Tensor) -> Expr:
    if tensor.ndim != 1:
        refuse(
            "LNG021",
            found=f"a stream over {tensor!r}",
            required="one extent",
            help="name the dimension: tw.stream(x.shape[1], 64)",
        )
    return tensor.dims[0]


def _extents(over: Extent | tuple[Extent, ...]) -> list[Expr]:
    if isinstance(over, Tensor):
        return list(over.dims)
    parts = over if isinstance(over, tuple) else (over,)
    return [integer_of(part, "an extent", code="LNG021") for part in parts]


def _tile_extent(value: object, what: str) -> int:
    number = number_of(value)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        shown = "an integer known only at launch" if isinstance(value, Scalar) else repr(value)
        refuse(
            "LNG021",
            found=f"{what} is {shown}",
            required="a compile-time int of at least 1",
            help="make it a keyword parameter with an int or tw.auto as default",
        )
    return number


def _coordinate(rec: Recorder, coord: Coord) -> Range | Int:
    return Range(rec, coord) if isinstance(coord, Span) else scalar_of(rec, coord)


# -- fragments --------------------------------------------------------------------------------------------------------
def full(shape: Sequence[Range | int] | Range | int, value: object, dtype: DType | None = None) -> Fragment:
    """A fragment over Ranges and known extents, holding ``value`` everywhere.

    Without ``dtype`` it is f32 for a Python float, and of a traced value's own dtype; integers have to name one, as
    they may begin sums of any.
    """
    parts: Sequence[Range | int] = tuple(shape) if isinstance(shape, list | tuple) else (cast("Range | int", shape),)
    rec = recorder_of((*parts, value))
    axes = tuple(_axis(part) for part in parts)
    source = operand_of(value)
    if source is None:
        refuse("LNG026", found=repr(value), required="a number or a rank-0 tile", help="tw.full((m,), 0.0, tw.f32)")
    node = arithmetic.convert(rec, source, _dtype_of(source) if dtype is None else check_dtype(dtype))
    return Fragment(rec, rec.fragment(arithmetic.broadcast(rec, node, axes)))


def _dtype_of(value: Operand) -> DType:
    if isinstance(value, int | Expr):
        example = f"tw.full((m,), {value}, tw.f32)"
        refuse("LNG041", found=f"tw.full of {value} without a dtype", required="the dtype of elements", help=example)
    return f32 if isinstance(value, float) else value.dtype


def zeros(shape: Sequence[Range | int] | Range | int, dtype: DType = f32) -> Fragment:
    """A fragment of zeros, f32 by default."""
    return full(shape, False if check_dtype(dtype).is_bool else 0, dtype)


def _axis(part: object) -> Axis:
    return part.span if isinstance(part, Range) else whole(_tile_extent(part, "an axis"))


# -- contraction, stores, print ---------------------------------------------------------------------------------------
def dot(a: Any, b: Any, *, accumulate: str = "fast") -> Tile:
    """``a[m, k] @ b[k, n]``, over k's domain, accumulated in f32 (i8 in i32).

    Tensor cores add products of 8-bit floats with 14 significant bits. ``accumulate="promoted"``: what they have added
    in one step, of at most 128 elements of k, is added to a fragment in f32.
    """
    rec, (left, right) = operands_of(a, b)
    if accumulate not in ("fast", "promoted"):
        refuse("LNG024", found=f"accumulate={accumulate!r}", required="fast or promoted", help='accumulate="promoted"')
    promoted = accumulate == "promoted"
    return Tile(rec, arithmetic.dot(rec, arithmetic.lift(rec, left), arithmetic.lift(rec, right), promoted=promoted))


def reduce_add(tensor: Tensor, index: object, value: object) -> None:
    """Add ``value`` to ``tensor[index]``; programs may add to the same elements, in no particular order."""
    _reduce_into(AtomicFn.ADD, tensor, index, value)


def reduce_max(tensor: Tensor, index: object, value: object) -> None:
    """Atomically raises ``tensor[index]`` to ``value`` where that is greater; the result does not depend on the order
    of programs. For i32, i64, u32 and f32: NaN where an element is NaN, and 0.0 is greater than -0.0."""
    _reduce_into(AtomicFn.MAX, tensor, index, value)


def reduce_min(tensor: Tensor, index: object, value: object) -> None:
    """Lower ``tensor[index]`` to ``value`` where that is less; otherwise as ``reduce_max``."""
    _reduce_into(AtomicFn.MIN, tensor, index, value)


def reduce_and(tensor: Tensor, index: object, value: object) -> None:
    """Clear the bits of ``tensor[index]`` that ``value`` has not: of i32, i64 and u32, in any order."""
    _reduce_into(AtomicFn.AND, tensor, index, value)


def reduce_or(tensor: Tensor, index: object, value: object) -> None:
    """Set the bits of ``tensor[index]`` that ``value`` has: of i32, i64 and u32, in any order."""
    _reduce_into(AtomicFn.OR, tensor, index, value)


def _reduce_into(fn: AtomicFn, tensor: Tensor, index: object, value: object) -> None:
    if not isinstance(cast(object, tensor), Tensor):
        refuse(
            "LNG023",
            found=f"reduce_{fn} to {type_shown(tensor)}",
            required="a tensor parameter, an index and a value",
            help=f"tw.reduce_{fn}(y, (m, n), tile)",
        )
    tensor.write(index, value, fn)


_PRINT_HELP = (
    "outside of a kernel use Python's print; in one, tw.print shows values when it runs, print when it is traced"
)


def print_(format: str, *values: object) -> None:
    """Print ``format`` with each element of the values in place of its ``{}``."""
    if not isinstance(cast(object, format), str):
        refuse(
            "LNG023",
            found=f"tw.print of {type_shown(format)} without a format",
            required="a str with a {} for each value, then the values",
            help='tw.print("x = {}", x)',
        )
    rec, operands = operands_of(*values) if values else (recorder_of((), _PRINT_HELP), list[Operand]())
    if format.count("{}") != len(values):
        refuse(
            "LNG023",
            found=f"{format.count('{}')} placeholders in {format!r}, {len(values)} values",
            required="one {} per value",
            help='tw.print("x = {}", x)',
        )
    rec.print(format, arithmetic.align(rec, [arithmetic.lift(rec, o) for o in operands]) if operands else [])
