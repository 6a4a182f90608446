"""Where the registers of an entry are written, read and live, before anything is evaluated."""

from __future__ import annotations

from collections import Counter

from tilewright.ptx.flow import Flow, NaturalLoop, graph
from tilewright.ptx.syntax import Address, Entry, Instruction, Negated, Operand, Pair, Register, Vector

_NO_DESTINATION = frozenset(
    ("st", "stmatrix", "red", "cp", "prefetch", "bra", "ret", "exit", "trap", "bar", "barrier", "fence", "membar",
     "setmaxnreg", "wgmma", "griddepcontrol")
)  # fmt: skip


class EntryRegisters:
    """The registers of one entry. ``written`` and ``read`` by instruction, ``readers`` the blocks that read each."""

    def __init__(self, entry: Entry):
        self.entry = entry
        self.flow: Flow = graph(entry)
        self.written = [destinations(i) for i in entry.body]
        self.read = [_sources(i, to) for i, to in zip(entry.body, self.written, strict=True)]
        self.readers: dict[str, set[int]] = {}
        for i in entry.body:
            for r in self.read[i.index]:
                self.readers.setdefault(r, set()).add(self.flow.block_of[i.index])
        self.several = self._several()
        self.live = self._live()
        """Of every block, and of the end, what is read from its beginning on before it is written."""
        self.spins = frozenset(i for i, loop in enumerate(self.flow.loops) if self._spins(loop))
        spinning = (self.flow.loops[loop] for loop in self.spins)
        self.waits = frozenset(
            i.index
            for loop in spinning
            for b in loop.blocks
            for i in self.flow.instructions(b)
            if i.opcode == "mbarrier"
        )
        """The waits of these loops: any other one may return before its phase is over."""

    def _several(self) -> frozenset[str]:
        """Registers whose value depends on the path: those written by several instructions or by a predicated one, and
        those that some path to a reader leaves unwritten."""
        counts = Counter(name for names in self.written for name in names)
        found = {name for name, n in counts.items() if n > 1}
        written: dict[str, int] = {}
        for i in self.entry.body:
            for name in self.written[i.index]:
                written[name] = i.index
                if i.guard is not None:
                    found.add(name)
        for i in self.entry.body:
            found.update(r for r in self.read[i.index] if r in written and not self._before(written[r], i.index))
        return frozenset(found)

    def _before(self, writer: int, reader: int) -> bool:
        """Whether every path to one instruction passes another one."""
        first, second = self.flow.block_of[writer], self.flow.block_of[reader]
        if first not in self.flow.rank or second not in self.flow.rank:  # no way leads there
            return False
        return writer < reader if first == second else self.flow.dominates(first, second)

    def _live(self) -> list[frozenset[str]]:
        """Backwards over the blocks until nothing changes; sets of registers are bits of integers."""
        flow = self.flow
        bit = {name: 1 << k for k, name in enumerate(self.entry.registers)}
        first_read, overwritten = [0] * len(flow.blocks), [0] * len(flow.blocks)
        for block in flow.order:
            for i in flow.instructions(block):
                for r in self.read[i.index]:
                    first_read[block] |= bit.get(r, 0) & ~overwritten[block]
                if i.guard is None:
                    for r in self.written[i.index]:
                        overwritten[block] |= bit.get(r, 0)
        live = [*first_read, 0]
        changed = True
        while changed:
            changed = False
            for block in reversed(flow.order):
                behind = 0
                for edge in flow.blocks[block].out:
                    behind |= live[edge.target]
                new = first_read[block] | (behind & ~overwritten[block])
                changed |= new != live[block]
                live[block] = new
        names = list(bit)
        return [frozenset(names[k] for k in _ones(mask)) for mask in live]

    def _spins(self, loop: NaturalLoop) -> bool:
        """The loop tries one mbarrier until its phase is over: it waits."""
        body = [i for b in loop.blocks for i in self.flow.instructions(b) if i.opcode != "bra"]
        leaving = [e for b in loop.blocks for e in self.flow.blocks[b].out if e.target not in loop.blocks]
        if len(body) != 1 or len(leaving) != 1:
            return False
        (wait,), (edge,) = body, leaving
        over = edge.guard is not None and not edge.guard.negated and self.written[wait.index] == [edge.guard.register]
        tries = wait.opcode == "mbarrier" and wait.modifiers[0] in ("try_wait", "test_wait") and wait.guard is None
        return tries and over and edge.source == self.flow.block_of[wait.index]


def _ones(mask: int) -> list[int]:
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def registers_in(operand: Operand | None) -> list[str]:
    """Names of the registers in an operand."""
    if isinstance(operand, Register):
        return [operand.name]
    match operand:
        case Negated(Register(name)):
            return [name]
        case Vector(items):
            return [r for item in items for r in registers_in(item)]
        case Pair(a, b):
            return [*registers_in(a), *registers_in(b)]
        case Address(base, _, rest):
            return [*registers_in(base), *(r for item in rest for r in registers_in(item))]
        case _:
            return []


def destinations(instruction: Instruction) -> list[str]:
    """Registers that an instruction writes."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode == "wgmma" and modifiers[0] == "mma_async":
        return registers_in(instruction.operands[0])
    if opcode in _NO_DESTINATION or not instruction.operands:
        return []
    if opcode == "mbarrier" and modifiers[0] in ("init", "inval", "complete_tx", "expect_tx"):
        return []
    first = instruction.operands[0]
    return [] if isinstance(first, Address) else registers_in(first)


def _sources(instruction: Instruction, written: list[str]) -> list[str]:
    """Registers that an instruction reads."""
    skip = 1 if written and instruction.opcode != "wgmma" else 0
    found = [r for operand in instruction.operands[skip:] for r in registers_in(operand)]
    return [*found, instruction.guard.register] if instruction.guard is not None else found
