"""What every op of the ``tile`` dialect shares: its place in the user's file, and how verifiers refuse."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    opt_attr_def,
)
from xdsl.utils.exceptions import VerifyException

from tilewright.base.expr import Expr
from tilewright.diag import Location
from tilewright.tile.attributes import (
    ExprAttr,
    FragmentType,
    TensorType,
    TileType,
)


def tile_type(value: SSAValue) -> TileType:
    """The type of a tile."""
    assert isinstance(value.type, TileType)
    return value.type


def fragment_type(value: SSAValue) -> FragmentType:
    """The type of a fragment."""
    assert isinstance(value.type, FragmentType)
    return value.type


def tensor_type(value: SSAValue) -> TensorType:
    """The type of a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type


def location_of(op: Operation) -> Location | None:
    """The user's place an op was recorded at; None for an op that no user wrote."""
    loc = op.attributes.get("loc")
    if not isinstance(loc, StringAttr):
        return None
    file, _, line = loc.data.rpartition(":")
    return Location(file, int(line))


def operations(root: Operation) -> list[Operation]:
    """``root`` and every op inside it, in order. xDSL's ``walk`` passes each through a generator for every region,
    block and op around it, which costs a compilation more than what it looks for."""
    found: list[Operation] = []
    left = [root]
    while left:
        op = left.pop()
        found.append(op)
        for region in reversed(op.regions):
            for block in reversed(region.blocks):
                inner = block.last_op
                while inner is not None:
                    left.append(inner)
                    inner = inner.prev_op
    return found


class TileOp(IRDLOperation):
    """Base of all ops; ``loc`` is the user's ``file:line``."""

    loc = opt_attr_def(StringAttr)


def exprs(items: Sequence[Expr]) -> ArrayAttr[ExprAttr]:
    return ArrayAttr([ExprAttr(e) for e in items])


def require(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyException(message)
