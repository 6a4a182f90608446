"""Attributes and types of the ``tile`` dialect: expressions, ranges, dtypes, numbers; tensors, tiles, fragments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Generic, TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.expr import Expr, ExprError, parse
from tilewright.lang.axes import UNIT, Axis, Coord, Span
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import AtomicFn, BinaryFn, CompareFn, Numerics, ReduceFn


def _parse_expr(parser: AttrParser) -> Expr:
    text = parser.parse_str_literal(" of an integer expression")
    try:
        return parse(text)
    except ExprError as error:
        parser.raise_error(str(error))


@irdl_attr_definition
class ExprAttr(Data[Expr]):
    """An integer expression, printed as a string."""

    name = "tile.expr"

    @staticmethod
    @lru_cache(maxsize=1 << 14)
    def of(value: Expr) -> ExprAttr:
        return ExprAttr(value)

    @property
    def expr(self) -> Expr:
        return self.data

    @property
    def text(self) -> str:
        return self.data.text

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Expr:
        with parser.in_angle_brackets():
            return _parse_expr(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.data.text)


@irdl_attr_definition
class DTypeAttr(Data[DType]):
    """An element type."""

    name = "tile.dtype"

    @staticmethod
    @lru_cache(maxsize=64)
    def of(value: DType) -> DTypeAttr:
        return DTypeAttr(value)

    @property
    def dtype(self) -> DType:
        return self.data

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> DType:
        with parser.in_angle_brackets():
            return _parse_dtype(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.name)


def _parse_dtype(parser: AttrParser) -> DType:
    return DTYPES[parser.parse_keyword_in(DTYPES, " a dtype")]


@irdl_attr_definition
class RangeAttr(Data[Span]):
    """``size`` coordinates from ``origin``; those at or beyond ``stop`` have no value."""

    name = "tile.range"

    @staticmethod
    def of(origin: Expr, size: int, stop: Expr) -> RangeAttr:
        return RangeAttr(Span(origin, size, stop))

    @property
    def origin(self) -> ExprAttr:
        return ExprAttr(self.data.origin)

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def stop(self) -> ExprAttr:
        return ExprAttr(self.data.stop)

    @property
    def span(self) -> Span:
        return self.data

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Span:
        with parser.in_angle_brackets():
            return _parse_span(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            _print_span(printer, self.data)


def _parse_span(parser: AttrParser) -> Span:
    origin = _parse_expr(parser)
    parser.parse_punctuation(",")
    size = parser.parse_integer(allow_boolean=False, allow_negative=False)
    parser.parse_punctuation(",")
    return Span(origin, size, _parse_expr(parser))


def _print_span(printer: Printer, span: Span) -> None:
    printer.print_string_literal(span.origin.text)
    printer.print_string(f", {span.size}, ")
    printer.print_string_literal(span.stop.text)


@irdl_attr_definition
class UnitAxisAttr(ParametrizedAttribute):
    """An axis of extent 1 without a range."""

    name = "tile.unit"

    @property
    def size(self) -> int:
        return 1


AxisAttr: TypeAlias = RangeAttr | UnitAxisAttr
CoordAttr: TypeAlias = RangeAttr | ExprAttr


def axis_attr(axis: Axis) -> AxisAttr:
    """The attribute of an axis."""
    return RangeAttr(axis) if isinstance(axis, Span) else UnitAxisAttr()


def axis_of(attr: AxisAttr) -> Axis:
    """The axis of an attribute."""
    return attr.data if isinstance(attr, RangeAttr) else UNIT


def coord_attr(coord: Coord) -> CoordAttr:
    """The attribute of a tensor coordinate."""
    return RangeAttr(coord) if isinstance(coord, Span) else ExprAttr(coord)


@irdl_attr_definition
class NumberAttr(Data[bool | int | float]):
    """A constant: True and False for bool, Python's ``repr`` for integers and floats."""

    name = "tile.number"

    @staticmethod
    def of(value: bool | int | float) -> NumberAttr:
        return NumberAttr(math.nan if value != value else value)  # one NaN object, so that equality is reflexive

    @property
    def value(self) -> bool | int | float:
        return self.data

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> bool | int | float:
        with parser.in_angle_brackets():
            text = parser.parse_str_literal(" of a number")
        if text in ("True", "False"):
            return text == "True"
        try:
            return NumberAttr.of(float(text) if any(c in text for c in ".enif") else int(text)).data
        except ValueError:
            parser.raise_error(f"not a number: {text!r}")

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(repr(self.data))


@irdl_attr_definition
class BoundAttr(Data[tuple[Expr, int]]):
    """A promise made with ``upto=``: launches where ``extent > upto`` are refused."""

    name = "tile.bound"

    @property
    def extent(self) -> ExprAttr:
        return ExprAttr(self.data[0])

    @property
    def upto(self) -> int:
        return self.data[1]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Expr, int]:
        with parser.in_angle_brackets():
            extent = _parse_expr(parser)
            parser.parse_punctuation(",")
            return extent, parser.parse_integer(allow_boolean=False, allow_negative=False)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.data[0].text)
            printer.print_string(f", {self.data[1]}")


E = TypeVar("E", bound=StrEnum)


