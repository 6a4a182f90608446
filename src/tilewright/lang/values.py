"""The values of a kernel's body: integers (``Scalar``), places (``Range``), tiles and mutable tiles (``Fragment``)."""

from __future__ import annotations

import numbers
import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias, cast

from tilewright.base.dtypes import DType, dtype_named, f32
from tilewright.base.expr import Const, Expr, Product, Sum, expr, maximum, minimum
from tilewright.diag import shown, type_shown
from tilewright.lang import arithmetic, regroup
from tilewright.lang.arithmetic import Operand
from tilewright.lang.axes import Axis, Span, show_axes
from tilewright.lang.enums import BinaryFn, ReduceFn
from tilewright.lang.operators import Operators, number_of, operand_of
from tilewright.lang.recorder import Cell, Node, Recorder
from tilewright.lang.running import refuse_state, running
from tilewright.lang.shapes import Shape
from tilewright.lang.source_locations import refuse
from tilewright.lang.traced import Traced


class _Recorded(Operators):
    """Computing with a value gives a tile."""

    __slots__ = ()

    def _tile(self, node: Node) -> Tile:
        return Tile(self._recorder, node)


class Scalar(_Recorded):
    """An integer known when the kernel is launched or runs: an extent, a program's index, a scalar argument.

    ``+ - * // %`` with integers stay integers of unlimited range, usable as coordinates, extents and stream bounds; any
    other operation makes a rank-0 tile.
    """

    __slots__ = ("_recorder", "expr")

    def __init__(self, recorder: Recorder, value: Expr):
        self._recorder = recorder
        self.expr = value

    def _operand(self) -> Operand:
        self._recorder.use(self.expr)
        return self.expr

    def _binary(self, fn: BinaryFn, other: object, *, swapped: bool = False) -> Any:
        right = _integer(other)
        combine = ON_INTEGERS.get(fn)
        if right is None or combine is None:
            return super()._binary(fn, other, swapped=swapped)
        left = self.expr
        if swapped:
            left, right = right, left
        if right.constant == 0 and fn in (BinaryFn.FLOORDIV, BinaryFn.MOD):
            refuse(
                "LNG023",
                found=f"{fn} of {left} by zero",
                required="a divisor that is not 0",
                help="divide by another number",
            )
        whole = _other_factor(left, right) if fn is BinaryFn.FLOORDIV else None
        if whole is not None and self._recorder.require(expr(0) < right):
            return scalar_of(self._recorder, whole)
        return scalar_of(self._recorder, combine(left, right))

    def _power(self, other: object, *, swapped: bool = False) -> Any:
        exponent = None if swapped else number_of(other)
        if not isinstance(exponent, int) or exponent < 0:
            return super()._power(other, swapped=swapped)
        raised = expr(1)
        for _ in range(exponent):
            raised = raised * self.expr
        return scalar_of(self._recorder, raised)

    def __neg__(self) -> Any:
        return scalar_of(self._recorder, -self.expr)

    def __getitem__(self, key: object) -> NoReturn:
        _not_indexed(self, key)

    def to(self, dtype: DType) -> Tile:
        """The integer as a rank-0 tile of ``dtype``."""
        return Tile(self._recorder, arithmetic.convert(self._recorder, self._operand(), check_dtype(dtype)))

    def __repr__(self) -> str:
        return f"Scalar({self.expr})"


def _not_indexed(value: Scalar | Range, key: object) -> NoReturn:
    items: tuple[object, ...] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
    refuse(
        "LNG019",
        found=f"{type_shown(value)} indexed by {_show_key(items)}",
        required="a tensor, which is loaded from, or a tile, which axes are inserted into",
        help="index a tensor with it: x[m, n]; its coordinates as a tile are m.index, as a column m.index[:, None]",
    )


