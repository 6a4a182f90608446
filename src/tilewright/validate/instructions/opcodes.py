"""Every opcode of PTX that is evaluated, and what does it."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ptx.syntax import Instruction
from tilewright.validate.instructions import conversions, copies, matrices, memory, numbers, threads
from tilewright.validate.instructions.evaluate import Instructions

OPCODES: dict[str, Callable[[Instructions, Instruction], None]] = {
    **numbers.OPCODES,
    **conversions.OPCODES,
    **memory.OPCODES,
    **threads.OPCODES,
    **copies.OPCODES,
    **matrices.OPCODES,
}
PURE = frozenset((*numbers.OPCODES, *conversions.OPCODES, "mapa", "createpolicy"))
"""Instructions that only compute registers from registers."""
