"""Moves of elements between registers, and between the lanes of a warp, by tables worked out beforehand.

Elements move in groups of ``elements`` consecutive registers. A *pick* is one of several groups, by an expression of
``tid``: its ``choices`` are the numbers of first registers, its ``index`` says which of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def
from xdsl.utils.exceptions import VerifyException

from tilewright.base.expr import Expr
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.ops import integer
from tilewright.transport.ops.base import RegistersType, TransportOp, exprs, registers_of

Picks = Sequence[tuple[Sequence[int], Expr]]
LANES = 32


def _choices(picks: Picks) -> ArrayAttr[ArrayAttr[IntAttr]]:
    return ArrayAttr([ArrayAttr([integer(c) for c in choices]) for choices, _ in picks])


def _check(what: str, choices: ArrayAttr[ArrayAttr[IntAttr]], indices: ArrayAttr[ExprAttr], below: int) -> None:
    if len(choices) != len(indices) or any(not row.data for row in choices):
        raise VerifyException(f"every pick of {what} has choices and an index")
    if any(not 0 <= c.data < below for row in choices for c in row):
        raise VerifyException(f"picks of {what} go beyond {below}")


@irdl_op_definition
class RegisterSelect(TransportOp):
    """``target[i * elements + e] = source[pick_i + e]`` for every pick i and e below ``elements``, all at once."""

    name = "transport.select"
    source = operand_def(RegistersType)
    target = operand_def(RegistersType)
    elements = attr_def(IntAttr)
    choices = attr_def(ArrayAttr[ArrayAttr[IntAttr]])
    indices = attr_def(ArrayAttr[ExprAttr])

    def __init__(self, source: SSAValue, target: SSAValue, elements: int, picks: Picks):
        super().__init__(
            operands=[source, target],
            attributes={
                "elements": integer(elements),
                "choices": _choices(picks),
                "indices": exprs([index for _, index in picks]),
            },
        )

    def verify_(self) -> None:
        source, target = registers_of(self.source), registers_of(self.target)
        if self.source == self.target or source.dtype != target.dtype:
            raise VerifyException("a select moves registers of one type to another buffer")
        if len(self.choices) * self.elements.data != target.count.data:
            raise VerifyException(f"{len(self.choices)} picks for {target.count.data} registers")
        _check("a select", self.choices, self.indices, source.count.data - self.elements.data + 1)


@irdl_op_definition
class Exchange(TransportOp):
    """Rounds of lane shuffles, then a select among what they brought.

    In round k every lane sends the group ``send_k`` of ``source`` and receives into ``temporary[k]`` what lane
    ``lanes[k]`` (an expression of ``tid``) of its warp sends; a round whose lane is ``tid % 32`` stays where it is.
    Then ``target[i * elements + e] = temporary[taken_i][e]``.
    """

    name = "transport.exchange"
    source = operand_def(RegistersType)
    target = operand_def(RegistersType)
    elements = attr_def(IntAttr)
    sends = attr_def(ArrayAttr[ArrayAttr[IntAttr]])
    send_indices = attr_def(ArrayAttr[ExprAttr])
    lanes = attr_def(ArrayAttr[ExprAttr])
    taken = attr_def(ArrayAttr[ArrayAttr[IntAttr]])
    taken_indices = attr_def(ArrayAttr[ExprAttr])

    def __init__(
        self, source: SSAValue, target: SSAValue, elements: int, sends: Picks, lanes: Sequence[Expr], results: Picks
    ):
        super().__init__(
            operands=[source, target],
            attributes={
                "elements": integer(elements),
                "sends": _choices(sends),
                "send_indices": exprs([index for _, index in sends]),
                "lanes": exprs(lanes),
                "taken": _choices(results),
                "taken_indices": exprs([index for _, index in results]),
            },
        )

    def verify_(self) -> None:
        source, target = registers_of(self.source), registers_of(self.target)
        if self.source == self.target or source.dtype != target.dtype:
            raise VerifyException("an exchange moves registers of one type to another buffer")
        if len(self.taken) * self.elements.data != target.count.data or len(self.lanes) != len(self.sends):
            raise VerifyException("an exchange has a lane for every round and a result for every register")
        _check("a round", self.sends, self.send_indices, source.count.data - self.elements.data + 1)
        _check("a result", self.taken, self.taken_indices, len(self.sends))


@irdl_op_definition
class WarpBarrier(TransportOp):
    """A barrier of the threads of each warp; shared accesses of the warp before it are visible to the warp after it."""

    name = "transport.warp_barrier"

    def __init__(self) -> None:
        super().__init__()


OPS = [RegisterSelect, Exchange, WarpBarrier]
