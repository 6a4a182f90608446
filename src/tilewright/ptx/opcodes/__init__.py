"""The opcode table: which operands each instruction reads and writes, and what it computes, as one table of rows.

``find`` looks an opcode up; ``reads`` and ``writes`` name the registers of an instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tilewright.ptx.opcodes import conversions, effects, floats, integers
from tilewright.ptx.opcodes.rows import Bits, Form, Function, OpcodeKind, Row
from tilewright.ptx.syntax import Address, CallArguments, Instruction, Negated, Operand, Pair, Register, Vector

__all__ = ["TABLE", "Bits", "Form", "Function", "OpcodeKind", "Row", "find", "reads", "registers", "writes"]

TABLE: tuple[Row, ...] = (*integers.ROWS, *floats.ROWS, *conversions.ROWS, *effects.ROWS)
"""Every row."""
CARRY = "%cc"
"""The carry flag, under the name of a register."""

_BY_OPCODE: dict[str, list[Row]] = {}
for _row in TABLE:
    _BY_OPCODE.setdefault(_row.opcode, []).append(_row)


@lru_cache(maxsize=4096)
def find(opcode: str, modifiers: tuple[str, ...]) -> Form | None:
    """The form of an opcode; None for one that the table lacks."""
    for row in _BY_OPCODE.get(opcode, ()):
        chosen = row.match(modifiers)
        if chosen is not None:
            return Form(row, chosen)
    return None


def reads(instruction: Instruction) -> tuple[str, ...]:
    """The registers that an instruction reads, its guard first; not what a guarded write leaves as it was."""
    guard = (instruction.guard.register,) if instruction.guard else ()
    found = [r for access, o in _accessed(instruction) for r in _registers_read(access, o)]
    return (*guard, *found, *_flag(instruction, "c"))


def writes(instruction: Instruction) -> tuple[str, ...]:
    """The registers that an instruction writes (perhaps, where it is guarded)."""
    found = [
        r for access, o in _accessed(instruction) if access in "wu" and not isinstance(o, Address) for r in registers(o)
    ]
    return (*found, *_flag(instruction, "k"))


def _accessed(instruction: Instruction) -> Iterator[tuple[str, Operand]]:
    """Each operand with its role. An opcode that the table lacks may read all it names, and write its first operand."""
    operands = instruction.operands
    if instruction.opcode == "call":
        results = len(operands) > 1 and isinstance(operands[0], CallArguments)
        yield from (("w" if results and i == 0 else "r", o) for i, o in enumerate(operands))
        return
    form = find(instruction.opcode, instruction.modifiers)
    if form is None:
        yield from (("u" if i == 0 else "r", o) for i, o in enumerate(operands))
        return
    yield from zip(form.accesses, operands, strict=False)


def _registers_read(access: str, operand: Operand) -> tuple[str, ...]:
    return registers(operand) if access != "w" or isinstance(operand, Address) else ()


def registers(operand: Operand) -> tuple[str, ...]:
    """The registers in an operand, in their order."""
    match operand:
        case Register(name):
            return (name,)
        case Negated(register):
            return (register.name,)
        case Vector(items) | CallArguments(items):
            return tuple(r for item in items for r in registers(item))
        case Pair(first, second):
            return (*registers(first), *registers(second))
        case Address(base, _, rest):
            return (*registers(base), *(r for item in rest for r in registers(item)))
        case _:
            return ()


def _flag(instruction: Instruction, letter: str) -> tuple[str, ...]:
    form = find(instruction.opcode, instruction.modifiers)
    return (CARRY,) if form is not None and letter in form.accesses else ()
