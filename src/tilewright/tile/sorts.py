"""The sort: integers along an axis in ascending order, all of them or the least."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tilewright.base.dtypes import i32, i64
from tilewright.lang.axes import whole
from tilewright.tile.attributes import TileType
from tilewright.tile.ops import TileOp, require, tile_type


@irdl_op_definition
class Sort(TileOp):
    """The integers of the domain of ``axis`` in ascending order.

    With ``count`` the least that many of them, along an axis of their own; where the domain has fewer, the greatest
    number of the dtype follows. ``network``: the bits of the coordinate in the order in which a network takes them that
    selects the least. Every order selects the same.
    """

    name = "tile.sort"
    x = operand_def(TileType)
    axis = attr_def(IntAttr)
    count = opt_attr_def(IntAttr)
    network = opt_attr_def(ArrayAttr[IntAttr])
    result = result_def(TileType)
    assembly_format = "$x `along` $axis attr-dict-with-keyword `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, axis: int, count: int | None = None):
        super().__init__(
            operands=[x],
            attributes={"axis": IntAttr(axis), "count": None if count is None else IntAttr(count)},
            result_types=[_sorted(tile_type(x), axis, count)],
        )

    def note_bit_order(self, bits: Sequence[int]) -> None:
        """Notes the order in which a network takes the coordinate's bits."""
        self.attributes["network"] = ArrayAttr([IntAttr(bit) for bit in bits])

    def verify_(self) -> None:
        kind, axis = tile_type(self.x), self.axis.data
        count = None if self.count is None else self.count.data
        require(kind.element in (i32, i64), f"a sort is of i32 or i64, not {kind.element}")
        require(0 <= axis < kind.rank, f"axis {axis} of rank {kind.rank}")
        require(count is None or count > 0, f"the least {count} elements")
        require(self.result.type == _sorted(kind, axis, count), "a sort keeps the other axes and the dtype")


def _sorted(kind: TileType, axis: int, count: int | None) -> TileType:
    axes = list(kind.axes_tuple)
    if count is not None:
        axes[axis] = whole(count)
    return TileType.of(kind.element, axes)
