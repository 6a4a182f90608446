"""cp.async as CUDA C++: one instruction for each copy of a thread, its address one step after the one before.

The copies of a tile stand in the loop over its stream, and most of what they need does not change there. A compiler
that sees this keeps the address and the predicate of every copy in registers of its own (656 bytes spilled for 48
copies), so the running address and the count of rows are made opaque: the next can only follow from the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.base.expr import Compare, Const, Expr, Sym, maximum, minimum, simplify
from tilewright.codegen.storage import Storage
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.codegen.hopper import HopperEmitter

FROM, STEP, ROWS, BYTES = "copy_from", "copy_step", "copy_rows", "copy_bytes"
_COPY = Sym(t.REGISTER)
_FIRST = {t.REGISTER: Const(0)}


class ThreadCopies:
    """Writes the copies of one op. Of a copy that leaves the domain fewer bytes are read, and the rest are zeros; an
    address from which nothing is read may be any."""

    def __init__(self, hopper: HopperEmitter, op: a.CpAsync):
        self.hopper, self.emitter, self.op = hopper, hopper.emitter, op
        self.coords = [c.expr for c in op.coords]
        self.symbol = self.emitter.symbols[op.tensor]

    def write(self) -> None:
        e, count = self.emitter, self.op.count.data
        e.comment(self.op)
        steps = [_step(c) for c in self.coords]
        with e.braces(""), e.binding({t.REGISTER: (0, count - 1)}):
            if count > 1 and None not in steps:
                self.walk([s or 0 for s in steps])
                return
            with e.registers(count):
                source = e.address(self.op.tensor, self.coords, self.symbol)
                self.copy(source, self.guarded(e.c(self.op.guard.expr), self.bytes()))

    def walk(self, steps: Sequence[int]) -> None:
        """Coordinates advance by ``steps`` from copy to copy."""
        e, op = self.emitter, self.op
        source = e.address(op.tensor, [c.substitute(_FIRST) for c in self.coords], self.symbol)
        advance: Expr = Const(0)
        for axis, s in enumerate(steps):
            advance = advance + e.constants.get(f"{self.symbol}.stride{axis}", Sym(f"{self.symbol}.stride{axis}")) * s
        e.line(f"const {Storage(t.shared_of(op.shared).dtype.dtype, 1).memory}* {FROM} = {source};")
        e.line(f"const auto {STEP} = {e.c(advance)};")
        whole = self.bytes()
        if t.REGISTER not in (op.stop.expr - self.coords[op.axis.data]).symbols:
            e.line(f"const int {BYTES} = {whole};")
            whole = BYTES
        guard, per_copy = e.c(op.guard.expr), _rows(op.guard.expr)
        if per_copy is not None and not e.holds(op.guard.expr):
            rows, each = per_copy
            e.line(f"int {ROWS} = {e.c(rows)};")
            e.line(f"opaque({ROWS});")
            guard = f"{ROWS} > r*{each}"
        with e.registers(op.count.data):
            self.copy(FROM, self.guarded(guard, whole))
            e.line(f"{FROM} += {STEP};")
            e.line(f"opaque({FROM});")

    def copy(self, source: str, read: str) -> None:
        """Copy ``r``, of which the first ``read`` bytes are read."""
        e, op = self.emitter, self.op
        to, active = self.hopper.address(op.shared, op.offset.expr), op.active.expr
        condition = "" if e.holds(active) else f"if ({e.c(active)}) "
        e.line(f"{condition}cp_async_{op.copy_bytes}({to}, {source}, {read});")

    def guarded(self, guard: str, read: str) -> str:
        """Nothing is read where ``guard`` is false."""
        return read if self.emitter.holds(self.op.guard.expr) else f"{guard} ? {read} : 0"

    def bytes(self) -> str:
        """The bytes that lie before the end of the domain."""
        e, op = self.emitter, self.op
        left, vector = op.stop.expr - self.coords[op.axis.data], op.vector.data
        if e.holds(left >= vector):
            return str(op.copy_bytes)
        return e.c(maximum(minimum(left, vector), 0) * (op.copy_bytes // vector))


def _step(coord: Expr) -> int | None:
    """By how much a coordinate advances with each copy, if always by as much."""
    return simplify(coord.substitute({t.REGISTER: _COPY + 1}) - coord, {}).constant


def _rows(guard: Expr) -> tuple[Expr, int] | None:
    """A guard as a number of rows that are left at the first copy, and how many each takes."""
    if not isinstance(guard, Compare) or guard.op != "<":
        return None
    left = guard.rhs - guard.lhs
    step = _step(left)
    return None if step is None or step >= 0 else (left.substitute(_FIRST), -step)
