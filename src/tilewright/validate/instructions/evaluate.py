"""The effect of each PTX instruction on registers and on the events of its region (PTX ISA 9.1, chapter 9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from tilewright.ptx.syntax import (
    Address,
    Identifier,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Special,
    Vector,
)
from tilewright.validate.arithmetic import Arithmetic, bits_of
from tilewright.validate.bounds import BoundSequence
from tilewright.validate.cases import Cases, Condition
from tilewright.validate.instructions.supported import is_read, space_of
from tilewright.validate.memory import SHARED, Memory
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import NOTHING, Event, LoopBody, Needs
from tilewright.validate.regions import Operand as EventOperand
from tilewright.validate.terms import Terms
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Choice, Value, Values

_OF_ANOTHER_FORM = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Exceptions of handlers for instructions with other operands than they expect."""

_ANY_WIDTH = frozenset(("ld", "st", "cvt"))
"""Registers of these may be wider than what is moved (PTX ISA 9.1, 9.4.1); of others both sizes agree."""

_SEVERAL = frozenset(("v2", "v4", "v8", "x1", "x2", "x4"))
"""Modifiers that give the number of registers in braces."""

Environment = dict[str, "Value | int | object"]


class ProgramState(Protocol):
    """The registers, parameters and memory of an entry under evaluation, as its instructions see them."""

    values: Values
    terms: Terms
    cases: Cases
    arithmetic: Arithmetic
    bounds: BoundSequence
    parameters: Mapping[str, Value]
    parameter_bytes: Mapping[str, int]
    constants: Mapping[str, bytes]
    changing: frozenset[str]
    """Tensors that are written while the kernel runs."""
    shared: frozenset[str]
    """Variables in shared memory."""
    several: frozenset[str]
    """Registers that are written more than once."""
    environment: Environment
    waits: frozenset[int]
    """Instructions that are tried until they succeed."""
    counts: list[int]
    """Barriers that count threads, in the order of the text."""
    written: list[list[str]]
    """By instruction."""
    needs: dict[str, Needs]
    threads: int
    order: int

    def value(self, name: str) -> Value: ...
    def condition(self, name: str) -> Condition: ...
    def width(self, name: str) -> int: ...
    def is_predicate(self, name: str) -> bool: ...
    def put(self, name: str, value: Value | Condition, needs: Needs) -> None: ...


