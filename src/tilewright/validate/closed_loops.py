"""Loops of library functions: what such a loop leaves in registers is a function of what it finds there.

A loop whose instructions only compute registers from registers, all without a predicate, does one thing for each value
of the registers that are live where it begins: it runs on for ever, or leaves others. Two such loops of one text, up to
the names of registers and labels, are one function, with one result for equal operands; where one ends so does the
other. Library functions are taken to end for all operands.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ptx.flow import NaturalLoop
from tilewright.ptx.syntax import Immediate, Instruction, Negated, Operand, Register
from tilewright.validate.cases import Condition
from tilewright.validate.instructions.supported import is_read
from tilewright.validate.polynomials import Poly
from tilewright.validate.registers import EntryRegisters
from tilewright.validate.values import Value, Values


@dataclass(frozen=True)
class ClosedLoop:
    """The function that a loop is: its text, the registers that are its operands, and those that it writes, both in
    their order in the text."""

    text: str
    operands: tuple[str, ...]
    results: tuple[str, ...]

    def result(self, values: Values, k: int, width: int, operands: tuple[Value, ...]) -> Value:
        """What the k-th written register, of so many bits, is behind the loop."""

        def of(chosen: list[Poly]) -> Poly:
            return values.apply(width, "closed loop", self.text, k, *chosen)

        return values.choose([(condition, of(chosen)) for condition, chosen in values.together(operands)])


@dataclass(frozen=True)
class LoopCall:
    """A closed loop that runs on some operands where ``entry`` holds; ``where`` is its line."""

    loop: ClosedLoop
    operands: tuple[Value, ...]
    entry: Condition
    where: str


def closed_loop(registers: EntryRegisters, loop: NaturalLoop) -> ClosedLoop | None:
    """The function that a loop of pure instructions with one exit is; None of one that reads anything but registers and
    numbers, or that predicates are handed to or come from."""
    flow, entry = registers.flow, registers.entry
    blocks = [b for b in flow.order if b in loop.blocks]
    number = {b: k for k, b in enumerate(blocks)}
    names: dict[str, str] = {}

    def name(register: str) -> str:
        return names.setdefault(register, f"{entry.registers[register]} {len(names)}")

    def shown(operand: Operand) -> str | None:
        match operand:
            case Register(register):
                return name(register)
            case Negated(Register(register)):
                return f"!{name(register)}"
            case Immediate(bits, kind):
                return f"{kind} {bits}"
            case _:
                return None

    def line(i: Instruction) -> str | None:
        operands = [shown(o) for o in i.operands]
        if i.guard is not None or None in operands:
            return None
        return f"{i.name} {', '.join(o for o in operands if o is not None)}"

    lines: list[str] = []
    behind = set[str]()
    for b in blocks:
        for i in flow.instructions(b):
            if not is_read(i):
                return None
            if i.opcode != "bra":
                text = line(i)
                if text is None:
                    return None
                lines.append(text)
        for edge in flow.blocks[b].out:
            guard = "" if edge.guard is None else f"{'!' * edge.guard.negated}{name(edge.guard.register)} "
            lines.append(f"{guard}-> {number.get(edge.target, 'out')}")
            if edge.target not in number:
                behind |= registers.live[edge.target]
        lines.append("")
    written = {r for b in blocks for i in flow.instructions(b) for r in registers.written[i.index]}
    operands = [r for r in names if r in registers.live[loop.header]]
    results = [r for r in names if r in written]
    if any(entry.registers[r] == "pred" for r in (*operands, *behind.intersection(results))):
        return None
    lines.append(f"of {', '.join(map(name, operands))}")
    return ClosedLoop("\n".join(lines), tuple(operands), tuple(r for r in results if entry.registers[r] != "pred"))
