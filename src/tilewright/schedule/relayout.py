"""Values that one program needs in two register layouts, such as ``x[:, None] * x[None, :]``.

No layout serves both: the axes of the result would belong to one class, and only its diagonal would be computed. A
``Relayout`` is inserted where the classes would be merged: a layout conversion through shared memory.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from tilewright.schedule.classes import Classes, classify
from tilewright.tile import dialect as tile


@irdl_op_definition
class Relayout(tile.TileOp):
    """Converts the operand to a register layout of its own."""

    name = "schedule.relayout"
    x = operand_def(tile.TileType)
    result = result_def(tile.TileType)

    def __init__(self, x: SSAValue):
        super().__init__(operands=[x], result_types=[x.type])


def classified(kernel: tile.Kernel) -> tuple[tile.Kernel, Classes]:
    """The kernel, or a copy with relayouts in which every operand has one layout, with its classes of axes."""
    classes = classify(kernel)
    if not classes.converts:
        return kernel, classes
    copy = kernel.clone()
    while (classes := classify(copy)).converts:
        op, index = min(classes.converts, key=lambda c: (_place(copy, c[0]), c[1]))
        before = op.operands[index]
        op.operands[index] = _renewed(before)
        assert op.operands[index] != before
    return copy, classes


def _place(kernel: tile.Kernel, op: Operation) -> int:
    """Position of an op in the program."""
    return next(i for i, other in enumerate(kernel.walk()) if other is op)


def _renewed(value: SSAValue) -> SSAValue:
    """The same elements with axes in classes of their own.

    Broadcasts are redone on their operand, which has fewer elements; indices and constants are recomputed.
    """
    op = value.owner
    assert isinstance(op, Operation)
    match op:
        case tile.Index() | tile.Constant() | tile.ScalarExpr():
            again = op.clone()
            _block(op).insert_op_after(again, op)
            return again.results[0]
        case tile.Expand() | tile.Broadcast():
            again = op.clone({op.operands[0]: _renewed(op.operands[0])})
            _block(op).insert_op_after(again, op)
            return again.results[0]
        case _:
            moved = Relayout(value)
            _block(op).insert_op_after(moved, op)
            return moved.result


def _block(op: Operation) -> Block:
    block = op.parent_block()
    assert block is not None
    return block