def _other_factor(value: Expr, factor: Expr) -> Expr | None:
    """What is multiplied by a symbol's ``factor``; None where that is no factor of the value as it is written."""
    match value:
        case _ if value == factor:
            return expr(1)
        case Product(factors) if factor in factors:
            rest = list(factors)
            rest.remove(factor)
            return prod(rest, start=expr(1))
        case Sum(0, terms):
            parts = [(_other_factor(term, factor), c) for term, c in terms]
            known = [part * c for part, c in parts if part is not None]
            return sum(known, expr(0)) if len(known) == len(parts) else None
        case _:
            return None


ON_INTEGERS: dict[BinaryFn, Callable[[Expr, Expr], Expr]] = {
    BinaryFn.ADD: operator.add,
    BinaryFn.SUB: operator.sub,
    BinaryFn.MUL: operator.mul,
    BinaryFn.FLOORDIV: lambda a, b: a // b,
    BinaryFn.MOD: operator.mod,
    BinaryFn.MIN: minimum,
    BinaryFn.MAX: maximum,
}
"""Functions of tiles that are exact on integers."""


def scalar_of(recorder: Recorder, value: Expr) -> Scalar | int:
    """A plain int where the value is known now."""
    constant = value.constant
    return Scalar(recorder, value) if constant is None else constant


Int: TypeAlias = Scalar | int


class Range(_Recorded):
    """A place: ``size`` coordinates from ``start``; those at or beyond ``stop`` have no value.

    In arithmetic it is the tile of its coordinates (``index``): ``x[t - 3]`` is ``x[t.index - 3]``.
    """

    __slots__ = ("_recorder", "span")

    def __init__(self, recorder: Recorder, span: Span):
        self._recorder = recorder
        self.span = span

    def _operand(self) -> Operand:
        return self._recorder.index(self.span)

    def __getitem__(self, key: object) -> NoReturn:
        _not_indexed(self, key)

    @property
    def index(self) -> Tile:
        """The coordinates as an i32 tile over this range."""
        return Tile(self._recorder, self._recorder.index(self.span))

    @property
    def start(self) -> Int:
        """The first coordinate."""
        return scalar_of(self._recorder, self.span.origin)

    @property
    def stop(self) -> Int:
        """The first coordinate after the domain, clipped to the extent."""
        return scalar_of(self._recorder, self.span.end)

    @property
    def size(self) -> int:
        """Extent of the tile, coordinates outside the domain included."""
        return self.span.size

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    def __repr__(self) -> str:
        return f"Range({self.span})"


