"""Bank conflicts of a lowered kernel's shared memory accesses, for the plan.

Addresses are read from Transport IR; the bank model is that of ``layout.banks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import TRUE, Expr
from tilewright.hw.banks import BANK_BYTES, BankAccess, phase_cycles
from tilewright.layout.banks import instruction
from tilewright.layout.register import LANES
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

SAMPLE = 4
"""Vectors of an access whose addresses are evaluated; the others differ from them by constants."""


@dataclass(frozen=True)
class SharedUse:
    """One kind of access to a shared buffer, by the first warp: ``degree`` is the largest number of words that one bank
    serves in a phase (1: no conflicts)."""

    buffer: str
    op: str
    degree: int
    note: str

    def __str__(self) -> str:
        word = "free of conflicts" if self.degree == 1 else f"{self.degree} words of a bank at once"
        return f"shared {self.buffer}: {self.op}{f' ({self.note})' if self.note else ''} {word}"


def shared_uses(kernel: t.Kernel, target: str) -> tuple[SharedUse, ...]:
    """Every distinct access of the kernel, in order."""
    found: dict[SharedUse, None] = {}
    seen: set[tuple[SSAValue, Expr, Expr, str]] = set()
    for op in kernel.walk():
        if not isinstance(op, t.SharedWrite | t.SharedRead | a.MatrixAccess | a.CopyOut):
            continue
        name = _instruction(op)
        guard = (
            TRUE if isinstance(op, a.MatrixAccess) else op.active.expr if isinstance(op, a.CopyOut) else op.guard.expr
        )
        key = (op.shared, op.offset.expr, guard, name)
        if key in seen:
            continue
        seen.add(key)
        degrees = list(_degrees(op, instruction(target, name), guard))
        if degrees:
            note = op.note.data if op.note is not None else ""
            found[SharedUse(_hint(op.shared), name, max(degrees), note)] = None
    return tuple(found)


def _instruction(op: t.SharedWrite | t.SharedRead | a.MatrixAccess | a.CopyOut) -> str:
    if isinstance(op, a.MatrixAccess):
        return f"{'ld' if isinstance(op, a.LoadMatrix) else 'st'}matrix.x{op.matrices.data}"
    if isinstance(op, a.CopyOut):
        return f"ld.shared.b{8 * max(BANK_BYTES, op.copy_bytes)}"
    size = t.shared_of(op.shared).dtype.dtype.bytes * op.vector.data
    return f"{'ld' if isinstance(op, t.SharedRead) else 'st'}.shared.b{8 * max(BANK_BYTES, size)}"


def _degrees(
    op: t.SharedWrite | t.SharedRead | a.MatrixAccess | a.CopyOut, access: BankAccess, guard: Expr
) -> Iterator[int]:
    """The conflict degrees of some of the op's instructions."""
    registers: range = range(1)
    scale = 1
    if isinstance(op, t.SharedWrite | t.SharedRead):
        registers = range(0, t.registers_of(op.buffer).count.data, op.vector.data)
        scale = t.shared_of(op.shared).dtype.dtype.bytes
    elif isinstance(op, a.CopyOut):
        registers = range(op.count.data)
    for register in registers[:: -(-len(registers) // SAMPLE)]:
        degree = _degree(op.offset.expr * scale, guard, register, access)
        if degree is not None:
            yield degree


@lru_cache(maxsize=1 << 10)  # the variants of a kernel write and read the same panels
def _degree(offset: Expr, guard: Expr, register: int, access: BankAccess) -> int | None:
    """The conflict degree of one instruction; lanes whose guard is false are idle; None if all are."""
    others = dict.fromkeys(offset.symbols | guard.symbols, 0)
    places = [others | {t.THREAD: lane, t.REGISTER: register} for lane in range(LANES)]
    addresses = {lane: offset.evaluate(at) for lane, at in enumerate(places) if guard.evaluate(at)}
    groups = ([addresses[lane] for lane in group if lane in addresses] for group in access.groups or ())
    return max((phase_cycles(group, access.bytes_per_lane, access.banks) for group in groups if group), default=None)


def _hint(value: SSAValue) -> str:
    owner = value.owner
    return owner.hint.data if isinstance(owner, Operation) and isinstance(owner, t.Shared) else "buffer"
