"""Sums over programs: what one tile's programs have each summed up in part, added across them."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tilewright.base.dtypes import f32
from tilewright.base.expr import Sym
from tilewright.lang.axes import Axis, Span
from tilewright.tile.attributes import TileType
from tilewright.tile.ops import TileOp, program_index, require, tile_type


@irdl_op_definition
class ProgramSum(TileOp):
    """The sum of ``x`` over the ``parts`` programs along ``axis`` of the grid, in their order; each gets its share.

    All of them reach the op. The share of program i is the i-th of as many equal ranges of the last axis.
    """

    name = "tile.program_sum"
    x = operand_def(TileType)
    axis = attr_def(IntAttr)
    parts = attr_def(IntAttr)
    result = result_def(TileType)
    assembly_format = "$x `over` $axis `of` $parts attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, axis: int, parts: int):
        whole = tile_type(x)
        super().__init__(
            operands=[x],
            attributes={"axis": IntAttr(axis), "parts": IntAttr(parts)},
            result_types=[TileType.of(whole.element, share_of(whole, axis, parts))],
        )

    def verify_(self) -> None:
        source, target = tile_type(self.x), tile_type(self.result)
        require(self.parts.data > 1 and source.element == f32, f"parts of f32 are summed, not {source.element}")
        require(source.rank > 0 and _cuts(source.axes_tuple[-1], self.parts.data), "the last axis in equal parts")
        share = TileType.of(f32, share_of(source, self.axis.data, self.parts.data))
        require(target == share, f"a program's share is {share}")


def _cuts(columns: Axis, parts: int) -> bool:
    return isinstance(columns, Span) and columns.size % parts == 0


def share_of(whole: TileType, axis: int, parts: int) -> tuple[Axis, ...]:
    """The axes of the share that the executing program gets."""
    *others, columns = whole.axes_tuple
    assert isinstance(columns, Span)
    width = columns.size // parts
    return (*others, Span(columns.origin + Sym(program_index(axis)) * width, width, columns.stop))
