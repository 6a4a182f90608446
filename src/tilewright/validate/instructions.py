"""What each PTX instruction does to the registers and to the events of its region (PTX ISA 9.1, chapter 9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
    Vector,
)
from tilewright.validate.arithmetic import bits_of
from tilewright.validate.cases import Condition
from tilewright.validate.memory import Memory
from tilewright.validate.regions import NOTHING, Event, Needs, Region
from tilewright.validate.regions import Operand as EventOperand
from tilewright.validate.terms import Poly
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Choice, Value

if TYPE_CHECKING:
    from tilewright.validate.program import Program

_FLOAT_UNARY = frozenset(["ex2", "rcp", "sqrt", "rsqrt", "lg2", "sin", "cos", "tanh"])
_PURE = _FLOAT_UNARY | frozenset(
    [
        "add",
        "sub",
        "mul",
        "mad",
        "fma",
        "div",
        "rem",
        "abs",
        "neg",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "not",
        "shl",
        "shr",
        "shf",
        "bfe",
        "bfi",
        "prmt",
        "popc",
        "clz",
        "brev",
        "lop3",
        "setp",
        "selp",
        "slct",
        "cvt",
        "mov",
        "cvta",
        "mul24",
        "mad24",
        "sad",
        "cnot",
        "isspacep",
        "mapa",
        "copysign",
        "testp",
        "ld",
    ]
)
_SYNC_KINDS = {"bar", "barrier"}


class Instructions:
    """Evaluates instructions for ``program``."""

    def __init__(self, program: Program, ctas: Value, element_bytes: Mapping[str, int]):
        self.program = program
        self.values, self.terms, self.cases = program.values, program.terms, program.cases
        self.arithmetic = program.arithmetic
        self.floats = self.arithmetic.floats
        self.ctas = ctas
        self.memory = Memory(program.values, element_bytes)
        self.marks: dict[int, Event] = {}
        self.shuffles: dict[int, dict[str, Condition]] = {}
        self.used: Needs = NOTHING
        self.halves: dict[str, Needs] = {}
        """By register that a word was extended to, what the word rests on."""
        self.guard: Condition = self.cases.true
        """Where the instruction runs, of the threads that come to it."""

    def is_pure(self, i: Instruction) -> bool:
        """The instruction only computes registers, from registers and parameters."""
        return i.opcode in _PURE and (i.opcode != "ld" or i.modifiers[0] == "param")

    def evaluate(self, i: Instruction, holds: Condition, region: Region) -> None:
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
        handler: Callable[[Instruction], None] | None = getattr(self, f"_{i.opcode}", None)
        if handler is None:
            if i.opcode in _FLOAT_UNARY:
                handler = self._function
            else:
                raise Undecided(f"{i.name} is not known", f"line {i.line}")
        handler(i)

    # -- operands -------------------------------------------------------------------------------------------------
    def get(self, operand: Operand, width: int) -> Value:
        """The value of an operand as a word of ``width`` bits."""
        match operand:
            case Register(name):
                self.used |= self.program.needs.get(name, NOTHING)
                found = self.values.among(self.program.value(name), self.program.threads)
                found = self.values.within(found, self.holds)
                return found if found.width == width else self.values.field(found, 0, min(found.width, width), width)
            case Immediate(bits, _):
                return self.terms.const(width, bits)
            case Special(name):
                return self.values.among(self._special(name, width), self.program.threads)
            case Symbol(name):
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
            return self.values.resize(self.program.parameters[name], width)
        return self.terms.of(width, self.terms.atom("shared_variable", name, low=0, high=(1 << 18) - 1))

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
        needs = self.used | self._when(frozenset(self.arithmetic.needs), self.holds)
        match operand:
            case Register(name):
                self.program.put(name, self._guarded(name, value), needs)
            case Symbol("_"):
                pass
            case _:
                raise Undecided(f"destination {operand}", f"line {self.instruction.line}")

    def _guarded(self, name: str, value: Value | Condition) -> Value | Condition:
        """A new value where the instruction runs, else the register's old one."""
        if self.guard == self.cases.true:
            return value
        if isinstance(value, Poly | Choice):
            return self.values.select(self.guard, value, self.program.value(name))
        cases = self.cases
        old = cases.without(self.program.condition(name), self.guard)
        return cases.either(cases.both(self.guard, value), old)

    def _width(self, i: Instruction) -> int:
        return bits_of(i.modifiers[-1])

    def two(self, i: Instruction, width: int) -> tuple[Value, Value]:
        """The two sources of an instruction."""
        return self.get(i.operands[1], width), self.get(i.operands[2], width)

    # -- integers and floats --------------------------------------------------------------------------------------
    def _mov(self, i: Instruction) -> None:
        target, source = i.operands
        if i.modifiers[-1] == "pred":
            self.result(target, self.predicate(source))
        elif isinstance(target, Vector):
            width = self._width(i)
            word, part = self.get(source, width), width // len(target.items)
            for k, item in enumerate(target.items):
                self.result(item, self.values.field(word, k * part, part, part))
        else:
            self.result(target, self.get(source, self._width(i)))

    def _cvta(self, i: Instruction) -> None:
        value = self.get(i.operands[1], self._width(i))
        spaces = [m for m in i.modifiers if m in ("shared", "local", "const")]
        if spaces:
            window = self.terms.of(value.width, self.terms.atom("window", spaces[0], low=0))
            value = self.values.sub(value, window) if "to" in i.modifiers else self.values.add(value, window)
        self.result(i.operands[0], value)

    def _binary(self, i: Instruction, integers: Callable[[Value, Value], Value], floats: Callable[..., Value]) -> None:
        kind = i.modifiers[-1]
        a, b = self.two(i, bits_of(kind))
        if kind in ("f32",):
            self._plain_f32(i)
            self.result(i.operands[0], floats(a, b))
        elif kind[0] in "usb":
            if "sat" in i.modifiers or "cc" in i.modifiers:
                raise Undecided(f"{i.name} is not known", f"line {i.line}")
            self.result(i.operands[0], integers(a, b))
        else:
            self.result(i.operands[0], self.values.apply(bits_of(kind), i.name, a, b))

    def _plain_f32(self, i: Instruction) -> None:
        odd = [m for m in i.modifiers if m not in ("rn", "f32")]
        if odd:
            raise Undecided(f"{i.name} is not known", f"line {i.line}")

    def _add(self, i: Instruction) -> None:
        self._binary(i, self.values.add, self.floats.add)

    def _sub(self, i: Instruction) -> None:
        self._binary(i, self.values.sub, self.floats.sub)

    def _mul(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        if kind[0] not in "us":
            self._binary(i, self.values.mul, self.floats.mul)
            return
        width = bits_of(kind)
        a, b = self.two(i, width)
        if "lo" in i.modifiers:
            self.result(i.operands[0], self.values.mul(a, b))
            return
        whole = self.values.lift(lambda x, y: self._wide(kind, x, y), a, b)
        if "wide" in i.modifiers:
            self.result(i.operands[0], self.values.resize(whole, 2 * width))
        else:
            high = self.values.lift(lambda x: self.terms.floordiv(x, 1 << width), whole)
            self.result(i.operands[0], self.values.resize(high, width))

    def _wide(self, kind: str, a: Poly, b: Poly) -> Poly:
        if kind[0] == "s":
            return self.terms.mul(self.arithmetic.signed(a), self.arithmetic.signed(b))
        x, y = self.terms.unsigned(a), self.terms.unsigned(b)
        for p in (x, y):
            number = self.terms.number(p)
            if number is not None and number < 0:
                raise AssertionError("an unsigned constant")
        return self.terms.mul(x, y)

    def _mad(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        if kind[0] not in "us" or "hi" in i.modifiers or "cc" in i.modifiers:
            raise Undecided(f"{i.name} is not known", f"line {i.line}")
        width = bits_of(kind)
        a, b = self.two(i, width)
        if "wide" in i.modifiers:
            product = self.values.resize(self.values.lift(lambda x, y: self._wide(kind, x, y), a, b), 2 * width)
            width *= 2
        else:
            product = self.values.mul(a, b)
        self.result(i.operands[0], self.values.add(product, self.get(i.operands[3], width)))

    def _fma(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        width = bits_of(kind)
        a, b = self.two(i, width)
        c = self.get(i.operands[3], width)
        if kind == "f32":
            self.result(i.operands[0], self.floats.fma(a, b, c, ".".join(i.modifiers)))
        else:
            self.result(i.operands[0], self.values.apply(width, i.name, a, b, c))

    def _div(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        width = bits_of(kind)
        a, b = self.two(i, width)
        if kind == "f32":
            self.result(i.operands[0], self.floats.div(a, b, ".".join(i.modifiers)))
            return
        self.result(i.operands[0], self._divided(i, kind, a, b)[0])

    def _rem(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        a, b = self.two(i, bits_of(kind))
        self.result(i.operands[0], self._divided(i, kind, a, b)[1])

    def _divided(self, i: Instruction, kind: str, a: Value, b: Value) -> tuple[Value, Value]:
        data = any(self.arithmetic.is_data(p) for v in (a, b) for _, p in self.values.parts(v))
        width = bits_of(kind)
        if data:
            quotient = self.values.lift(lambda x, y: self.arithmetic.truncated(kind, x, y), a, b)
            return quotient, self.values.sub(a, self.values.mul(quotient, b))
        read = self.arithmetic.signed if kind[0] == "s" else self.terms.unsigned
        quotient = self.values.lift(lambda x, y: self.arithmetic.quotient(read(x), read(y)), a, b)
        quotient = self.values.resize(quotient, width)
        return quotient, self.values.sub(a, self.values.mul(quotient, b))

    def _neg(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        a = self.get(i.operands[1], bits_of(kind))
        if kind == "f32":
            self.result(i.operands[0], self.floats.neg(a))
        elif kind[0] == "s":
            self.result(i.operands[0], self.values.scale(a, -1))
        else:
            self.result(i.operands[0], self.values.apply(bits_of(kind), i.name, a))

    def _abs(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        width = bits_of(kind)
        a = self.get(i.operands[1], width)
        if kind == "f32":
            self.result(i.operands[0], self.floats.absolute(a))
        elif kind[0] == "s":
            negative = self.arithmetic.compare("lt", kind, a, self.terms.const(width, 0))
            self.result(i.operands[0], self.values.select(negative, self.values.scale(a, -1), a))
        else:
            self.result(i.operands[0], self.values.apply(width, i.name, a))

    def _not(self, i: Instruction) -> None:
        if i.modifiers[-1] == "pred":
            self.result(i.operands[0], self.cases.negate(self.predicate(i.operands[1])))
            return
        width = self._width(i)
        ones = self.terms.const(width, -1)
        self.result(i.operands[0], self.values.sub(ones, self.get(i.operands[1], width)))

    def _logic(self, i: Instruction) -> None:
        if i.modifiers[-1] == "pred":
            a, b = (self.predicate(o) for o in i.operands[1:3])
            join = {"and": self.cases.both, "or": self.cases.either, "xor": self.cases.differ}[i.opcode]
            self.result(i.operands[0], join(a, b))
            return
        a, b = self.two(i, self._width(i))
        self.result(i.operands[0], self.values.lift(lambda x, y: self.arithmetic.bitwise(i.opcode, x, y), a, b))

    _and = _or = _xor = _logic

    def _shift(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        a, by = self.get(i.operands[1], bits_of(kind)), self.get(i.operands[2], 32)
        signed = kind[0] == "s"
        self.result(
            i.operands[0],
            self.values.lift(lambda x, y: self.arithmetic.shift(i.opcode, x, y, signed=signed), a, by),
        )

    _shl = _shr = _shift

    def _bfi(self, i: Instruction) -> None:
        width = self._width(i)
        a, b = self.get(i.operands[1], width), self.get(i.operands[2], width)
        at, count = (self.values.number(self.get(o, 32)) for o in i.operands[3:5])
        if at is None or count is None or not 0 <= at < width or count < 0:
            raise Undecided(f"{i.name} at a place that varies", f"line {i.line}")
        count = min(count, width - at)
        old = self.values.scale(self.values.field(b, at, count, width), 1 << at)
        new = self.values.scale(self.values.field(a, 0, count, width), 1 << at)
        self.result(i.operands[0], self.values.add(self.values.sub(b, old), new))

    def _bfe(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        width = bits_of(kind)
        at, count = (self.values.number(self.get(o, 32)) for o in i.operands[2:4])
        if at is None or count is None or kind[0] != "u":
            raise Undecided(f"{i.name} at a place that varies", f"line {i.line}")
        self.result(i.operands[0], self.values.field(self.get(i.operands[1], width), at, count, width))

    def _prmt(self, i: Instruction) -> None:
        a, b, selector = (self.get(o, 32) for o in i.operands[1:4])
        number = self.values.number(selector)
        if number is None or len(i.modifiers) > 1:
            raise Undecided(f"{i.name} with a selector that varies", f"line {i.line}")
        self.result(i.operands[0], self.values.lift(lambda x, y: self.arithmetic.permuted(x, y, number & 0xFFFF), a, b))

    def _extreme(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        width = bits_of(kind)
        a, b = self.two(i, width)
        if kind[0] not in "us":
            self.result(i.operands[0], self.floats.extreme(i.name, a, b))
            return
        self.result(i.operands[0], self.arithmetic.least(kind, a, b, i.opcode))

    _min = _max = _extreme

    def _setp(self, i: Instruction) -> None:
        kind, name, target = i.modifiers[-1], i.modifiers[0], i.operands[0]
        a, b = self.two(i, bits_of(kind))
        if kind[0] in "usb":
            found = self.arithmetic.compare(name, kind, a, b)
        else:
            found = self.arithmetic.compare_floats(name, a, b, kind)
        if len(i.operands) > 3:
            other = self.predicate(i.operands[3])
            join = {"and": self.cases.both, "or": self.cases.either, "xor": self.cases.differ}[i.modifiers[1]]
            found = join(found, other)
        if isinstance(target, Pair):
            raise Undecided("setp with two results", f"line {i.line}")
        self.result(target, found)

    def _copysign(self, i: Instruction) -> None:
        kind = i.modifiers[-1]
        self.result(i.operands[0], self.values.apply(bits_of(kind), i.name, *self.two(i, bits_of(kind))))

    def _selp(self, i: Instruction) -> None:
        test = self.predicate(i.operands[3])
        before, self.used = self.used, NOTHING
        a, first = self.get(i.operands[1], self._width(i)), self.used
        self.used = NOTHING
        b, second = self.get(i.operands[2], self._width(i)), self.used
        self.used = before | self._when(first, test) | self._when(second, self.cases.negate(test))
        self.result(i.operands[0], self.values.select(test, a, b))

    def _when(self, needs: Needs, condition: Condition) -> Needs:
        """What only matters where a condition holds; it may be any that tests of data are given to be."""
        if not needs:
            return needs
        condition = self.cases.without_tests(condition)
        return frozenset(replace(need, when=self.cases.both(need.when, condition)) for need in needs)

    def _function(self, i: Instruction) -> None:
        width = self._width(i)
        self.result(i.operands[0], self.values.apply(width, i.name, self.get(i.operands[1], width)))

    def _cvt(self, i: Instruction) -> None:
        forms, to, source = i.modifiers[:-2], i.modifiers[-2], i.modifiers[-1]
        values = self.values
        if len(i.operands) == 3:  # two sources are packed, the second one lower
            kind = {"bf16x2": "bf16", "f16x2": "f16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}[to]
            size = 8 if kind[0] == "e" else 16
            high, low = (self._rounded(kind, forms, self.get(o, 32)) for o in i.operands[1:3])
            width = 2 * size
            low, high = (values.field(word, 0, size, width) for word in (low, high))
            self.result(i.operands[0], values.add(low, values.scale(high, 1 << size)))
            return
        integers = (to[0] in "us" and source[0] in "us") and not forms
        if integers:
            a = self.get(i.operands[1], self._register_width(i.operands[1], bits_of(source)))
            width = self._register_width(i.operands[0], bits_of(to))
            self._rests_on_halves(i.operands[0], i.operands[1], bits_of(to), bits_of(source))
            self.result(i.operands[0], values.lift(lambda x: self._integer(x, to, source, width), a))
            return
        if source in ("bf16", "f16") and to == "f32" and not forms:
            word = self.get(i.operands[1], 16)
            self.result(i.operands[0], self.widened(source, word))
            return
        if source == "f32" and to in ("bf16", "f16", "tf32"):
            self.result(i.operands[0], self._rounded(to, forms, self.get(i.operands[1], 32)))
            return
        if source in ("e4m3x2", "e5m2x2"):
            word = self.get(i.operands[1], 16)
            parts = [values.apply(16, f"cvt.f16.{source[:4]}", values.field(word, 8 * k, 8, 8)) for k in (0, 1)]
            low, high = (values.field(p, 0, 16, 32) for p in parts)
            self.result(i.operands[0], values.add(low, values.scale(high, 1 << 16)))
            return
        width = self._register_width(i.operands[0], bits_of(to))
        held = self._register_width(i.operands[1], bits_of(source))
        a = self.get(i.operands[1], held)
        if to == "f32" and source[0] in "us" and forms == ("rn",):
            if held > bits_of(source):
                a = values.lift(lambda x: self._integer(x, source, source, held), a)
            self.result(i.operands[0], self.arithmetic.float_of(a, signed=source[0] == "s"))
            return
        self.result(i.operands[0], values.apply(width, i.name, a))

    def _rests_on_halves(self, target: Operand, source: Operand, wanted: int, size: int) -> None:
        """A word that is extended and cut again is what it was, in range or not: it rests on what the word does."""
        if not isinstance(target, Register) or not isinstance(source, Register):
            return
        if wanted > size and target.name not in self.program.several:
            self.halves[target.name] = self.used
        elif wanted == 32 and source.name in self.halves:
            self.used = self.halves[source.name]

    def _register_width(self, operand: Operand, default: int) -> int:
        return self.program.width(operand.name) if isinstance(operand, Register) else default

    def _integer(self, x: Poly, to: str, source: str, width: int) -> Poly:
        size, wanted = bits_of(source), bits_of(to)
        if wanted <= size:
            low = self.terms.field(x, 0, wanted, width)
            if to[0] == "s" and wanted < width:
                return self.arithmetic.extended(x, wanted, width)
            return self.terms.resize(x, width) if wanted == size == x.width else low
        if source[0] == "s":
            return self.arithmetic.extended(x, size, width) if x.width > size else self._lifted(x, size, width)
        return self.terms.field(x, 0, size, width)

    def _lifted(self, x: Poly, size: int, width: int) -> Poly:
        return self.arithmetic.extended(x, size, width)

    def widened(self, kind: str, word: Value) -> Value:
        """A 16-bit float as f32: a bf16 is the upper half of one."""
        return self.floats.widened(kind, word)

    def _rounded(self, kind: str, forms: tuple[str, ...], word: Value) -> Value:
        size = {"bf16": 16, "f16": 16, "tf32": 32}.get(kind, 8)
        name = f"cvt.{'.'.join(forms)}.{kind}.f32"
        return self.floats.rounded(kind, size, name, word)

    # -- memory ---------------------------------------------------------------------------------------------------
    def require(self, region: Region, needs: Needs, holds: Condition) -> None:
        """Notes what a branch rests on."""
        if needs:
            region.events.append(Event("needs", holds, (), f"line {self.instruction.line}", self._next(), needs))

    def _next(self) -> int:
        self.program.order += 1
        return self.program.order

    def event(self, kind: str, *operands: EventOperand, holds: Condition | None = None) -> Event:
        """Adds an event to the region."""
        needs = self.used | frozenset(self.arithmetic.needs)
        condition = self.holds if holds is None else holds
        made = Event(kind, condition, operands, f"line {self.instruction.line}", self._next(), needs)
        self.region.events.append(made)
        return made

    def synchronised(self) -> None:
        """What other threads wrote may be seen from here on."""
        for name in [n for n in self.program.environment if n.startswith("@")]:
            self.program.environment[name] = self.terms.of(
                0, self.terms.atom("after", "ptx", self.instruction.index, low=0)
            )
            self.marks[self.instruction.index] = self.region.events[-1]

    def _ld(self, i: Instruction) -> None:
        target, source = i.operands
        assert isinstance(source, Address)
        kind = i.modifiers[-1]
        if i.modifiers[0] == "param":
            assert isinstance(source.base, Symbol)
            if source.offset:
                raise Undecided("a part of a parameter", f"line {i.line}")
            self.result(target, self.values.resize(self.program.parameters[source.base.name], bits_of(kind)))
            return
        address, _ = self.address(source)
        targets = target.items if isinstance(target, Vector) else (target,)
        size = bits_of(kind) // 8
        order = self._next()
        words = [
            self._loaded(self.values.add(address, self.terms.const(address.width, k * size)), size, order)
            for k in range(len(targets))
        ]
        self.used = NOTHING  # what the address rests on is proved of the load
        self.arithmetic.needs.clear()
        for item, value in zip(targets, words, strict=True):
            width = self._register_width(item, bits_of(kind))
            if kind[0] == "s" and width > 8 * size:
                value = self._extended(value, 8 * size, width)
            self.result(item, self.values.field(value, 0, 8 * size, width))

    def _extended(self, value: Value, bits: int, width: int) -> Value:
        return self.values.lift(lambda x: self.arithmetic.extended(x, bits, width), value)

    def _loaded(self, address: Value, size: int, order: int) -> Value:
        """``size`` bytes at an address, which may lie in several tensors."""
        needs, where = self.used | frozenset(self.arithmetic.needs), f"line {self.instruction.line}"
        parts: list[tuple[Condition, Value]] = []
        for condition, base in self.values.parts(address):
            tensor, offset = self.located(base)
            here = self.cases.both(self.holds, condition)
            if tensor in self.program.constants:
                parts.append((condition, self._constant(tensor, offset, size, here)))
                continue
            state = self.state(tensor)
            parts.append(
                (condition, self.memory.load(self.region, here, tensor, offset, size, state, where, order, needs))
            )
        return parts[0][1] if len(parts) == 1 else self.values.choose(parts)

    def _constant(self, name: str, offset: Poly, size: int, holds: Condition) -> Poly:
        """Bytes of a constant of the module."""
        content, at = self.program.constants[name], self.terms.number(offset)
        if at is None or not 0 <= at <= len(content) - size:  # elsewhere: shown to be unreachable, or refused
            self.event(f"a read outside of {name}", holds=holds)
            return self.values.undefined(8 * size)
        return self.terms.const(8 * size, int.from_bytes(content[at : at + size], "little"))

    def state(self, tensor: str) -> Value | None:
        """What stands for the contents of a tensor, or of shared memory; None where nothing changes them."""
        found = self.program.environment.get(f"@{tensor}")
        assert found is None or isinstance(found, Poly | Choice)
        return found

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

    def _st(self, i: Instruction) -> None:
        target, source = i.operands
        address, _ = self.address(target)
        kind = i.modifiers[-1]
        size = bits_of(kind) // 8
        sources = source.items if isinstance(source, Vector) else (source,)
        order = self._next()
        tensors = {self.located(base)[0]: None for _, base in self.values.parts(address)}
        element = max(self.memory.element_bytes.get(tensor, size) for tensor in tensors)
        per = max(1, element // size)
        if per > 1 and len(sources) % per == 0:  # words that are parts of elements
            size = element
            words = [self.get(Vector(sources[k : k + per]), 8 * element) for k in range(0, len(sources), per)]
        else:
            words = [self.get(item, self._register_width(item, bits_of(kind))) for item in sources]
        for k, word in enumerate(words):
            place = self.values.add(address, self.terms.const(address.width, k * size))
            self._stored(place, size, word, order)
        for tensor in tensors:
            self.stored(tensor)

    def _stored(self, address: Value, size: int, word: Value, order: int, kind: str = "st") -> None:
        needs, where = self.used | frozenset(self.arithmetic.needs), f"line {self.instruction.line}"
        for condition, base in self.values.parts(address):
            tensor, offset = self.located(base)
            if tensor in self.program.constants:
                raise Undecided(f"a store to {tensor}", where)
            here = self.cases.both(self.holds, condition)
            self.memory.store(self.region, here, tensor, offset, size, word, where, order, needs, kind)

    def stored(self, tensor: str) -> None:
        """The tensor has other contents from here on, where the present instruction runs."""
        state = self.state(tensor)
        if state is not None:
            after = self.terms.of(0, self.terms.atom("stored", "ptx", self.instruction.index, low=0))
            self.program.environment[f"@{tensor}"] = self.values.select(self.holds, after, state)
            self.marks[self.instruction.index] = self.region.events[-1]

    def _red(self, i: Instruction) -> None:
        """An addition for each element of a vector, or of a pair in a word."""
        kind, source = i.modifiers[-1].removesuffix("x2"), i.operands[1]
        address, _ = self.address(i.operands[0])
        size, packed = bits_of(kind) // 8, i.modifiers[-1] != kind
        words = [
            self.get(item, bits_of(i.modifiers[-1]))
            for item in (source.items if isinstance(source, Vector) else [source])
        ]
        if packed:
            words = [self._half(word, first) for word in words for first in (0, 16)]
        form = ".".join(
            [*(m for m in i.modifiers[:-1] if m not in ("relaxed", "gpu", "global", "v2", "v4", "v8")), kind]
        )
        order = self._next()
        for k, word in enumerate(words):
            place = self.values.add(address, self.terms.const(address.width, k * size))
            self._stored(place, size, word, order, f"red.{form}")

    def _half(self, word: Value, first: int) -> Value:
        """16 bits of a word, as a word of its own."""
        return self.values.lift(lambda x: self.terms.field(x, first, 16, 16), word)

    def _atom(self, i: Instruction) -> None:
        target = i.operands[0]
        self._red(Instruction(i.index, "red", i.modifiers, i.operands[1:], i.guard, i.location, i.line))
        width = self._width(i)
        self.result(target, self.terms.data(width, width, "old", i.index))

    # -- threads --------------------------------------------------------------------------------------------------
    def _shfl(self, i: Instruction) -> None:
        target, source, b, c, mask = i.operands
        word = self.get(source, 32)
        args = tuple(self.get(o, 32) for o in (b, c, mask))
        known = self._shuffled(i.modifiers[1], word, *args)
        if known is not None:
            self.result(target.first if isinstance(target, Pair) else target, known)
            return
        found = self.terms.data(32, 32, f"shfl.{i.modifiers[1]}", word, *args)
        atom = self.terms.single(found)
        assert atom is not None
        by_region = self.shuffles.setdefault(atom.id, {})
        by_region[self.region.name] = self.cases.either(by_region.get(self.region.name, 0), self.holds)
        first = target.first if isinstance(target, Pair) else target
        self.result(first, found)

    def _shuffled(self, mode: str, word: Value, lane: Value, bounds: Value, mask: Value) -> Poly | None:
        """What whole warps exchange of values that depend on the thread alone."""
        numbers = self.terms.per_thread(word) if isinstance(word, Poly) else None
        at = self.terms.per_thread(lane) if isinstance(lane, Poly) else None
        whole = self.values.number(bounds) == 31 and self.values.number(mask) == -1
        if numbers is None or at is None or not whole or mode not in ("idx", "bfly"):
            return None
        own = np.arange(self.terms.threads)
        source = at & 31 if mode == "idx" else (own ^ at) & 31
        return self.terms.table(32, numbers[own // 32 * 32 + source])

    def _bar(self, i: Instruction) -> None:
        forms = [m for m in i.modifiers if m not in ("cta", "aligned")]
        if forms == ["warp", "sync"]:
            self.event("bar.warp.sync", self.get(i.operands[0], 32))
            self.synchronised()
            return
        if forms not in (["sync"], ["arrive"]):
            raise Undecided(f"{i.name} is not known", f"line {i.line}")
        number = self.get(i.operands[0], 32)
        threads = self.get(i.operands[1], 32) if len(i.operands) > 1 else self.terms.const(32, self.terms.threads)
        self.event(f"bar.{forms[0]}", number, threads)
        self.synchronised()

    def _barrier(self, i: Instruction) -> None:
        if i.modifiers[0] != "cluster":
            self._bar(i)
            return
        self.event(i.name)
        self.synchronised()

    def _fence(self, i: Instruction) -> None:
        self.event(i.name)

    _membar = _fence

    def _setmaxnreg(self, i: Instruction) -> None:
        self.event(f"setmaxnreg.{i.modifiers[0]}", self.get(i.operands[0], 32))

    def _elect(self, i: Instruction) -> None:
        target = i.operands[0]
        assert isinstance(target, Pair)
        mask = self.values.number(self.get(i.operands[1], 32))
        if mask is None or mask & 0xFFFFFFFF != 0xFFFFFFFF:
            raise Undecided("elect.sync of some lanes", f"line {i.line}")
        lanes = self.cases.threads_where(np.arange(self.terms.threads) % 32 == 0)
        self.result(target.second, lanes)  # which lane is left open by the ISA; it is the same for the same mask

    # -- mbarriers and asynchronous copies ------------------------------------------------------------------------
    def _mbarrier(self, i: Instruction) -> None:
        match i.modifiers[0]:
            case "init":
                self.event("mbarrier.init", self._shared_address(i.operands[0]), self.get(i.operands[1], 32))
            case "try_wait" | "test_wait":
                self.event("mbarrier.wait", self._shared_address(i.operands[1]), self.get(i.operands[2], 32))
                self.synchronised()
            case "arrive":
                at = i.operands[1]
                if "expect_tx" in i.modifiers:
                    self.event("mbarrier.expect_tx", self._shared_address(at), self.get(i.operands[2], 32))
                else:
                    address = self._shared_address(at)
                    remote = self.terms.single(address) if isinstance(address, Poly) else None
                    if remote is not None and remote.kind == "mapa":
                        self.event("mbarrier.arrive.remote", *remote.args)  # pyright: ignore[reportArgumentType]
                    else:
                        self.event("mbarrier.arrive", address)
            case _:
                raise Undecided(f"{i.name} is not known", f"line {i.line}")

    def _mapa(self, i: Instruction) -> None:
        address, rank = self.get(i.operands[1], 32), self.get(i.operands[2], 32)
        whole = self.values.resize(address, 0)
        self.result(
            i.operands[0], self.terms.of(32, self.terms.atom("mapa", whole, self.values.resize(rank, 0), low=0))
        )

    def _shared_address(self, operand: Operand) -> Value:
        value, _ = self.address(operand)
        return self.values.resize(value, 0)

    def _cp(self, i: Instruction) -> None:
        m = i.modifiers
        if m[:2] == ("async", "bulk"):
            self._bulk(i)
        elif m[:2] == ("async", "mbarrier"):
            self.event(f"cp.async.mbarrier.{'noinc' if 'noinc' in m else 'inc'}", self._shared_address(i.operands[0]))
        elif m[:1] == ("async",) and m[1] in ("ca", "cg"):
            to = self._shared_address(i.operands[0])
            source, _ = self.address(i.operands[1])
            size = self.values.number(self.get(i.operands[2], 32))
            read = self.get(i.operands[3], 32) if len(i.operands) > 3 else self.terms.const(32, size or 0)
            self.event("cp.async", to, self.values.resize(source, 0), size, read)
        else:
            raise Undecided(f"{i.name} is not known", f"line {i.line}")

    def _bulk(self, i: Instruction) -> None:
        m = i.modifiers
        if "commit_group" in m:
            self.event("cp.async.bulk.commit_group")
        elif "wait_group" in m:
            self.event(f"cp.async.bulk.wait_group{'.read' if 'read' in m else ''}", self.get(i.operands[0], 32))
        elif "tensor" in m and m.index("global") > 4:
            to, source, bar = i.operands[:3]
            assert isinstance(source, Address)
            where, name = self._shared_address(to), self._map(source)
            coords = [self.get(c, 32) for c in self._coords(source)]
            mask = self.get(i.operands[3], 16) if "multicast::cluster" in m else None
            self.event("tma.load", name, where, self._shared_address(bar), mask, *coords)
        elif "tensor" in m and m[-1] == "bulk_group":
            target, source = i.operands
            assert isinstance(target, Address)
            coords = [self.get(c, 32) for c in self._coords(target)]
            self.event("tma.store", self._map(target), self._shared_address(source), *coords)
        else:
            raise Undecided(f"{i.name} is not known", f"line {i.line}")

    def _coords(self, operand: Address) -> tuple[Operand, ...]:
        (vector,) = operand.rest
        return vector.items if isinstance(vector, Vector) else (vector,)

    def _map(self, operand: Address) -> str:
        value, _ = self.address(Address(operand.base, operand.offset))
        atom = self.terms.single(value) if isinstance(value, Poly) else None
        if atom is None or atom.kind != "map":
            raise Undecided("a tensor map that varies", f"line {self.instruction.line}")
        return str(atom.args[0])

    # -- matrices -------------------------------------------------------------------------------------------------
    def _stmatrix(self, i: Instruction) -> None:
        target, source = i.operands
        words = source.items if isinstance(source, Vector) else (source,)
        form = f"x{len(words)}{'.trans' if 'trans' in i.modifiers else ''}"
        self.event("stmatrix", form, self._shared_address(target), *(self.get(w, 32) for w in words))
        self.stored("shared")

    def _ldmatrix(self, i: Instruction) -> None:
        target, source = i.operands
        words = target.items if isinstance(target, Vector) else (target,)
        form = f"x{len(words)}{'.trans' if 'trans' in i.modifiers else ''}"
        address = self._shared_address(source)
        state = self.state("shared")
        self.event("ldmatrix", form, address, state)
        for k, word in enumerate(words):
            self.result(word, self.terms.data(32, 32, "ldmatrix", form, k, address, state))

    def _wgmma(self, i: Instruction) -> None:
        m = i.modifiers
        if m[0] != "mma_async":
            pending = self.values.number(self.get(i.operands[0], 32)) if i.operands else None
            self.event(f"wgmma.{m[0]}", *(() if pending is None else (pending,)))
            return
        target, a, b, scale, *rest = i.operands
        assert isinstance(target, Vector)
        accumulators = [self.get(r, 32) for r in target.items]
        left = [self.get(r, 32) for r in a.items] if isinstance(a, Vector) else [self.get(a, 64)]
        right = self.get(b, 64)
        scaled = self.predicate(scale) if not isinstance(scale, Immediate) else self.cases.true if scale.bits else 0
        flags = ",".join(str(self.values.number(self.get(r, 32))) for r in rest)
        flag = {0: 0, self.cases.true: 1}.get(scaled if isinstance(scaled, int) else -1)
        if flag is None:
            raise Undecided("wgmma whose scale-d varies", f"line {i.line}")
        made = self.event(f"wgmma.{'.'.join(m[3:])}", flags, flag, right, *left, *accumulators)
        self.marks[i.index] = made
        for k, r in enumerate(target.items):
            self.result(r, self.terms.data(32, 32, "result", "ptx", i.index, k))

    def _bra(self, i: Instruction) -> None:
        """Edges hold what a branch does."""

    def _ret(self, i: Instruction) -> None:
        """The end."""

    _exit = _ret
