"""The scan: running values along an axis, by a function of two states that a region holds."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntAttr, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def, region_def, var_operand_def, var_result_def

from tilewright.base.dtypes import DType
from tilewright.lang.enums import BinaryFn
from tilewright.tile.attributes import TileType
from tilewright.tile.elements import Binary, Cast, Compare, Constant, ScalarExpr, Select, Unary
from tilewright.tile.ops import TileOp, ops_in, require, tile_type
from tilewright.tile.structure import Yield

COMBINES = (Unary, Binary, Compare, Select, Cast, Constant, ScalarExpr)
"""Ops that a scan's region may hold: element-wise ones, of rank 0."""

GROUPS = (BinaryFn.ADD, BinaryFn.MUL, BinaryFn.MAX, BinaryFn.MIN)
"""Functions that some number changes nothing under, and that commute."""


@irdl_op_definition
class Scan(TileOp):
    """Running values along the domain of ``axis``: of states s_0, s_1, .. the elements of the result are
    ``r_0 = s_0`` and ``r_i = fn(r_{i-1}, s_i)``, grouped in any way, for ``fn`` is associative.

    A state is one element of each of the ``n`` tiles ``values[:n]``; ``values[n:]``, if there are any, is the running
    state before the first element, over the other axes. Results are the running states and, over the other axes, the
    last one: of an empty domain the state before the first element, without which it has no value. ``exclusive``: the
    state before each element. ``reverse``: from the last element to the first. The body takes a running state and an
    element's, 2n scalars, and yields the next running state.
    """

    name = "tile.scan"
    values = var_operand_def(TileType)
    axis = attr_def(IntAttr)
    exclusive = opt_attr_def(UnitAttr)
    reverse = opt_attr_def(UnitAttr)
    found = var_result_def(TileType)
    body = region_def("single_block")
    assembly_format = "$values `along` $axis attr-dict-with-keyword `:` type($values) `->` type($found) $body"

    def __init__(
        self,
        values: Sequence[SSAValue],
        axis: int,
        body: Region,
        *,
        exclusive: bool = False,
        reverse: bool = False,
    ):
        states = [tile_type(v) for v in values[: len(body.block.args) // 2]]
        kept = [TileType.of(s.element, [a for i, a in enumerate(s.axes_tuple) if i != axis]) for s in states]
        super().__init__(
            operands=[list(values)],
            attributes={
                "axis": IntAttr(axis),
                "exclusive": UnitAttr() if exclusive else None,
                "reverse": UnitAttr() if reverse else None,
            },
            result_types=[[*states, *kept]],
            regions=[body],
        )

    @property
    def count(self) -> int:
        """Values of a state."""
        return len(self.body.block.args) // 2

    @property
    def elements(self) -> tuple[SSAValue, ...]:
        """The tiles whose elements are scanned."""
        return tuple(self.values[: self.count])

    @property
    def before(self) -> tuple[SSAValue, ...]:
        """The state before the first element; empty without one."""
        return tuple(self.values[self.count :])

    @property
    def running(self) -> tuple[SSAValue, ...]:
        """The running states."""
        return tuple(self.results[: self.count])

    @property
    def last(self) -> tuple[SSAValue, ...]:
        """The last running state."""
        return tuple(self.results[self.count :])

    @property
    def combining(self) -> tuple[tuple[Operation, ...], tuple[SSAValue, ...]]:
        """The body's ops, and the values that it yields."""
        *ops, last = ops_in(self.body.block)
        return tuple(ops), tuple(last.operands)

    @property
    def function(self) -> BinaryFn | None:
        """The function that the body is, of one value: a sum, product, maximum or minimum; None for another."""
        ops, (result, *_) = self.combining
        match ops:
            case (Binary() as op,) if self.count == 1 and op.result == result:
                alone = set(op.operands) == set(self.body.block.args)
                return op.fn.data if alone and op.fn.data in GROUPS else None
            case _:
                return None

    def verify_(self) -> None:
        count, axis, block = self.count, self.axis.data, self.body.block
        require(count > 0 and len(block.args) == 2 * count, "a scan's body takes two states")
        require(len(self.values) in (count, 2 * count), f"{len(self.values)} values of states of {count}")
        require(len(self.results) == 2 * count, "a scan has a running and a last state")
        states = [tile_type(v) for v in self.elements]
        require(0 <= axis < states[0].rank, f"axis {axis} of rank {states[0].rank}")
        require(all(s.axes == states[0].axes for s in states), "the tiles of a state have the same axes")
        require([r.type for r in self.running] == states, "a scan keeps types")
        kept = [TileType.of(s.element, [a for i, a in enumerate(s.axes_tuple) if i != axis]) for s in states]
        require([r.type for r in self.last] == kept, "the last state drops the axis")
        require(all(v.type == k for v, k in zip(self.before, kept, strict=False)), "a state before is like the last")
        require(bool(self.before) or self.exclusive is None, "before the first element is a state")
        scalars = [TileType.of(s.element, []) for s in states]
        require([a.type for a in block.args] == [*scalars, *scalars], "a scan's body takes scalars")
        last = block.last_op
        require(isinstance(last, Yield), "a scan's body ends with tile.yield")
        assert isinstance(last, Yield)
        require([v.type for v in last.values] == scalars, "a scan's body yields a state")
        allowed = all(isinstance(op, COMBINES) for op in ops_in(block) if op is not last)
        require(allowed, "a scan's body is element-wise")


def combine_block(dtypes: Sequence[DType]) -> Block:
    """The empty body of a scan over states of these dtypes."""
    scalars = [TileType.of(d, []) for d in dtypes]
    return Block(arg_types=[*scalars, *scalars])
