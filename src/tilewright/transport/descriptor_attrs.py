"""Descriptors as attributes of the dialect: tensor maps and wgmma operands, printed as text and parsed back.

    #layout.tma<BFLOAT16 at "a.address" : "K" x "M" : strides "a.stride0*2" : box 64 x 128 : axes 1, 0 : B128, L2_128B>
    #layout.tma<... : axes 1, 0 : ragged 0 : B128, L2_128B>
    #layout.wgmma_operand<K, 256 x 64, B128 : leading 16, stride 1024>

A tensor map lists its dimensions innermost first, as the driver does: extents, byte strides of all but the innermost,
the box, and the tensor's axis that each stands for. Along a ``ragged`` axis copies end where their coordinate in the
last dimension but one says: the last two stand for no axis (``legal.ragged``). An operand is ``mn`` x ``k`` elements
whose rows lie along ``K`` or ``MN``, with the byte offsets of its descriptor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from xdsl.ir import Data, Dialect
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr, ExprError, parse
from tilewright.hw.rules.wgmma import DESCRIPTOR, LAYOUT_TYPE
from tilewright.hw.tensormap import MAX_RANK, DataType, L2Promotion, Swizzle

E = TypeVar("E", bound=IntEnum)
T = TypeVar("T")
MAJORS = ("K", "MN")


@dataclass(frozen=True)
class TmaNumbers:
    """The arguments of ``cuTensorMapEncodeTiled``; expressions are over the tensor's symbols. Element strides are 1,
    elements outside are zeros, nothing is interleaved."""

    data_type: DataType
    address: Expr
    dims: tuple[Expr, ...]
    strides_bytes: tuple[Expr, ...]
    box: tuple[int, ...]
    axes: tuple[int, ...]
    swizzle: Swizzle
    l2_promotion: L2Promotion
    ragged_axis: int | None = None
    """The tensor axis along which copies end at their coordinate in the last dimension but one. That and the last
    dimension stand for no axis; ``axes`` names those before."""


@dataclass(frozen=True)
class OperandNumbers:
    """A shared-memory operand of wgmma: its tile, and the fields of its descriptor but for the start address."""

    major: int
    """The transpose immediate: 0 K-major, 1 MN-major."""
    mn: int
    k: int
    swizzle: Swizzle
    leading_bytes: int
    stride_bytes: int

    @cached_property
    def template(self) -> int:
        """The descriptor with start address 0."""
        values = {
            "start_address": 0,
            "leading_bytes": self.leading_bytes,
            "stride_bytes": self.stride_bytes,
            "base_offset": 0,
            "layout_type": LAYOUT_TYPE[self.swizzle],
        }
        return sum((values[f.name] >> f.shift) % (1 << f.width) << f.low for f in DESCRIPTOR)


@irdl_attr_definition
class TmaAttr(Data[TmaNumbers]):
    """A tensor map."""

    name = "layout.tma"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TmaNumbers:
        with parser.in_angle_brackets():
            data_type = _parse_enum(parser, DataType)
            parser.parse_keyword("at")
            address = _parse_expr(parser)
            parser.parse_punctuation(":")
            dims = _parse_by(parser, lambda: _parse_expr(parser))
            parser.parse_punctuation(":")
            parser.parse_keyword("strides")
            strides = _parse_list(parser, lambda: _parse_expr(parser)) if len(dims) > 1 else ()
            parser.parse_punctuation(":")
            parser.parse_keyword("box")
            box = _parse_by(parser, parser.parse_integer)
            parser.parse_punctuation(":")
            parser.parse_keyword("axes")
            axes = _parse_list(parser, parser.parse_integer)
            parser.parse_punctuation(":")
            ragged = None
            if parser.parse_optional_keyword("ragged"):
                ragged = parser.parse_integer()
                parser.parse_punctuation(":")
            swizzle = _parse_enum(parser, Swizzle)
            parser.parse_punctuation(",")
            promotion = _parse_enum(parser, L2Promotion)
            return TmaNumbers(data_type, address, dims, strides, box, axes, swizzle, promotion, ragged)

    def print_parameter(self, printer: Printer) -> None:
        d = self.data
        dims, strides = (_quoted(x) for x in (d.dims, d.strides_bytes))
        ragged = "" if d.ragged_axis is None else f" : ragged {d.ragged_axis}"
        text = (
            f'{d.data_type.name} at "{d.address}" : {" x ".join(dims)} : strides {", ".join(strides)}'
            f"{' ' if strides else ''}: box {' x '.join(map(str, d.box))} : axes {', '.join(map(str, d.axes))}"
            f"{ragged} : {d.swizzle.name}, {d.l2_promotion.name}"
        )
        printer.print_string(f"<{text}>")

    def verify(self) -> None:
        d = self.data
        rank = len(d.dims)
        named = len(d.axes) + (0 if d.ragged_axis is None else 2)
        if not 1 <= rank <= MAX_RANK or len(d.strides_bytes) != rank - 1 or not len(d.box) == named == rank:
            raise VerifyException(f"{rank} dims, {len(d.strides_bytes)} strides, {len(d.box)} box extents")
        if d.ragged_axis is not None and d.ragged_axis not in d.axes[1:]:
            raise VerifyException(f"ragged along axis {d.ragged_axis}, outer dimensions along {d.axes[1:]}")


@irdl_attr_definition
class WgmmaOperandAttr(Data[OperandNumbers]):
    """A shared-memory operand of wgmma."""

    name = "layout.wgmma_operand"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> OperandNumbers:
        with parser.in_angle_brackets():
            word = parser.parse_identifier()
            if word not in MAJORS:
                parser.raise_error(f"an operand is {' or '.join(MAJORS)}-major")
            parser.parse_punctuation(",")
            mn, k = _parse_by(parser, parser.parse_integer, 2)
            parser.parse_punctuation(",")
            swizzle = _parse_enum(parser, Swizzle)
            parser.parse_punctuation(":")
            parser.parse_keyword("leading")
            leading = parser.parse_integer()
            parser.parse_punctuation(",")
            parser.parse_keyword("stride")
            return OperandNumbers(MAJORS.index(word), mn, k, swizzle, leading, parser.parse_integer())

    def print_parameter(self, printer: Printer) -> None:
        d = self.data
        printer.print_string(
            f"<{MAJORS[d.major]}, {d.mn} x {d.k}, {d.swizzle.name} : "
            f"leading {d.leading_bytes}, stride {d.stride_bytes}>"
        )

    def verify(self) -> None:
        if self.data.swizzle not in LAYOUT_TYPE:
            raise VerifyException(f"wgmma reads no tile swizzled by {self.data.swizzle.name}")


LAYOUT_ATTRIBUTES = Dialect("layout", [], [TmaAttr, WgmmaOperandAttr])
"""Register this with a parser's context to read the attributes."""


def _parse_enum(parser: AttrParser, kind: type[E]) -> E:
    word = parser.parse_identifier()
    found = kind.__members__.get(word)
    return found if found is not None else parser.raise_error(f"{word} is none of {', '.join(kind.__members__)}")


def _parse_expr(parser: AttrParser) -> Expr:
    text = parser.parse_str_literal()
    try:
        return parse(text)
    except ExprError as error:
        parser.raise_error(str(error))


def _parse_by(parser: AttrParser, one: Callable[[], T], count: int | None = None) -> tuple[T, ...]:
    """``8 x 64 x 2``."""
    found = [one()]
    while parser.parse_optional_keyword("x"):
        found.append(one())
    if count is not None and len(found) != count:
        parser.raise_error(f"{count} numbers, not {len(found)}")
    return tuple(found)


def _parse_list(parser: AttrParser, one: Callable[[], T]) -> tuple[T, ...]:
    """``8, 64, 2``."""
    found = [one()]
    while parser.parse_optional_punctuation(","):
        found.append(one())
    return tuple(found)


def _quoted(items: tuple[Expr, ...]) -> list[str]:
    return [f'"{item}"' for item in items]
