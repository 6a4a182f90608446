"""Operands that threads read from the stage of a copy, convert, and write where products read them: from which
byte of the stage each element comes, and which elements become zeros.

Read from the lowered ops before a product, at every thread and register: one read of the stage, one map that casts each
register of it, perhaps to 0 where a comparison says so, and one write of all registers. That the bytes of the stage are
the tile's is compared in `copies`, as for any product that reads them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import TRUE, Compare, Const, Expr, Sym
from tilewright.compiler.proofs.epilogue_copies import CopyMismatchError, place_of
from tilewright.compiler.proofs.operand_domains import Ragged, whole_steps
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_before
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import Ints, values_at


def converted_side(side: str) -> str:
    """The reader's name for a side of a product whose tile is converted first."""
    return f"{side}, converted"


@dataclass(frozen=True)
class Conversion:
    """``read`` brings element (mn, k) from byte ``bytes[mn, k]`` behind byte ``begin`` of the stage; where ``zeros`` is
    false of a register's thread and number, the element is 0. ``k`` of every register of every thread."""

    read: t.SharedRead
    begin: Expr
    bytes: Ints
    zeros: Expr
    k: Ints
    at: dict[str, Ints]


def conversion(product: a.Wgmma, side: str, swizzled: Ints, size: int) -> Conversion | None:
    """How a product's operand was converted; None if it was made otherwise. ``swizzled`` has the byte of every (mn, k)
    of the operand's tile, in elements of ``size`` bytes. ``CopyMismatchError``: elements missing or written twice."""
    buffer = product.a if side == "a" else product.b
    write = next((op for op in ops_before(product) if isinstance(op, t.SharedWrite) and op.shared is buffer), None)
    cast = None if write is None else _map_before(write)
    read = None if cast is None else _read_before(cast)
    if write is None or cast is None or read is None:
        return None
    where = f"operand {side} of {place_of(product)}"
    zeros = _cast(cast)
    if zeros is None:
        raise CopyMismatchError(f"{where}: something else than a conversion of what its stage holds")
    threads, count = a.warpgroups_of(write) * a.WARPGROUP_THREADS, t.registers_of(write.buffer).count.data
    thread, register = (x.ravel() for x in np.indices((threads, count)))
    at = {t.THREAD: thread, t.REGISTER: register}
    begin = read.offset.expr.substitute({t.THREAD: Const(0), t.REGISTER: Const(0)})
    inside = read.offset.expr - begin
    if (write.guard.expr, read.guard.expr) != (
        TRUE,
        TRUE,
    ) or not inside.symbols | write.offset.expr.symbols <= at.keys():
        raise CopyMismatchError(f"{where}: elements by more than the thread")
    table = np.full(int(swizzled.max()) // size + 1, -1)
    table[swizzled.ravel() // size] = np.arange(swizzled.size)
    offsets = values_at(write.offset.expr, at)
    if (
        offsets.min() < 0
        or offsets.max() >= len(table)
        or not np.array_equal(np.sort(table[offsets]), np.arange(swizzled.size))
    ):
        raise CopyMismatchError(f"{where}: not every element of its tile is written once")
    for access in (write, read):
        _whole_vectors(access, at, where)
    unit = t.shared_of(read.shared).dtype.dtype.bytes
    found = np.full(swizzled.size, -1)
    found[table[offsets]] = values_at(inside, at) * unit
    k = table[offsets] % swizzled.shape[1]
    return Conversion(read, begin * unit, found.reshape(swizzled.shape), zeros, k, at)


def excludes(found: Conversion, product: a.Wgmma, ragged: Ragged) -> bool:
    """Elements outside of the domain along k are zeros, or there are none in the step."""
    if whole_steps(product, ragged):
        return True
    test = found.zeros
    step = None if ragged.stream is None else Sym(ragged.stream.counter.data)
    if not isinstance(test, Compare) or test.op != "<" or test.rhs != ragged.stop(step):
        return False
    row = test.lhs - ragged.begin(step)
    return row.symbols <= found.at.keys() and bool((values_at(row, found.at) == found.k).all())


def _whole_vectors(op: t.SharedRead | t.SharedWrite, at: dict[str, Ints], where: str) -> None:
    """The offsets of a vector's registers are consecutive: one access has them all."""
    width = op.vector.data
    offsets = values_at(op.offset.expr, at if isinstance(op, t.SharedWrite) else at | _steady(op))
    together = offsets.reshape(-1, width)
    if (together - together[:, :1] != np.arange(width)).any():
        raise CopyMismatchError(f"{where}: a vector at {place_of(op)} of elements that are not consecutive")


def _steady(op: t.SharedRead) -> dict[str, Ints]:
    """Arbitrary values for the symbols that the stage's offset depends on."""
    return {name: np.zeros(1, np.int64) for name in op.offset.expr.symbols - {t.THREAD, t.REGISTER}}


def _map_before(write: t.SharedWrite) -> t.Map | None:
    """The map that made the written registers, with nothing between that changes them."""
    op = next((op for op in ops_before(write) if write.buffer in op.operands), None)
    return op if isinstance(op, t.Map) and list(op.outputs) == [write.buffer] and op.parent is write.parent else None


def _read_before(cast: t.Map) -> t.SharedRead | None:
    """The read of a stage's registers that a map casts, one by one."""
    inputs: Sequence[SSAValue] = tuple(cast.inputs)
    if len(inputs) != 1 or [r.expr for r in cast.reads] != [Sym(t.REGISTER)] or cast.live.expr != TRUE:
        return None
    op: Operation | None = next((op for op in ops_before(cast) if inputs[0] in op.operands), None)
    if not isinstance(op, t.SharedRead) or op.parent is not cast.parent:
        return None
    return op if any(isinstance(use.operation, a.TmaLoad | a.CpAsync) for use in op.shared.uses) else None


def _cast(cast: t.Map) -> Expr | None:
    """When a map's result is the converted register, and not 0; None where it is something else."""
    *_, end = cast.body.block.ops
    (result,) = end.operands
    condition: Expr = TRUE
    if isinstance(result.owner, tile.Select):
        chosen = result.owner
        test, other = chosen.cond.owner, chosen.b.owner
        if not isinstance(test, t.Predicate) or not isinstance(other, tile.Constant) or other.value.data != 0:
            return None
        condition, result = test.expr.expr, chosen.a
    made = result.owner
    return condition if isinstance(made, tile.Cast) and made.x in cast.body.block.args else None
