"""Integers that were loaded and become symbols are the same in all threads: all read one element of shared memory.

Every loop, branch and barrier behind such a symbol rests on it, also where another kernel overwrites the tensor that
the integer came from while this one runs.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.base import verdict
from tilewright.base.expr import TRUE
from tilewright.base.verdict import Proof, Proved, Unknown
from tilewright.compiler.timing import timed
from tilewright.diag import fail
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.transport import dialect as t

UNIFORM = "uniform"
METHOD = "one element"


def bound_in(lowered: t.Kernel) -> list[t.Bind]:
    """The ops that make symbols of what was loaded."""
    return [op for op in operations(lowered) if isinstance(op, t.Bind)]


@timed("prove")
def prove_uniform(lowered: t.Kernel) -> Proof[str]:
    """Whether each symbol's buffer holds one element of shared memory, which all threads have read."""
    binds = bound_in(lowered)
    for op in binds:
        others: list[Operation] = [use.operation for use in op.buffer.uses if use.operation is not op]
        read = others[0] if len(others) == 1 else None
        given = (
            isinstance(read, t.SharedRead)
            and read.parent is op.parent
            and read.is_before_in_block(op)
            and read.guard.expr == TRUE
            and read.offset.expr.constant is not None
        )
        if not given:
            where = op.loc.data if op.loc is not None else "no line"
            return Unknown(UNIFORM, f"{op.symbol.data} at {where}", "one element of shared memory, read by all threads")
    symbols = ", ".join(op.symbol.data for op in binds)
    return Proved((verdict.Obligation(UNIFORM, METHOD, symbols),) if binds else ())


def require_uniform(kernel: tile.Kernel, lowered: t.Kernel) -> tuple[verdict.Obligation, ...]:
    """The obligation of a kernel's loaded bounds; CRT009 if it is not met."""
    answer = prove_uniform(lowered)
    if isinstance(answer, Proved):
        return answer.obligations
    assert isinstance(answer, Unknown)
    fail("CRT009", where=tile.begins_at(kernel), found=answer.reason, required=answer.settle)
