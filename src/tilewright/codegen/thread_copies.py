"""Emits cooperative tile copies by threads (cp.async and stores), in and out, advancing one address from copy to copy.

The copies of a tile run inside the loop over its stream, and most of their operands are loop-invariant. NVRTC would
hoist the address and the predicate of every copy into its own registers (656 bytes spilled for 48 copies), so the
running address and the row counter are made opaque to it: each can only be computed from the previous one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from math import gcd

from tilewright.base.expr import Compare, Const, Expr, Interval, Sym, maximum, minimum, simplify
from tilewright.codegen.elements import ElementWriter
from tilewright.codegen.shared_addresses import SharedAddresses
from tilewright.codegen.storage import Storage
from tilewright.tile.indirect import index_symbol
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

FROM, STEP, ROWS, BYTES, HELD = "copy_from", "copy_step", "copy_rows", "copy_bytes", "copied"
LOADS_TOGETHER = 32
"""The most elements that a thread holds between its loads and its stores."""
OUT_TOGETHER = 8
"""The most registers used by copies out of shared memory: what accumulators of 208 columns leave."""
_COPY = Sym(t.REGISTER)
_FIRST = {t.REGISTER: Const(0)}


class CopyWriter:
    """The code that all copy emitters share: the running address and the guard."""

    def __init__(self, emitter: ElementWriter, addresses: SharedAddresses, op: a.ThreadCopies | a.CopyOut):
        self.emitter, self.addresses, self.copies = emitter, addresses, op
        copies: dict[str, Interval] = {t.REGISTER: (0, op.count.data - 1)}
        self.coords = [simplify(c.expr, copies) for c in op.coords]
        self.inside = simplify(op.guard.expr, copies)
        self.symbol = self.emitter.symbols[op.tensor]
        self.memory = Storage(t.shared_of(op.shared).dtype.dtype, 1).memory
        steps = [_step(c) for c in self.coords]
        self.steps = [s for s in steps if s is not None]
        self.walks = op.count.data > 1 and len(self.steps) == len(steps) and not op.indices
        """Coordinates advance by constants from copy to copy."""

    def begin(self) -> None:
        """Declares the address of the first copy and the step from each to the next."""
        if not self.walks:
            return
        e = self.emitter
        const = "const " if isinstance(self.copies, a.ThreadCopies) else ""
        source = e.address(self.copies.tensor, [c.substitute(_FIRST) for c in self.coords], self.symbol, inside=False)
        e.line(f"{const}{self.memory}* {FROM} = {source};")
        advance: Expr = Const(0)
        for axis, s in enumerate(self.steps):
            advance = advance + e.constants.get(f"{self.symbol}.stride{axis}", Sym(f"{self.symbol}.stride{axis}")) * s
        e.line(f"const auto {STEP} = {e.c(advance) if e.kernel.index_bits.data == 64 else e.c_int(advance)};")

    def guard(self) -> str:
        """The guard of copy ``r``; empty if it always holds. Rows that are left are counted."""
        e, guard = self.emitter, self.inside
        if e.holds(guard):
            return ""
        rows = _rows(guard) if self.walks else None
        if rows is None:
            return e.c(guard)
        e.line(f"int {ROWS} = {e.c(rows[0])};")
        e.line(f"opaque({ROWS});")
        return f"{ROWS} > r*{rows[1]}"

    def advance(self) -> None:
        """The address of the next copy."""
        if self.walks:
            self.emitter.line(f"{FROM} += {STEP};")
            self.emitter.line(f"opaque({FROM});")

    def rounds(self, kind: str, together: int) -> Iterator[tuple[bool, str]]:
        """Some copies at a time, their loads and then, told by True, their stores: no load waits for the store before.
        With the name of what holds copy ``r`` in between, of C type ``kind``."""
        e = self.emitter
        e.line(f"{kind} {HELD}[{together}];")
        with e.unrolled("b", self.copies.count.data // together) as block:
            for store in (False, True):
                with e.unrolled("v", together) as step:
                    e.line(f"const int r = {e.c(block * together + step)};")
                    yield store, f"{HELD}[{e.c(step)}]"

    @property
    def place(self) -> str:
        """The address of copy ``r``."""
        return FROM if self.walks else self.emitter.address(self.copies.tensor, self.coords, self.symbol, inside=False)

    @property
    def left(self) -> Expr:
        """Elements from the first of copy ``r`` to the end of the domain."""
        return self.copies.stop.expr - self.coords[self.copies.axis.data]


class ThreadCopyWriter(CopyWriter):
    """Writes the copies of one op. Of a copy that leaves the domain fewer bytes are read, and the rest are zeros; an
    address from which nothing is read may be any."""

    def __init__(self, emitter: ElementWriter, addresses: SharedAddresses, op: a.ThreadCopies):
        super().__init__(emitter, addresses, op)
        self.op = op

    def write(self) -> None:
        e, count = self.emitter, self.op.count.data
        e.comment(self.op)
        indices: dict[str, Interval] = {
            index_symbol(k): t.registers_of(index).dtype.dtype.integers for k, index in enumerate(self.op.indices)
        }
        with e.braces(""), e.binding({t.REGISTER: (0, count - 1), **indices}):
            self.begin()
            read = self.read()
            if isinstance(self.op, a.CpAsync):
                with e.registers(count):
                    e.index_elements(self.op, _COPY)
                    self.copy(read)
                    self.advance()
            else:
                self.load_and_store(read)

    def read(self) -> str:
        """The number of bytes that copy ``r`` reads; subexpressions that all copies share are declared first."""
        whole = self.bytes()
        if self.walks and t.REGISTER not in self.left.symbols:
            self.emitter.line(f"const int {BYTES} = {whole};")
            whole = BYTES
        guard = self.guard()
        return f"{guard} ? {whole} : 0" if guard else whole

    @property
    def condition(self) -> str:
        """The condition of a copy that only some threads make."""
        active = self.op.active.expr
        return "" if self.emitter.holds(active) else f"if ({self.emitter.c(active)}) "

    def copy(self, read: str) -> None:
        """cp.async of copy ``r``."""
        op = self.op
        to = self.addresses.address(op.shared, op.offset.expr)
        self.emitter.line(f"{self.condition}cp_async_{op.copy_bytes}({to}, {self.place}, {read});")

    def load_and_store(self, read: str) -> None:
        """Loads of single elements and stores to shared memory."""
        e, op = self.emitter, self.op
        for store, held in self.rounds(self.memory, gcd(op.count.data, LOADS_TOGETHER)):
            if store:
                to = self.addresses.pointer(op.shared, op.offset.expr)
                e.line(f"{self.condition}*reinterpret_cast<{self.memory}*>({to}) = {held};")
            else:
                e.line(f"{held} = 0;")
                e.line(f"{self.condition}if ({read}) {held} = *({self.place});")
                self.advance()

    def bytes(self) -> str:
        """The bytes that lie before the end of the domain."""
        e, op = self.emitter, self.op
        left, vector = self.left, op.vector.data
        if e.holds(left >= vector):
            return str(op.copy_bytes)
        return e.c(maximum(minimum(left, vector), 0) * (op.copy_bytes // vector))


class CopyOutWriter(CopyWriter):
    """Writes copies from shared memory to a tensor. A vector that leaves the domain is stored element by element."""

    def __init__(self, emitter: ElementWriter, addresses: SharedAddresses, op: a.CopyOut):
        super().__init__(emitter, addresses, op)
        self.op = op
        self.storage = Storage(t.shared_of(op.shared).dtype.dtype, op.vector.data)

    def write(self) -> None:
        e, op, count = self.emitter, self.op, self.op.count.data
        words = max(1, op.copy_bytes // 4)
        e.comment(op)
        with e.braces(""), e.binding({t.REGISTER: (0, count - 1)}):
            self.begin()
            guard, vector = self.guard(), self.storage.vector
            for store, held in self.rounds(vector, gcd(count, OUT_TOGETHER // words)):
                if not store:
                    at = self.addresses.pointer(op.shared, op.offset.expr)
                    e.line(f"{held} = *reinterpret_cast<const {vector}*>({at});")
                    continue
                with e.braces(f"if ({guard})" if guard else ""):
                    self.store(held)
                self.advance()

    def store(self, held: str) -> None:
        """Stores copy ``r``, as far as it lies in the domain."""
        e, width = self.emitter, self.op.vector.data
        e.line(f"{self.memory}* at = {self.place};")
        whole = f"*reinterpret_cast<{self.storage.vector}*>(at) = {held};"
        if e.holds(self.left >= width):
            e.line(whole)
            return
        e.line(f"if ({e.c(self.left >= width)}) {whole}")
        with e.braces("else") if width > 1 else nullcontext():
            for k in range(width if width > 1 else 0):
                e.line(f"if ({e.c(self.left > k)}) at[{k}] = {self.storage.element(held, k)};")


def _step(coord: Expr) -> int | None:
    """The constant by which a coordinate advances from copy to copy, if there is one."""
    return simplify(coord.substitute({t.REGISTER: _COPY + 1}) - coord, {}).constant


def _rows(guard: Expr) -> tuple[Expr, int] | None:
    """A guard as a number of rows that are left at the first copy, and how many each takes."""
    if not isinstance(guard, Compare) or guard.op != "<":
        return None
    left = guard.rhs - guard.lhs
    step = _step(left)
    return None if step is None or step >= 0 else (left.substitute(_FIRST), -step)