class Value(_Recorded):
    """The common base of tiles and fragments: an element type, axes, and operators."""

    __slots__ = ()
    __match_args__ = ("dtype", "axes")

    @abstractmethod
    def _operand(self) -> Node: ...

    @property
    @abstractmethod
    def dtype(self) -> DType:
        """The element type."""

    @property
    @abstractmethod
    def axes(self) -> tuple[Axis, ...]:
        """A span or a unit axis per dimension."""

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tile, coordinates outside the domain included."""
        return Shape(axis.size for axis in self.axes)

    @property
    def ndim(self) -> int:
        return len(self.axes)

    def to(self, dtype: DType) -> Tile:
        """Each element converted: to nearest even between floats, toward zero from float to int."""
        return Tile(self._recorder, arithmetic.cast(self._recorder, self._operand(), check_dtype(dtype)))

    @property
    def T(self) -> Tile:
        """The axes in reverse order."""
        return self.transpose(*reversed(range(self.ndim)))

    def view(self, dtype: DType) -> Tile:
        """The bits of each element as those of ``dtype``, which is as wide. The bits of a NaN are not specified."""
        return Tile(self._recorder, arithmetic.bitcast(self._recorder, self._operand(), check_dtype(dtype)))

    def fill(self, value: object) -> Tile:
        """The same where elements are present, ``value`` where they are absent: where a computed or loaded coordinate
        left its tensor. ``value`` is a number or a value that broadcasts to these axes."""
        rec, source = self._recorder, operand_of(value)
        if source is None:
            refuse("LNG026", found=shown(value), required="a number or a tile", help="x[t - 3].fill(0.0)")
        return Tile(rec, rec.fill(self._operand(), arithmetic.convert(rec, source, self.dtype)))

    def transpose(self, *perm: int) -> Tile:
        """Axis i of the result is axis ``perm[i]``."""
        order = _places(perm, self.ndim)
        if sorted(order) != list(range(self.ndim)):
            refuse(
                "LNG025",
                found=f"transpose{perm} of axes {show_axes(self.axes)}",
                required=f"each of 0 to {self.ndim - 1} once",
                help="name every axis: x.transpose(1, 0)",
            )
        return Tile(self._recorder, self._recorder.transpose(self._operand(), order))

    def reshape(self, *shape: Any) -> Tile:
        """The elements in row-major order along other axes: extents, one of which may be -1, and Ranges, which say
        what an axis runs along. An axis whose elements stay together keeps its Range.

        Elements outside of the domain become absent ones. Behind the first of the axes that are split or merged
        extents are powers of 2 (LNG043).
        """
        return Tile(self._recorder, regroup.reshape(self._recorder, self._operand(), _shape_of(shape)))

    def split(self, sections: int, axis: int = -1) -> tuple[Tile, ...]:
        """The parts along an axis, of equal extents, as ``numpy.split`` gives them: ``a, b = x.split(2, axis=1)``."""
        (at,) = self._positions(axis)
        parts = regroup.split(self._recorder, self._operand(), sections, at)
        return tuple(Tile(self._recorder, part) for part in parts)

    def __getitem__(self, key: object) -> Tile:
        """``None`` inserts an axis of one element, ``:`` and ``...`` keep axes. Of an axis whose extent is known an int
        takes the elements at a place, ``pairs[:, :, 0]``, a slice those at several: ``x[:, :32]``, ``x[:, ::2]``."""
        items: tuple[object, ...] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
        named = sum(isinstance(item, slice) or _is_place(item) for item in items)
        dots = sum(item is Ellipsis for item in items)
        if (
            any(not (item is None or item is Ellipsis or isinstance(item, slice) or _is_place(item)) for item in items)
            or dots > 1
        ):
            self._refuse_key(items)
        if named > self.ndim:
            refuse("LNG002", found=f"{named} axes indexed", required=f"at most {self.ndim}", help="drop a `:`")
        inserted, chosen = list[int](), dict[int, int | range]()
        at = of = 0
        for item in items:
            if item is None:
                inserted.append(at)
                at += 1
            elif item is Ellipsis:
                at, of = at + self.ndim - named, of + self.ndim - named
            else:
                taken = _taken_of(self.axes[of], item)
                if taken is None:
                    self._refuse_key(items)
                if taken != range(self.axes[of].size):
                    chosen[of] = taken
                at, of = at + (not isinstance(taken, int)), of + 1
        node = self._operand()
        for axis, taken in reversed(chosen.items()):
            if isinstance(taken, range):
                node = regroup.sliced(self._recorder, node, axis, taken)
            elif isinstance(node.axes[axis], Span):
                node = regroup.part(self._recorder, node, axis, taken)
            else:
                node = self._recorder.drop(node, axis)
        return Tile(self._recorder, self._recorder.expand(node, inserted) if inserted else node)

    def _refuse_key(self, items: Sequence[object]) -> NoReturn:
        refuse(
            "LNG019",
            found=f"{type_shown(self)} of axes {show_axes(self.axes)} indexed by {_show_key(items)}",
            required="None, :, ..., and numbers and slices that take an element along axes of known extent",
            help="index the tensor instead, x[m, 0] or x[m, :32]; tw.take(tile, index, axis) gives elements at indices",
        )

    def __setitem__(self, key: object, value: object) -> NoReturn:
        refuse(
            "LNG019",
            found=f"an assignment into {type_shown(self)}",
            required="a tensor parameter on the left",
            help="choose elements with tw.where; write a Fragment with .set, += or *=",
        )

    # -- reductions ---------------------------------------------------------------------------------------------------
    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tile:
        """The sum over the domain: of 16-bit floats accumulated in f32, of integers and bools in i64."""
        return self._reduce(ReduceFn.SUM, axis, keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tile:
        """The product over the domain: of 16-bit floats accumulated in f32, of integers and bools in i64."""
        return self._reduce(ReduceFn.PROD, axis, keepdims)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tile:
        """Whether an element of the domain is not 0, a bool."""
        return self._truth(ReduceFn.MAX, axis, keepdims)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tile:
        """Whether no element of the domain is 0, a bool."""
        return self._truth(ReduceFn.MIN, axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tile:
        """The greatest element of the domain; NaN if there is one."""
        return self._reduce(ReduceFn.MAX, axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tile:
        """The least element of the domain; NaN if there is one."""
        return self._reduce(ReduceFn.MIN, axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tile:
        """Place of the greatest element, i32, counted from the tile's start: the first of equals, the first NaN."""
        return self._reduce(ReduceFn.ARGMAX, self._one_axis("argmax", axis), keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tile:
        """Place of the least element, i32, counted from the tile's start: the first of equals, the first NaN."""
        over = self._one_axis("argmin", axis)
        return Tile(self._recorder, arithmetic.argmin(self._recorder, self._operand(), over, keepdims))

    def _one_axis(self, name: str, axis: int | None) -> int:
        over = self._positions(axis)
        if len(over) != 1:
            refuse("LNG025", found=f"{name} over {len(over)} axes", required="one axis", help=f"name it: x.{name}(1)")
        return over[0]

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tile:
        """The sum divided by the number of coordinates in the domain, in f32."""
        axes = self._positions(axis)
        return Tile(self._recorder, arithmetic.mean(self._recorder, self._operand(), axes, keepdims))

    def _reduce(self, fn: ReduceFn, axis: int | Sequence[int] | None, keepdims: bool) -> Tile:
        axes = self._positions(axis)
        return Tile(self._recorder, arithmetic.reduce(self._recorder, fn, self._operand(), axes, keepdims))

    def _truth(self, fn: ReduceFn, axis: int | Sequence[int] | None, keepdims: bool) -> Tile:
        axes = self._positions(axis)
        return Tile(self._recorder, arithmetic.truth(self._recorder, fn, self._operand(), axes, keepdims))

    def _positions(self, axis: int | Sequence[int] | None) -> list[int]:
        several = isinstance(axis, list | tuple)
        positions = _places(range(self.ndim) if axis is None else axis if several else (axis,), self.ndim)
        if len(set(positions)) != len(positions) or any(not 0 <= a < self.ndim for a in positions):
            refuse(
                "LNG025",
                found=f"axis {shown(axis)} of a value with axes {show_axes(self.axes)}",
                required=f"an axis of {-self.ndim} to {self.ndim - 1}" if self.ndim else "a value with axes",
                help="count axes from 0; dropped axes no longer count",
            )
        return positions

    # -- scans ------------------------------------------------------------------------------------------------------
    def cumsum(
        self,
        axis: int | None = None,
        *,
        exclusive: bool = False,
        reverse: bool = False,
        carry: Fragment | None = None,
    ) -> Tile:
        """Running sums along an axis; see ``tw.cumsum``."""
        return self._running(BinaryFn.ADD, axis, carry, exclusive, reverse)

    def cumprod(
        self,
        axis: int | None = None,
        *,
        exclusive: bool = False,
        reverse: bool = False,
        carry: Fragment | None = None,
    ) -> Tile:
        """Running products along an axis; see ``tw.cumprod``."""
        return self._running(BinaryFn.MUL, axis, carry, exclusive, reverse)

    def cummax(
        self,
        axis: int | None = None,
        *,
        exclusive: bool = False,
        reverse: bool = False,
        carry: Fragment | None = None,
    ) -> Tile:
        """The greatest element so far; see ``tw.cummax``."""
        return self._running(BinaryFn.MAX, axis, carry, exclusive, reverse)

    def cummin(
        self,
        axis: int | None = None,
        *,
        exclusive: bool = False,
        reverse: bool = False,
        carry: Fragment | None = None,
    ) -> Tile:
        """The least element so far; see ``tw.cummin``."""
        return self._running(BinaryFn.MIN, axis, carry, exclusive, reverse)

    def _running(self, fn: BinaryFn, axis: int | None, carry: Fragment | None, exclusive: bool, reverse: bool) -> Tile:
        carrier = None if carry is None else carrier_of(carry)
        node = running(self._recorder, fn, self._operand(), axis, carrier, exclusive=exclusive, reverse=reverse)
        return Tile(self._recorder, node)


class Tile(Value):
    """An immutable value per coordinate of its axes' domains."""

    __slots__ = ("_recorder", "node")

    def __init__(self, recorder: Recorder, node: Node):
        self._recorder = recorder
        self.node = node

    def _operand(self) -> Node:
        return self.node

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.node.axes

    def __repr__(self) -> str:
        return f"Tile({self.dtype}, {show_axes(self.axes)})"


class Fragment(Value):
    """A mutable tile: the state a stream carries from one iteration to the next.

    An expression reads the value at that point. Only ``.set``, ``+=``, ``-=`` and ``*=`` write it.
    """

    __slots__ = ("_recorder", "cell")

    def __init__(self, recorder: Recorder, cell: Cell):
        self._recorder = recorder
        self.cell = cell

    def _operand(self) -> Node:
        return self._recorder.read(self.cell)

    @property
    def dtype(self) -> DType:
        return self.cell.dtype

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.cell.axes

    def copy(self) -> Tile:
        """The value at this point."""
        return Tile(self._recorder, self._operand())

    def set(self, value: object) -> None:
        """Replace the value; it is broadcast and converted to this fragment's axes and dtype."""
        self._write(value)

    def _write(self, value: object) -> None:
        source = operand_of(value)
        if source is None:
            refuse(
                "LNG026",
                found=type_shown(value),
                required=f"a value that broadcasts to {show_axes(self.axes)}",
                help="set tiles, fragments, scalars or numbers",
            )
        rec = self._recorder
        dtype = source.dtype if isinstance(source, Node) else f32 if isinstance(source, float) else None
        if dtype is not None and dtype.is_float and not self.dtype.is_float:
            refuse(
                "LNG026",
                found=f"{dtype} into a fragment of {self.dtype}",
                required="integers or bools",
                help=f"make the fragment tw.f32, or cast the value with .to(tw.{self.dtype})",
            )
        value_node = arithmetic.convert(rec, source, self.dtype)
        rec.write(self.cell, arithmetic.broadcast(rec, value_node, self.axes), self)

    def __iadd__(self, other: object) -> Fragment:
        self._write(self._binary(BinaryFn.ADD, other))
        return self

    def __isub__(self, other: object) -> Fragment:
        self._write(self._binary(BinaryFn.SUB, other))
        return self

    def __imul__(self, other: object) -> Fragment:
        self._write(self._binary(BinaryFn.MUL, other))
        return self

    def __repr__(self) -> str:
        return f"Fragment({self.dtype}, {show_axes(self.axes)})"


# -- what users hand in -----------------------------------------------------------------------------------------------
def carrier_of(value: object) -> Fragment:
    """The fragment that carries a running value; refuses anything else."""
    if not isinstance(value, Fragment):
        help = "total = tw.zeros((m,), tw.f32) before the stream; tw.cumsum(x[m, k], 1, carry=total) in it"
        refuse_state(f"carry= is {type_shown(value)}", "a fragment without the scanned axis", help)
    return value


def _places(axes: Sequence[object], rank: int) -> list[int]:
    """Axes counted from 0; -1 for what is no integer."""
    numbers_ = [operator.index(a) if isinstance(a, numbers.Integral) else -rank - 1 for a in axes]
    return [a + rank if a < 0 else a for a in numbers_]


def _integer(value: object) -> Expr | None:
    if isinstance(value, Scalar):
        return value.expr
    if isinstance(value, bool):
        return None
    return expr(int(value)) if isinstance(value, numbers.Integral) else None


def integer_of(value: object, what: str, *, code: str = "LNG022") -> Expr:
    """An integer as an expression; refuses anything else, loaded values included."""
    result = _integer(value)
    if result is None:
        refuse(
            code,
            found=f"{what} is {type_shown(value)}",
            required="an int or an integer of extents, program indices and scalars",
            help=_NO_INTEGER if _is_float(value) else _INSTEAD.get(type(value).__name__, _NO_INTEGER),
        )
    return result


def _is_float(value: object) -> bool:
    return isinstance(value, Tile | Fragment) and value.dtype.is_float


_NO_INTEGER = "make it an integer: // rounds down, -(-a // b) rounds up"
_INSTEAD = {
    "Tensor": "name a dimension: x.shape[0]",
    "Shape": "name a dimension: x.shape[0]",
    "tuple": "name one of them",
    "Range": "its length is m.size, its places are m.start and m.stop",
    "Tile": "of loaded values only the start and end of a stream or an axis may be made: until=lengths[b]",
    "Fragment": "of loaded values only the start and end of a stream or an axis may be made: until=lengths[b]",
}
"""Suggestions where an integer is required, by the kind of the given value."""


def check_dtype(dtype: object) -> DType:
    """``dtype``, refused if it is none of ours."""
    if not isinstance(dtype, DType):
        named = dtype_named(getattr(dtype, "__name__", None) or str(dtype))
        help = f"write tw.{named}" if named is not None else "use tw.f32, tw.bf16, x.dtype ..."
        if isinstance(dtype, int):
            help = "x.reshape(...) gives a tile other axes, x.view(dtype) its bits another dtype"
        refuse("LNG004", found=shown(dtype), required="a dtype such as tw.f32", help=help)
    return dtype


def _shape_of(shape: Sequence[object]) -> list[int | Span]:
    """The axes given to ``reshape``, as several arguments or as one tuple."""
    given = cast("Sequence[object]", shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    found: list[int | Span] = []
    for item in given:
        if isinstance(item, Range):
            found.append(item.span)
            continue
        extent = number_of(item)
        if not isinstance(extent, int):
            unknown = isinstance(item, Scalar)
            refuse(
                "LNG043",
                found=f"an extent that is known at launch: {item.expr}" if unknown else f"the extent {_shown(item)}",
                required="extents of tiles: ints, or Ranges",
                help="of a Range n use n.size // 32; a tensor's view has extents known at launch: "
                "x.reshape(M, N // 32, 32)[m, g, :]",
            )
        found.append(extent)
    return found


def _shown(item: object) -> str:
    return type_shown(item) if isinstance(item, Traced) else shown(item)


def _is_full(item: object) -> bool:
    if not isinstance(item, slice):
        return False
    bounds = cast("slice[Any, Any, Any]", item)
    return bounds.start is bounds.stop is bounds.step is None


def _is_place(item: object) -> bool:
    return not isinstance(item, bool) and isinstance(item, numbers.Integral)


def _taken_of(axis: Axis, item: object) -> int | range | None:
    """The place, or places, of an axis that an index takes, whatever the launch; None where there are none."""
    if _is_full(item):
        return range(axis.size)
    if isinstance(axis, Span) and axis != Span(Const(0), axis.size, Const(axis.size)):
        return None
    if not isinstance(item, slice):
        place = operator.index(cast("int", item))
        return place % axis.size if -axis.size <= place < axis.size else None
    bounds = cast("slice[Any, Any, Any]", item)
    if (
        not all(part is None or _is_place(part) for part in (bounds.start, bounds.stop, bounds.step))
        or bounds.step == 0
    ):
        return None
    return range(*bounds.indices(axis.size)) or None


def _show_key(items: Sequence[object]) -> str:
    def show(item: object) -> str:
        match item:
            case slice():
                return ":" if _is_full(cast(object, item)) else "a slice with bounds"
            case None:
                return "None"
            case EllipsisType():
                return "..."
            case Traced():
                return type_shown(item)
            case _:
                return repr(item)

    return "[" + ", ".join(map(show, items)) + "]"


show_key = _show_key