class _NameAttr(Data[E], Generic[E]):
    """A member of an enum, printed by its value."""

    members: ClassVar[type[StrEnum]]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> E:
        with parser.in_angle_brackets():
            text = parser.parse_keyword_in([str(m) for m in cls.members])
        return cast(E, cls.members(text))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


@irdl_attr_definition
class UnaryFnAttr(_NameAttr[UnaryFn]):
    """A function of one element."""

    name = "tile.unary_fn"
    members = UnaryFn


@irdl_attr_definition
class BinaryFnAttr(_NameAttr[BinaryFn]):
    """A function of two elements."""

    name = "tile.binary_fn"
    members = BinaryFn


@irdl_attr_definition
class CompareFnAttr(_NameAttr[CompareFn]):
    """A comparison."""

    name = "tile.compare_fn"
    members = CompareFn


@irdl_attr_definition
class ReduceFnAttr(_NameAttr[ReduceFn]):
    """A reduction."""

    name = "tile.reduce_fn"
    members = ReduceFn


@irdl_attr_definition
class AtomicFnAttr(_NameAttr[AtomicFn]):
    """A reduction into memory."""

    name = "tile.atomic_fn"
    members = AtomicFn


@irdl_attr_definition
class NumericsAttr(_NameAttr[Numerics]):
    """A numerics policy."""

    name = "tile.numerics"
    members = Numerics


@irdl_attr_definition
class TensorType(ParametrizedAttribute, TypeAttribute):
    """A global tensor; its dims are expressions, its strides are the symbols ``name.stride0`` (elements)."""

    name = "tile.tensor"
    dtype: DTypeAttr
    dims: ArrayAttr[ExprAttr]
    tensor_name: StringAttr

    @staticmethod
    def of(dtype: DType, dims: Sequence[Expr], name: str) -> TensorType:
        return TensorType(DTypeAttr(dtype), ArrayAttr([ExprAttr(d) for d in dims]), StringAttr(name))

    @property
    def element(self) -> DType:
        return self.dtype.data

    @property
    def rank(self) -> int:
        return len(self.dims)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[DTypeAttr | ArrayAttr[ExprAttr] | StringAttr]:
        with parser.in_angle_brackets():
            name = parser.parse_identifier(" of the tensor")
            parser.parse_punctuation(",")
            dtype = _parse_dtype(parser)
            dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: ExprAttr(_parse_expr(parser)))
        return DTypeAttr(dtype), ArrayAttr(dims), StringAttr(name)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.tensor_name.data}, {self.element.name} ")
            with printer.in_square_brackets():
                printer.print_list(self.dims, lambda dim: printer.print_string_literal(dim.text))


class _AxesType(ParametrizedAttribute):
    """Shared by tiles and fragments: an element type and axes."""

    dtype: DTypeAttr
    axes: ArrayAttr[AxisAttr]

    @property
    def element(self) -> DType:
        return self.dtype.data

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tile, padding included."""
        return tuple(axis.size for axis in self.axes)

    @property
    def axes_tuple(self) -> tuple[Axis, ...]:
        """The axes as plain values."""
        return tuple(map(axis_of, self.axes))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[DTypeAttr | ArrayAttr[AxisAttr]]:
        with parser.in_angle_brackets():
            dtype = _parse_dtype(parser)
            axes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_axis(parser))
        return DTypeAttr(dtype), ArrayAttr(axes)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.element.name} ")
            with printer.in_square_brackets():
                printer.print_list(self.axes, lambda axis: _print_axis(printer, axis))


def _parse_axis(parser: AttrParser) -> AxisAttr:
    if parser.parse_optional_integer(allow_boolean=False, allow_negative=False) == 1:
        return UnitAxisAttr()
    with parser.in_parens():
        return RangeAttr(_parse_span(parser))


def _print_axis(printer: Printer, axis: AxisAttr) -> None:
    if isinstance(axis, UnitAxisAttr):
        printer.print_string("1")
        return
    with printer.in_parens():
        _print_span(printer, axis.data)


@irdl_attr_definition
class TileType(_AxesType, TypeAttribute):
    """A value per coordinate of its axes' domains; rank 0 is a scalar."""

    name = "tile.tile"
    dtype: DTypeAttr
    axes: ArrayAttr[AxisAttr]

    @staticmethod
    def of(dtype: DType, axes: Sequence[Axis]) -> TileType:
        return _tile_type(dtype, tuple(axes))


@irdl_attr_definition
class FragmentType(_AxesType, TypeAttribute):
    """A mutable tile: the state that streams carry."""

    name = "tile.fragment"
    dtype: DTypeAttr
    axes: ArrayAttr[AxisAttr]

    @staticmethod
    def of(dtype: DType, axes: Sequence[Axis]) -> FragmentType:
        return _fragment_type(dtype, tuple(axes))


# A kernel has few types and thousands of values: attributes are immutable, so equal ones are made once.
@lru_cache(maxsize=4096)
def _tile_type(dtype: DType, axes: tuple[Axis, ...]) -> TileType:
    return TileType(DTypeAttr(dtype), ArrayAttr([axis_attr(a) for a in axes]))


@lru_cache(maxsize=4096)
def _fragment_type(dtype: DType, axes: tuple[Axis, ...]) -> FragmentType:
    return FragmentType(DTypeAttr(dtype), ArrayAttr([axis_attr(a) for a in axes]))