class Instructions:
    """Evaluates instructions for ``program``; those in ``pure`` only compute registers from registers."""

    def __init__(
        self,
        program: ProgramState,
        ctas: Value,
        element_bytes: Mapping[str, int],
        opcodes: Mapping[str, Callable[[Instructions, Instruction], None]],
        pure: frozenset[str],
    ):
        self.program, self.opcodes, self.pure = program, opcodes, pure
        self.values, self.terms, self.cases = program.values, program.terms, program.cases
        self.arithmetic = program.arithmetic
        self.floats = self.arithmetic.floats
        self.ctas = ctas
        self.memory = Memory(program.values, element_bytes)
        self.marks: dict[int, Event] = {}
        self.before: dict[int, Value] = {}
        """By mark of a store to shared memory, what stands for its contents before."""
        self.shuffles: dict[int, dict[str, Condition]] = {}
        self.used: Needs = NOTHING
        self.halves: dict[str, Needs] = {}
        """By register of 64 bits, what its lower half rests on, where that is less than the whole."""
        self.guard: Condition = self.cases.true
        """Where the instruction runs, of the threads that come to it."""
        self.results: set[str] = set()
        """The registers that the instruction has set."""

    def is_pure(self, i: Instruction) -> bool:
        """The instruction only computes registers, from registers and parameters."""
        return i.opcode in self.pure or (i.opcode == "ld" and i.modifiers[0] == "param")

    def evaluate(self, i: Instruction, holds: Condition, region: LoopBody) -> None:
        """Runs one instruction where ``holds``."""
        self.guard = self.cases.true
        self.used = NOTHING
        if i.guard is not None and i.opcode != "bra":
            self.used = self.program.needs.get(i.guard.register, NOTHING)
            test = self.program.condition(i.guard.register)
            self.guard = self.cases.negate(test) if i.guard.negated else test
            holds = self.cases.both(holds, self.guard)
            if self.is_pure(i):
                raise Undecided("a predicated instruction that computes", f"line {i.line}")
        self.arithmetic.needs.clear()
        self.holds, self.region, self.instruction = holds, region, i
        handler = self.opcodes.get(i.opcode)
        if handler is None or not is_read(i):
            raise Undecided(f"{i.name} is not known", f"line {i.line}")
        if not _SEVERAL.isdisjoint(i.modifiers):
            several = {int(m[1:]) for m in i.modifiers if m in _SEVERAL}
            if any(len(o.items) not in several for o in i.operands if isinstance(o, Vector)):
                raise Undecided(f"{i.name} with operands that it does not take", f"line {i.line}")
        if i.opcode == "bar" or "aligned" in i.modifiers or ("sync" in i.modifiers and i.opcode != "barrier"):
            region.whole.setdefault(holds, f"line {i.line}")
        self.results.clear()
        try:
            handler(self, i)
        except _OF_ANOTHER_FORM as error:  # an assembler would refuse it; nothing is shown of it
            raise Undecided(f"{i.name} with operands that it does not take", f"line {i.line}") from error
        for name in self.program.written[i.index]:
            if name in self.program.several and name not in self.results:  # what was in it is there no longer
                self._result_left_open(name)

    def _result_left_open(self, name: str) -> None:
        """A destination of which no value is computed, such as the predicate of a lane shuffle."""
        if self.program.is_predicate(name):
            open_ = self.arithmetic.test("undefined", name)
        else:
            open_ = self.values.undefined(self.program.width(name), name)
        self.program.put(name, self.guarded(name, open_), NOTHING)

    # -- operands -------------------------------------------------------------------------------------------------
    def get(self, operand: Operand, width: int) -> Value:
        """The value of an operand as a word of ``width`` bits."""
        match operand:
            case Register(name):
                if needs := self.program.needs.get(name):
                    self.used |= needs
                found = self.values.among(self.program.value(name), self.program.threads)
                found = self.values.within(found, self.holds)
                if self.program.width(name) != width and self.instruction.opcode not in _ANY_WIDTH:
                    raise Undecided(f"{self.instruction.name} of {name}", f"line {self.instruction.line}")
                return found if found.width == width else self.values.field(found, 0, min(found.width, width), width)
            case Immediate(bits, _):
                return self.terms.const(width, bits)
            case Special(name):
                return self.values.among(self._special(name, width), self.program.threads)
            case Identifier(name):
                return self._symbol(name, width)
            case Vector(items):
                part = width // len(items)
                total: Value = self.terms.const(width, 0)
                for k, item in enumerate(items):
                    word = self.values.field(self.get(item, part), 0, part, width)
                    total = self.values.add(total, self.values.scale(word, 1 << (k * part)))
                return total
            case _:
                raise Undecided(f"operand {operand}", f"line {self.instruction.line}")

    def _special(self, name: str, width: int) -> Value:
        terms, threads = self.terms, self.terms.threads
        match name:
            case "%tid.x":
                return terms.table(width, np.arange(threads))
            case "%laneid":
                return terms.table(width, np.arange(threads) % 32)
            case "%ntid.x":
                return terms.const(width, threads)
            case "%tid.y" | "%tid.z" | "%ctaid.y" | "%ctaid.z":
                return terms.const(width, 0)
            case "%ntid.y" | "%ntid.z" | "%nctaid.y" | "%nctaid.z":
                return terms.const(width, 1)
            case "%ctaid.x":
                return terms.of(width, terms.atom("ctaid", low=0, high=(1 << 31) - 2))
            case "%nctaid.x":
                return self.values.resize(self.ctas, width)
            case "%cluster_ctarank":
                return terms.of(width, terms.atom("cta_rank", low=0, high=15))
            case _:
                raise Undecided(f"special register {name}", f"line {self.instruction.line}")

    def _symbol(self, name: str, width: int) -> Value:
        if name in self.program.constants:
            return self.terms.of(width, self.terms.atom("address", name, low=0))
        if name in self.program.parameters:
            found = self.program.parameters[name]
            atom = self.terms.single(found) if isinstance(found, Poly) else None
            if atom is None or atom.kind != "map":  # what a launch puts there is not where it lies
                raise Undecided(f"the address of the parameter {name}", f"line {self.instruction.line}")
            return self.values.resize(found, width)
        if name not in self.program.shared:
            raise Undecided(f"the address of {name}", f"line {self.instruction.line}")
        return self.values.resize(self.terms.shared_variable(name), width)

    def rests_on_half(self, target: Operand) -> None:
        """Notes that the lower half of what is computed rests only on what has been used so far."""
        if isinstance(target, Register) and target.name not in self.program.several:
            self.halves[target.name] = self.used

    def predicate(self, operand: Operand) -> Condition:
        """The value of a predicate operand."""
        match operand:
            case Register(name):
                self.used |= self.program.needs.get(name, NOTHING)
                return self.program.condition(name)
            case Negated(Register(name)):
                self.used |= self.program.needs.get(name, NOTHING)
                return self.cases.negate(self.program.condition(name))
            case Immediate(bits, _):
                return self.cases.true if bits else 0
            case _:
                raise Undecided(f"predicate {operand}", f"line {self.instruction.line}")

    def address(self, operand: Operand) -> tuple[Value, bool]:
        """An address, as 64 or 32 bits; whether it is certainly one of shared memory is asked of its value."""
        assert isinstance(operand, Address)
        base = operand.base
        width = 64
        if isinstance(base, Register):
            width = self.program.width(base.name)
        value = self.get(base, width)
        if operand.offset:
            value = self.values.add(value, self.terms.const(width, operand.offset))
        return value, width == 32

    def result(self, operand: Operand, value: Value | Condition) -> None:
        """Sets a destination."""
        needs = self.used
        if self.arithmetic.needs:
            needs |= self.when(frozenset(self.arithmetic.needs), self.holds)
        match operand:
            case Register(name):
                of_bits = isinstance(value, Poly | Choice)
                narrow = of_bits and self.program.width(name) != value.width
                if self.program.is_predicate(name) == of_bits or narrow:
                    raise Undecided(f"{self.instruction.name} to {name}", f"line {self.instruction.line}")
                self.results.add(name)
                self.program.put(name, self.guarded(name, value), needs)
            case Identifier("_"):
                pass
            case _:
                raise Undecided(f"destination {operand}", f"line {self.instruction.line}")

    def guarded(self, name: str, value: Value | Condition) -> Value | Condition:
        """A new value where the instruction runs, else the register's old one."""
        if self.guard == self.cases.true:
            return value
        if isinstance(value, Poly | Choice):
            return self.values.select(self.guard, value, self.program.value(name))
        cases = self.cases
        old = cases.without(self.program.condition(name), self.guard)
        return cases.either(cases.both(self.guard, value), old)

    def width(self, i: Instruction) -> int:
        return bits_of(i.modifiers[-1])

    def two(self, i: Instruction, width: int) -> tuple[Value, Value]:
        """The two sources of an instruction."""
        return self.get(i.operands[1], width), self.get(i.operands[2], width)

    def when(self, needs: Needs, condition: Condition) -> Needs:
        """What only matters where a condition holds; it may be any that tests of data are given to be."""
        if not needs:
            return needs
        condition = self.cases.without_tests(condition)
        return frozenset(replace(need, when=self.cases.both(need.when, condition)) for need in needs)

    def register_width(self, operand: Operand, default: int) -> int:
        return self.program.width(operand.name) if isinstance(operand, Register) else default

    def require(self, region: LoopBody, needs: Needs, holds: Condition) -> None:
        """Notes what a branch rests on."""
        if needs:
            region.events.append(Event("needs", holds, (), f"line {self.instruction.line}", self.next(), needs))

    def next(self) -> int:
        self.program.order += 1
        return self.program.order

    def event(self, kind: str, *operands: EventOperand, holds: Condition | None = None) -> Event:
        """Adds an event to the region."""
        needs = self.used | frozenset(self.arithmetic.needs)
        condition = self.holds if holds is None else holds
        made = Event(kind, condition, operands, f"line {self.instruction.line}", self.next(), needs)
        self.region.events.append(made)
        return made

    def synchronised(self) -> None:
        """After a wait or an arrival, writes of other threads may be visible."""
        for name in [n for n in self.program.environment if n.startswith("@")]:
            self.program.environment[name] = self.terms.of(
                0, self.terms.atom("after", "ptx", self.instruction.index, low=0)
            )
            self.marks[self.instruction.index] = self.region.events[-1]

    def state(self, tensor: str) -> Value | None:
        """The state of a tensor, or of shared memory; None where it is constant."""
        found = self.program.environment.get(f"@{tensor}")
        assert found is None or isinstance(found, Poly | Choice)
        return found

    def places(self, address: Value) -> list[tuple[Condition, Condition, str, Poly]]:
        """Where an address lies, by its cases and by the signs of data in it: the case, where the present instruction
        runs in it, the tensor, and the offset."""
        found: list[tuple[Condition, Condition, str, Poly]] = []
        for condition, base in self.values.parts(address):
            here = self.cases.both(self.holds, condition)
            carried = self.arithmetic.reader.carried_address(base)
            if carried is not None:
                split = [(condition, carried)]
            else:
                split = self.arithmetic.reader.by_signs(base, condition) or [(condition, base)]
            met = [(c, inside, q) for c, q in split if (inside := self.cases.both(self.holds, c)) != 0]
            if len(met) < 2:  # elsewhere it does not run
                met = [(condition, here, met[0][2] if met else base)]
            found += [(c, inside, *self.located(q)) for c, inside, q in met]
            for _, inside, q in met:
                if inside != 0:
                    self._require_space(q)
        return found

    def _require_space(self, address: Poly) -> None:
        """Requires that an address lies in the instruction's state space; a generic one gives its own."""
        atoms = [self.terms.atoms[m[0]] for m, c in self.terms.resize(address, 0).terms if len(m) == 1 and c == 1]
        of_tensor = any(a.kind == "address" for a in atoms)
        in_window = any(a.kind == "window" for a in atoms)
        space = space_of(self.instruction)
        wanted = {"global": (True, False), "shared": (False, False)}.get(space, (not in_window, in_window))
        if (of_tensor, in_window) != wanted:
            raise Undecided(f"{self.instruction.name} of another state space", f"line {self.instruction.line}")

    def located(self, address: Poly) -> tuple[str, Poly]:
        """The tensor, or ``shared``, that an address lies in, and the offset in bytes over the integers."""
        offset = self.terms.resize(address, 0)
        for monomial, c in offset.terms:
            if len(monomial) != 1 or c != 1:
                continue
            atom = self.terms.atoms[monomial[0]]
            if atom.kind == "address":
                rest = self.terms.make(0, {m: k for m, k in offset.terms if m != monomial})
                return str(atom.args[0]), rest
            if atom.kind == "window":
                offset = self.terms.sub(offset, self.terms.of(0, atom))
                return "shared", offset
        return "shared", offset

    def stored(self, tensor: str) -> None:
        """The tensor has other contents from here on, where the present instruction runs."""
        state = self.state(tensor)
        if state is not None:
            after = self.terms.of(0, self.terms.atom("stored", "ptx", self.instruction.index, low=0))
            self.program.environment[f"@{tensor}"] = self.values.select(self.holds, after, state)
            self.marks[self.instruction.index] = self.region.events[-1]
            if self.region.events[-1].order == self.program.order or tensor == SHARED:  # it is this store's event
                self.before[self.instruction.index] = state
