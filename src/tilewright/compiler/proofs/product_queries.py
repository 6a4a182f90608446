"""Queries about products of the tile program, implemented independently of the schedule."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from tilewright.lang.axes import Span
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of


def loaded_operand(operand: SSAValue) -> tuple[tile.Load, tuple[int, int]] | None:
    """The load of an operand, through transposes and casts, with the tensor axes of the operand's axes 0 and 1."""
    labels = [0, 1]
    op = operand.owner
    while isinstance(op, tile.Transpose | tile.Cast):
        if isinstance(op, tile.Transpose):
            below = [0] * len(labels)
            for label, source in zip(labels, op.perm, strict=True):
                below[source.data] = label
            labels = below
        op = op.x.owner
    if not isinstance(op, tile.Load):
        return None
    spans = [axis for axis, coord in enumerate(coords_of(op)) if isinstance(coord, Span)]
    return op, (spans[labels.index(0)], spans[labels.index(1)])


def casts_before(operand: SSAValue) -> int:
    """The number of casts between an operand and its load."""
    casts, op = 0, operand.owner
    while isinstance(op, tile.Transpose | tile.Cast):
        casts += isinstance(op, tile.Cast)
        op = op.x.owner
    return casts


def added_in_place(dot: tile.Dot) -> bool:
    """Whether a result is used by ``f += dot`` in the same block alone, and no other fragment is written in between:
    then the product may accumulate in the registers of ``f``."""
    block = dot.parent_block()
    if not isinstance(block, Block) or dot.promoted is not None:
        return False
    ops = list(block.ops)
    place = {op: i for i, op in enumerate(ops)}
    write = _next_write(ops, place[dot])
    if write is None or not isinstance(write.value.owner, tile.Binary) or write.value.owner.fn.data.value != "add":
        return False
    total = write.value.owner
    terms = [term for term in total.operands if term is not dot.result]
    if len(terms) != 1 or not all(_used_once(x) for x in (dot.result, terms[0], total.results[0])):
        return False
    read = terms[0].owner
    if not isinstance(read, tile.FragmentRead) or read.frag is not write.frag or read not in place:
        return False
    return place[read] > place[dot] or _next_write(ops, place[read]) is write


def _next_write(ops: list[Operation], after: int) -> tile.FragmentWrite | None:
    """The next op that may write a fragment, if it is no stream."""
    found = next((op for op in ops[after + 1 :] if isinstance(op, tile.FragmentWrite | tile.StreamLoop)), None)
    return found if isinstance(found, tile.FragmentWrite) else None


def _used_once(value: SSAValue) -> bool:
    return len(list(value.uses)) == 1
