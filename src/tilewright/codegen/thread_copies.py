"""Copies of tiles by threads as CUDA C++, the address of each one step after that of the one before.

The copies of a tile stand in the loop over its stream, and most of what they need does not change there. A compiler
that sees this keeps the address and the predicate of every copy in registers of its own (656 bytes spilled for 48
copies), so the running address and the count of rows are made opaque: the next can only follow from the one before.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tilewright.base.expr import Compare, Const, Expr, Sym, maximum, minimum, simplify
from tilewright.codegen.storage import Storage
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.codegen.hopper import HopperEmitter

FROM, STEP, ROWS, BYTES, HELD = "copy_from", "copy_step", "copy_rows", "copy_bytes", "copied"
LOADS_TOGETHER = 32
"""Elements that a thread holds between their loads and their stores, at most."""
_COPY = Sym(t.REGISTER)
_FIRST = {t.REGISTER: Const(0)}


class ThreadCopyWriter:
    """Writes the copies of one op. Of a copy that leaves the domain fewer bytes are read, and the rest are zeros; an
    address from which nothing is read may be any."""

    def __init__(self, hopper: HopperEmitter, op: a.ThreadCopies):
        self.hopper, self.emitter, self.op = hopper, hopper.emitter, op
        self.coords = [c.expr for c in op.coords]
        self.symbol = self.emitter.symbols[op.tensor]
        self.memory = Storage(t.shared_of(op.shared).dtype.dtype, 1).memory
        steps = [_step(c) for c in self.coords]
        self.steps = [s for s in steps if s is not None]
        self.walks = op.count.data > 1 and len(self.steps) == len(steps)
        """Coordinates advance by constants from copy to copy."""

    def write(self) -> None:
        e, count = self.emitter, self.op.count.data
        e.comment(self.op)
        with e.braces(""), e.binding({t.REGISTER: (0, count - 1)}):
            read = self.begin()
            if isinstance(self.op, a.CpAsync):
                with e.registers(count):
                    self.copy(read)
                    self.advance()
            else:
                self.load_and_store(read)

    def begin(self) -> str:
        """Declares what copies have in common; returns how many bytes copy ``r`` reads."""
        e, op = self.emitter, self.op
        if not self.walks:
            return self.guarded(e.c(op.guard.expr), self.bytes())
        source = e.address(op.tensor, [c.substitute(_FIRST) for c in self.coords], self.symbol)
        e.line(f"const {self.memory}* {FROM} = {source};")
        advance: Expr = Const(0)
        for axis, s in enumerate(self.steps):
            advance = advance + e.constants.get(f"{self.symbol}.stride{axis}", Sym(f"{self.symbol}.stride{axis}")) * s
        e.line(f"const auto {STEP} = {e.c(advance)};")
        whole = self.bytes()
        if t.REGISTER not in (op.stop.expr - self.coords[op.axis.data]).symbols:
            e.line(f"const int {BYTES} = {whole};")
            whole = BYTES
        guard, rows = e.c(op.guard.expr), _rows(op.guard.expr)
        if rows is not None and not e.holds(op.guard.expr):
            e.line(f"int {ROWS} = {e.c(rows[0])};")
            e.line(f"opaque({ROWS});")
            guard = f"{ROWS} > r*{rows[1]}"
        return self.guarded(guard, whole)

    def advance(self) -> None:
        """The address of the next copy."""
        if self.walks:
            self.emitter.line(f"{FROM} += {STEP};")
            self.emitter.line(f"opaque({FROM});")

    @property
    def source(self) -> str:
        """The address of copy ``r``."""
        return FROM if self.walks else self.emitter.address(self.op.tensor, self.coords, self.symbol)

    @property
    def condition(self) -> str:
        """What stands before a copy that not every thread makes."""
        active = self.op.active.expr
        return "" if self.emitter.holds(active) else f"if ({self.emitter.c(active)}) "

    def copy(self, read: str) -> None:
        """cp.async of copy ``r``."""
        op = self.op
        to = self.hopper.address(op.shared, op.offset.expr)
        self.emitter.line(f"{self.condition}cp_async_{op.copy_bytes}({to}, {self.source}, {read});")

    def load_and_store(self, read: str) -> None:
        """Loads, several at a time, then their stores: no load waits for the one before."""
        e, op, count = self.emitter, self.op, self.op.count.data
        together = gcd(count, LOADS_TOGETHER)
        e.line(f"{self.memory} {HELD}[{together}];")
        with e.unrolled("b", count // together) as block:
            for store in (False, True):
                with e.unrolled("v", together) as step:
                    e.line(f"const int r = {e.c(block * together + step)};")
                    place = f"{HELD}[{e.c(step)}]"
                    if store:
                        to = self.hopper.pointer(op.shared, op.offset.expr)
                        e.line(f"{self.condition}*reinterpret_cast<{self.memory}*>({to}) = {place};")
                        continue
                    e.line(f"{place} = 0;")
                    e.line(f"{self.condition}if ({read}) {place} = *({self.source});")
                    self.advance()

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
