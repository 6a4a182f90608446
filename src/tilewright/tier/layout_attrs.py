"""The ``#layout.*`` attributes of the dialects: plain integers and tuples, printed as text and read back.

    #layout.cute<(8, (2, 4)) : (8, (1, 2))>
    #layout.f2<(register: 2, lane: 5, warp: 2) -> (dim0: 6, dim1: 3) : [64, 8, 128, 256, 1, 2, 4, 16, 32]>
    #layout.register<(64, 24) : (register: 2, ...) -> (...) : [...] : [(1, 3, 8)]>

and the descriptors of ``tier.descriptor_attrs``. They say nothing about what a layout means: ``tier.convert`` makes
layouts of them, so that readers of the IR which must not share the layout code (the simulator) can take the numbers as
they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Data, Dialect
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.tier.descriptor_attrs import TmaAttr, WgmmaOperandAttr

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
Axes: TypeAlias = tuple[tuple[str, int], ...]
"""Axis names with their number of bits."""


@dataclass(frozen=True)
class CuteNumbers:
    """Nested extents and strides."""

    shape: IntTuple
    stride: IntTuple


@dataclass(frozen=True)
class F2Numbers:
    """Axes with bits, and one packed column per input bit."""

    ins: Axes
    outs: Axes
    columns: tuple[int, ...]


@dataclass(frozen=True)
class RegisterNumbers:
    """The tile, the atom, and repeats as (dimension, count, stride)."""

    shape: tuple[int, ...]
    atom: F2Numbers
    repeats: tuple[tuple[int, int, int], ...]


@irdl_attr_definition
class CuteLayoutAttr(Data[CuteNumbers]):
    """Nested shape:stride."""

    name = "layout.cute"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> CuteNumbers:
        with parser.in_angle_brackets():
            shape = _parse_tuple(parser)
            parser.parse_punctuation(":")
            return CuteNumbers(shape, _parse_tuple(parser))

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{_tuple_text(self.data.shape)} : {_tuple_text(self.data.stride)}>")

    def verify(self) -> None:
        if not _congruent(self.data.shape, self.data.stride):
            raise VerifyException("shape and stride of a layout are nested alike")
        if min(_leaves(self.data.shape), default=1) < 1 or min(_leaves(self.data.stride), default=0) < 0:
            raise VerifyException("extents of a layout are positive, strides not negative")


@irdl_attr_definition
class F2LayoutAttr(Data[F2Numbers]):
    """A layout over bits."""

    name = "layout.f2"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> F2Numbers:
        with parser.in_angle_brackets():
            return _parse_f2(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{_f2_text(self.data)}>")

    def verify(self) -> None:
        _verify_f2(self.data)


@irdl_attr_definition
class RegisterLayoutAttr(Data[RegisterNumbers]):
    """An atom with repeats over a tile."""

    name = "layout.register"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> RegisterNumbers:
        with parser.in_angle_brackets():
            shape = tuple(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_integer))
            parser.parse_punctuation(":")
            atom = _parse_f2(parser)
            parser.parse_punctuation(":")
            repeats = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_repeat(parser))
            return RegisterNumbers(shape, atom, tuple(repeats))

    def print_parameter(self, printer: Printer) -> None:
        shape = f"({', '.join(map(str, self.data.shape))})"
        repeats = ", ".join(f"({d}, {n}, {s})" for d, n, s in self.data.repeats)
        printer.print_string(f"<{shape} : {_f2_text(self.data.atom)} : [{repeats}]>")

    def verify(self) -> None:
        _verify_f2(self.data.atom)
        if len(self.data.shape) != len(self.data.atom.outs):
            raise VerifyException("the tile has one extent per output axis of its atom")
        for dim, count, stride in self.data.repeats:
            if not 0 <= dim < len(self.data.shape) or count < 1 or stride < 0:
                raise VerifyException(f"no such repeat: {(dim, count, stride)}")


LAYOUT_ATTRIBUTES = Dialect("layout", [], [CuteLayoutAttr, F2LayoutAttr, RegisterLayoutAttr, TmaAttr, WgmmaOperandAttr])
"""Register this with a parser's context to read the attributes."""


def _parse_tuple(parser: AttrParser) -> IntTuple:
    if (value := parser.parse_optional_integer()) is not None:
        return value
    return tuple(parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_tuple(parser)))


def _parse_axis(parser: AttrParser) -> tuple[str, int]:
    name = parser.parse_identifier()
    parser.parse_punctuation(":")
    return name, parser.parse_integer()


def _parse_f2(parser: AttrParser) -> F2Numbers:
    ins = tuple(parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_axis(parser)))
    parser.parse_punctuation("->")
    outs = tuple(parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_axis(parser)))
    parser.parse_punctuation(":")
    columns = tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))
    return F2Numbers(ins, outs, columns)


def _parse_repeat(parser: AttrParser) -> tuple[int, int, int]:
    digits = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_integer)
    if len(digits) != 3:
        parser.raise_error("a repeat is (dimension, count, stride)")
    return digits[0], digits[1], digits[2]


def _tuple_text(value: IntTuple) -> str:
    return f"({', '.join(map(_tuple_text, value))})" if isinstance(value, tuple) else str(value)


def _f2_text(numbers: F2Numbers) -> str:
    ins, outs = (", ".join(f"{n}: {b}" for n, b in side) for side in (numbers.ins, numbers.outs))
    return f"({ins}) -> ({outs}) : [{', '.join(map(str, numbers.columns))}]"


def _verify_f2(numbers: F2Numbers) -> None:
    if len(numbers.columns) != sum(b for _, b in numbers.ins):
        raise VerifyException("an F2 layout has one column per input bit")
    limit = 1 << sum(b for _, b in numbers.outs)
    if any(not 0 <= c < limit for c in numbers.columns):
        raise VerifyException("a column of an F2 layout does not fit its output axes")


def _leaves(value: IntTuple) -> list[int]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else [value]


def _congruent(a: IntTuple, b: IntTuple) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_congruent, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)
