"""The histogram: how many elements of a tile name each bin."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tilewright.base.dtypes import i32
from tilewright.lang.axes import whole
from tilewright.tile.attributes import TileType
from tilewright.tile.ops import TileOp, require, tile_type


@irdl_op_definition
class Histogram(TileOp):
    """Counts, for each number below ``count``, its occurrences in the domain of ``x``; other numbers are skipped."""

    name = "tile.histogram"
    x = operand_def(TileType)
    count = attr_def(IntAttr)
    result = result_def(TileType)
    assembly_format = "$x `to` $count attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, bins: int):
        result = TileType.of(i32, [whole(bins)])
        super().__init__(operands=[x], attributes={"count": IntAttr(bins)}, result_types=[result])

    @property
    def bins(self) -> int:
        """Numbers that are counted."""
        return self.count.data

    def verify_(self) -> None:
        require(tile_type(self.x).element == i32, "a histogram is of i32")
        require(self.bins > 0 and self.result.type == TileType.of(i32, [whole(self.bins)]), "a counter for each bin")
