"""Basic blocks cut into segments, each compiled to one Python function of NumPy operations over lanes.

A segment ends where lanes may have to wait for others: at barriers, waits, and warp-synchronous instructions, each of
which is a segment of its own. A pure instruction calls its row's function, any other a handler of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.diag import Location, fail
from tilewright.ptx.flow import Flow, FlowEdge
from tilewright.ptx.opcodes import CARRY, Form, OpcodeKind, find, reads, registers, writes
from tilewright.ptx.opcodes.bit_vectors import UNSIGNED, is_signed, is_type, unsigned, width
from tilewright.ptx.ssa import Ssa
from tilewright.ptx.syntax import (
    Address,
    Identifier,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Special,
    Vector,
)

Code = Callable[..., Any]
_TOGETHER = frozenset((OpcodeKind.WARP, OpcodeKind.MATRIX, OpcodeKind.WGMMA, OpcodeKind.BARRIER))


@dataclass
class CodeSegment:
    """Instructions ``[first, last)``. ``together`` names what lanes wait for before it runs: "", "warp", "warpgroup",
    "barrier" or "wait"; ``next`` is the following segment of the block, else ``edges`` are the successors."""

    first: int
    last: int
    together: str
    edges: tuple[FlowEdge, ...]
    next: int
    condition: str = ""
    run: Code | None = None


def _is_pure(i: Instruction) -> bool:
    form = find(i.opcode, i.modifiers)
    return form is not None and form.row.build is not None


def _packed(i: Instruction) -> tuple[Operand, ...]:
    """The parts that a ``mov`` packs into one register, the lowest first; none if it is another instruction."""
    packs = i.opcode == "mov" and i.guard is None and isinstance(i.operands[-1], Vector)
    return i.operands[-1].items if packs and isinstance(i.operands[-1], Vector) else ()


def _must_be_defined(i: Instruction) -> set[str]:
    """The registers that an instruction passes on to memory, addresses and barriers.

    Values that are only moved (stored to shared memory, exchanged in a warp, accumulated where the scale may be 0)
    count where they arrive.
    """
    form = find(i.opcode, i.modifiers)
    moved = form is not None and form.kind in (OpcodeKind.WARP, OpcodeKind.MATRIX, OpcodeKind.WGMMA)
    moved |= i.opcode == "st" and any(m.startswith("shared") for m in i.modifiers)
    return {r for o in i.operands if isinstance(o, Address) or not moved for r in registers(o)}


def alone(instruction: Instruction) -> str:
    """Why an instruction must be a segment of its own ("" where it need not)."""
    form = find(instruction.opcode, instruction.modifiers)
    if form is None or form.kind not in _TOGETHER:
        return "wait" if instruction.opcode == "mbarrier" and instruction.modifiers[0] == "try_wait" else ""
    if form.kind is OpcodeKind.BARRIER:
        return "warp" if instruction.modifiers[0] == "warp" else "barrier"
    if form.kind is OpcodeKind.WGMMA:
        return "warpgroup" if instruction.modifiers[0] == "mma_async" else ""
    return "" if instruction.opcode == "activemask" else "warp"


def cut(flow: Flow) -> tuple[list[CodeSegment], dict[int, int]]:
    """(the segments in reverse post-order of their blocks, the first segment of each block)."""
    segments: list[CodeSegment] = []
    heads: dict[int, int] = {}
    for block in flow.order:
        heads[block] = len(segments)
        b = flow.blocks[block]
        starts = {b.first}
        for i in range(b.first, b.last):
            if alone(flow.entry.body[i]):
                starts |= {i, i + 1}
        ordered = [*sorted(s for s in starts if s < b.last), b.last]
        for first, last in pairwise(ordered):
            final = last == b.last
            together = alone(flow.entry.body[first]) if last == first + 1 else ""
            segments.append(
                CodeSegment(first, last, together, b.out if final else (), -1 if final else len(segments) + 1)
            )
    return segments, heads


class Compiler:
    """Writes the Python of each segment.

    ``slots`` numbers the registers; ``constants`` holds what the code refers to.
    """

    def __init__(self, ssa: Ssa):
        self.ssa = ssa
        self.entry = ssa.flow.entry
        names = [*self.entry.registers, CARRY]
        self.slots = {name: i for i, name in enumerate(names)}
        self.types = {**self.entry.registers, CARRY: "pred"}
        self.constants: dict[str, Any] = {"np": np, "BODY": self.entry.body}
        self.segments, self.heads = cut(ssa.flow)
        self.suspect = self._perhaps_undefined()

    def _perhaps_undefined(self) -> frozenset[str]:
        """Registers that may hold an undefined value, or one computed from it; they are tracked while the kernel
        runs."""
        found = {n for n, d in enumerate(self.ssa.definitions) if d.undefined}
        depends: dict[int, list[int]] = {}
        for phis in self.ssa.phis.values():
            for phi in phis:
                for _, argument in phi.arguments:
                    depends.setdefault(argument, []).append(phi.result)
        for i in self.entry.body:
            for source in self._sources(i) if _is_pure(i) else ():
                depends.setdefault(source, []).extend(self.ssa.writes[i.index].values())
        pending = list(found)
        while pending:
            for result in depends.get(pending.pop(), ()):
                if result not in found:
                    found.add(result)
                    pending.append(result)
        return frozenset(self.ssa.definitions[n].register for n in found)

    def _sources(self, i: Instruction) -> Iterator[int]:
        """The definitions that an instruction's results depend on: of a pair of registers of which a mask takes one
        away only the other, since NVRTC leaves undefined what is taken away."""
        masks = [o.bits for o in i.operands[1:] if isinstance(o, Immediate)] if i.opcode == "and" else []
        for source in self.ssa.reads[i.index].values():
            maker = self.ssa.definitions[source].instruction if masks else None
            parts = _packed(self.entry.body[maker]) if maker is not None else ()
            if maker is None or not parts:
                yield source
                continue
            width = int(self.types[self.ssa.definitions[source].register][1:]) // len(parts)
            kept = [p for at, p in enumerate(parts) if masks[0] >> at * width & (1 << width) - 1]
            yield from (self.ssa.reads[maker][p.name] for p in kept if isinstance(p, Register))
        yield from self.ssa.before[i.index].values()

    def _taints(self, i: Instruction) -> list[str]:
        """Lines that propagate undefined values: a pure instruction passes them on, any other reports them."""
        watched = [r for r in dict.fromkeys(reads(i)) if r in self.suspect]
        written = [self.slots[r] for r in writes(i) if r in self.suspect]
        guard = i.guard.register if i.guard else ""
        if not _is_pure(i):
            wanted = {guard, *_must_be_defined(i)}
            watched = [r for r in watched if r in wanted]
            found = [f"M.watch({self.slots[r]}, x, {self._kept(i) if r != guard and guard else None})" for r in watched]
            return found + [f"M.taint({slot}, (), x, {self._kept(i) or None})" for slot in written]
        sources = tuple(self.slots[r] for r in watched)
        if i.opcode == "selp" and sources and written:
            picked = [
                self.slots.get(o.name, -1) if isinstance(o, Register) and o.name in self.suspect else -1
                for o in i.operands[1:4]
            ]
            condition = self._value(i.operands[3], "pred")
            return [f"M.taint_selected({written[0]}, {picked}, {condition}, x)"] if not guard else []
        return [f"M.taint({slot}, {sources}, x, {self._kept(i) or None})" for slot in written]

    def compiled(self) -> list[CodeSegment]:
        """All segments with their functions."""
        source = "\n".join(self._segment(i, s) for i, s in enumerate(self.segments))
        exec(compile(source, "<ptx segments>", "exec"), self.constants)
        for i, segment in enumerate(self.segments):
            segment.run = self.constants[f"s{i}"]
        return self.segments

    def _segment(self, number: int, segment: CodeSegment) -> str:
        """A function of (machine, lanes): ``x`` is None where all lanes take part, which saves gathering."""
        self.loaded: set[str] = set()
        self.stored: dict[str, None] = {}
        lines: list[str] = []
        for i in range(segment.first, segment.last):
            lines += self._taints(self.entry.body[i])
            lines += self._instruction(self.entry.body[i])
        loads = [self._load(r) for r in sorted(self.loaded)]
        condition = next((e.guard.register for e in segment.edges if e.guard), "")
        if segment.edges and segment.edges[0].case is not None:
            condition = ""
        segment.condition = condition
        if condition and condition not in self.stored and condition not in self.loaded:
            loads.append(self._load(condition))
        stores = [f"M.put({self.slots[r]}, {self._local(r)}, x)" for r in self.stored]
        result = [f"return {self._local(condition)}"] if condition else []
        body = [*loads, *lines, *stores, *result] or ["pass"]
        return f"def s{number}(M, x):\n" + "\n".join(f"    {line}" for line in body)

    def _load(self, register: str) -> str:
        slot = self.slots[register]
        return f"{self._local(register)} = M.get({slot}, x)"

    def _local(self, register: str) -> str:
        return f"r{self.slots[register]}"

    def _constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    # -- operands

    def _value(self, operand: Operand, type: str) -> str:
        """The Python expression of an operand read as ``type`` ("" if the machine reads the operand itself)."""
        match operand:
            case Register(name):
                return self._cut(self._read(name), self.types[name], type)
            case Negated(register):
                return f"~{self._read(register.name)}"
            case Immediate():
                return self._constant(immediate(operand, type or "b64"))
            case Special(name):
                return self._cut(f"M.special({name!r}, x)", "b64" if name.endswith("64") else "b32", type)
            case Identifier("_"):
                return "None"
            case Identifier(name):
                return self._cut(f"M.symbol({name!r}, x)", "b64", type)
            case Address(base, offset, rest):
                return self._address(base, offset, rest)
            case Vector(items):
                return f"[{', '.join(self._value(i, type) for i in items)}]"
            case _:
                return "None"

    def _read(self, name: str) -> str:
        if name not in self.stored:
            self.loaded.add(name)
        return self._local(name)

    def _cut(self, value: str, has: str, wanted: str) -> str:
        """A register wider than the operand's type gives its low bits; a narrower one, zeros above."""
        if not wanted or "pred" in (has, wanted) or width(has) == width(wanted):
            return value
        return f"{value}.astype({self._constant(UNSIGNED[width(wanted)])})"

    def _address(self, base: Operand, offset: int, rest: Sequence[Operand]) -> str:
        start = self._value(base, "b64")
        if offset:
            start = f"{start} + {self._constant(np.uint64(offset & (1 << 64) - 1))}"
        return f"({start}, [{', '.join(self._value(r, '') for r in rest)}])" if rest else start

    # -- instructions

    def _instruction(self, i: Instruction) -> list[str]:
        if i.opcode in ("bra", "brx", "ret", "exit"):
            if i.opcode == "brx" and isinstance(i.operands[0], Register):
                self._read(i.operands[0].name)
            return []
        form = find(i.opcode, i.modifiers)
        if form is None or form.kind is OpcodeKind.PARSED:
            return self._call(i, None)
        if form.row.build is None:
            return self._call(i, form)
        return self._pure(i, form)

    def _pure(self, i: Instruction, form: Form) -> list[str]:
        operands = list(i.operands)
        read = [
            self._packed(o, t) if isinstance(o, Vector) else self._value(o, t)
            for a, t, o in zip(form.accesses, form.types, operands, strict=False)
            if a in "ri"
        ]
        if "c" in form.accesses:
            read.append(self._read(CARRY))
        target, lines = operands[0], list[str]()
        call = f"{self._constant(form.function)}({', '.join(read)})"
        kept = self._kept(i)
        if isinstance(target, Vector):
            lines.append(f"t = {call}")
            part = width(form.types[0]) // len(target.items)
            narrow = self._constant(UNSIGNED[part])
            for n, item in enumerate(target.items):
                if isinstance(item, Register):
                    shift = self._constant(unsigned(form.types[0])(part * n))
                    lines += self._assign(item.name, f"(t >> {shift}).astype({narrow})", f"b{part}", kept)
            return lines
        targets: list[Operand] = [target.first, target.second] if isinstance(target, Pair) else [target]
        if "k" in form.accesses:
            targets.append(Register(CARRY))
        several = len(targets) > 1 or i.opcode == "setp" or "c" in form.accesses
        lines.append(f"t = {call}")
        for n, item in enumerate(targets):
            if isinstance(item, Register):
                value = f"t[{n}]" if several else "t"
                lines += self._assign(item.name, value, form.types[0] if n == 0 else "pred", kept)
        return lines

    def _packed(self, vector: Vector, type: str) -> str:
        """``{a, b}`` as one value, the first lowest."""
        part = width(type) // len(vector.items)
        wide = self._constant(unsigned(type))
        parts = [f"({self._value(v, f'b{part}')}).astype({wide})" for v in vector.items]
        return " | ".join(
            p if n == 0 else f"({p} << {self._constant(unsigned(type)(part * n))})" for n, p in enumerate(parts)
        )

    def _kept(self, i: Instruction) -> str:
        """The guard's value, "" without a guard."""
        if i.guard is None:
            return ""
        value = self._read(i.guard.register)
        return f"(~{value})" if i.guard.negated else value

    def _assign(self, register: str, value: str, type: str, guard: str) -> list[str]:
        """Write a register, extended to its width as the type says, and where the guard holds."""
        has = self.types[register]
        if has != "pred" and type != "pred" and width(has) != width(type):
            wide = self._constant(UNSIGNED[width(has)])
            value = f"M.signed({value}, {width(type)}).astype({wide})" if is_signed(type) else f"{value}.astype({wide})"
        if guard:
            value = f"np.where({guard}, {value}, {self._read(register)})"
        self.stored[register] = None
        return [f"{self._local(register)} = {value}"]

    def _call(self, i: Instruction, form: Form | None) -> list[str]:
        """An instruction that the machine executes: operands as values, results as a list of written registers. A call
        looks at its operands itself."""
        if i.opcode == "call":
            return [f"M.effect({i.index}, x, {self._kept(i) or 'None'}, [])"]
        accesses = form.accesses if form else ("u",) + ("r",) * 8
        types = form.types if form else ("",) * 9
        written: list[str] = []
        given: list[str] = []
        for n, o in enumerate(i.operands):
            access = accesses[n] if n < len(accesses) else "r"
            type = types[n] if n < len(types) and is_type(types[n]) else ""
            if access in "wu" and not isinstance(o, Address):
                written += targets_of(o)
            if access != "w" or isinstance(o, Address):
                given.append(
                    self._value(
                        o, type if isinstance(o, Immediate | Identifier) or (access == "r" and i.opcode == "st") else ""
                    )
                )
        guard = self._kept(i)
        call = f"M.effect({i.index}, x, {guard or 'None'}, [{', '.join(given)}])"
        if not any(written):
            return [call]
        result = types[0] if types else "b32"
        lines = [f"t = {call}"]
        for n, name in enumerate(written):
            if name:
                second = n > 0 and isinstance(i.operands[0], Pair)
                lines += self._assign(name, f"t[{n}]", "pred" if second else result, guard)
        return lines


def targets_of(operand: Operand) -> list[str]:
    """The registers that a destination names, "" for a sink."""
    match operand:
        case Register(name):
            return [name]
        case Vector(items):
            return [r for item in items for r in targets_of(item)]
        case Pair(first, second):
            return [*targets_of(first), *targets_of(second)]
        case _:
            return [""]


def immediate(operand: Immediate, type: str) -> Any:
    """A constant in the bits of ``type``."""
    if type == "pred":
        return np.bool_(operand.bits != 0)
    bits = operand.bits
    if operand.kind == "f64" and type in ("f32", "b32"):
        bits = int(np.float32(np.uint64(bits).view(np.float64)).view(np.uint32))
    return unsigned(type)(bits & (1 << width(type)) - 1)


def refuse(entry: str, instruction: Instruction, required: str) -> None:
    """Raise PTX015: the machine can't execute an instruction."""
    fail("PTX015", where=Location(f"<ptx {entry}>", instruction.line), found=instruction.name, required=required)
