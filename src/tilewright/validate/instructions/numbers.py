"""Integers, floats, predicates, and moves between registers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.ptx.syntax import Immediate, Instruction, Operand, Pair, Register, Vector
from tilewright.validate.arithmetic import bits_of
from tilewright.validate.instructions.evaluate import Instructions
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import NOTHING
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value

_DIRECTED = ("rz", "rm", "rp")
"""Rounding that no op of the IR asks for: functions of the library are written with it."""
_FLOAT_UNARY = ("ex2", "rcp", "sqrt", "rsqrt", "lg2", "sin", "cos", "tanh")


def _mov(machine: Instructions, i: Instruction) -> None:
    target, source = i.operands
    if i.modifiers[-1] == "pred":
        machine.result(target, machine.predicate(source))
    elif isinstance(target, Vector):
        width = machine.width(i)
        word, part = machine.get(source, width), width // len(target.items)
        for k, item in enumerate(target.items):
            machine.result(item, machine.values.field(word, k * part, part, part))
    else:
        machine.result(target, machine.get(source, machine.width(i)))


def _cvta(machine: Instructions, i: Instruction) -> None:
    value = machine.get(i.operands[1], machine.width(i))
    spaces = [m for m in i.modifiers if m in ("shared", "local", "const")]
    if spaces:
        window = machine.terms.of(value.width, machine.terms.atom("window", spaces[0], low=0))
        value = machine.values.sub(value, window) if "to" in i.modifiers else machine.values.add(value, window)
    machine.result(i.operands[0], value)


def _binary(
    machine: Instructions, i: Instruction, integers: Callable[[Value, Value], Value], floats: Callable[..., Value]
) -> None:
    kind = i.modifiers[-1]
    a, b = machine.two(i, bits_of(kind))
    if kind == "f32" and i.modifiers[0] in _DIRECTED and len(i.modifiers) == 2:
        machine.result(i.operands[0], machine.values.apply(32, i.name, a, b))
    elif kind == "f32":
        _plain_f32(i)
        machine.result(i.operands[0], floats(a, b))
    elif kind[0] in "usb":
        if "sat" in i.modifiers or "cc" in i.modifiers:
            raise Undecided(f"{i.name} is not known", f"line {i.line}")
        machine.result(i.operands[0], integers(a, b))
    else:
        machine.result(i.operands[0], machine.values.apply(bits_of(kind), i.name, a, b))


def _plain_f32(i: Instruction) -> None:
    odd = [m for m in i.modifiers if m not in ("rn", "f32")]
    if odd:
        raise Undecided(f"{i.name} is not known", f"line {i.line}")


def _add(machine: Instructions, i: Instruction) -> None:
    terms, reciprocals = machine.terms, machine.arithmetic.reciprocals

    def integers(a: Value, b: Value) -> Value:
        return machine.values.lift(lambda x, y: reciprocals.added(x, y, terms.add(x, y)), a, b)

    _binary(machine, i, integers, machine.floats.add)
    if i.modifiers[-1] in ("s64", "u64"):
        _sum_rests_on_half(machine, *i.operands)


def _sum_rests_on_half(machine: Instructions, target: Operand, word: Operand, number: Operand) -> None:
    """The lower half of a word and a number rests on what the lower half of the word does: their sum modulo 2**32."""
    if isinstance(word, Register) and word.name in machine.halves and isinstance(number, Immediate):
        plain = machine.values.lift(machine.terms.add, machine.get(word, 64), machine.get(number, 64))
        if isinstance(target, Register) and plain == machine.program.value(target.name):
            machine.used = machine.halves[word.name]
            machine.rests_on_half(target)


def _sub(machine: Instructions, i: Instruction) -> None:
    def integers(a: Value, b: Value) -> Value:
        return machine.values.lift(machine.arithmetic.reciprocals.subtracted, a, b)

    _binary(machine, i, integers, machine.floats.sub)


def _mul(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    if kind[0] not in "us":
        _binary(machine, i, machine.values.mul, machine.floats.mul)
        return
    width = bits_of(kind)
    a, b = machine.two(i, width)
    if "lo" in i.modifiers:
        machine.result(i.operands[0], machine.values.mul(a, b))
        return
    if "wide" in i.modifiers:
        machine.result(i.operands[0], machine.values.lift(lambda x, y: _doubled(machine, kind, x, y), a, b))
    else:
        machine.result(i.operands[0], machine.values.lift(lambda x, y: _upper(machine, i, x, y), a, b))


def _upper(machine: Instructions, i: Instruction, a: Poly, b: Poly) -> Value:
    """The upper half of a product, which may be a quotient."""
    kind, arithmetic = i.modifiers[-1], machine.arithmetic
    width = bits_of(kind)
    if kind == "s32" and arithmetic.is_data(a) and (found := arithmetic.reciprocals.upper(a, b)) is not None:
        return found
    high = machine.terms.resize(machine.terms.floordiv(_wide(machine, kind, a, b), 1 << width), width)
    if kind == "s32" and machine.terms.number(b) is not None:
        arithmetic.signed_quotients.multiplied(arithmetic.factor(a), i.line)
        quotient = arithmetic.signed_quotients.quotient(high, 0)
        if quotient is not None:
            return quotient
    return arithmetic.quotient_by_reciprocal(high, 0, signed=True) or high


def _doubled(machine: Instructions, kind: str, a: Poly, b: Poly) -> Poly:
    """The product in a word of twice the width; of a coordinate that is one of several numbers, of each."""
    width = 2 * bits_of(kind)
    return machine.values.each_number(lambda p: machine.terms.resize(_wide(machine, kind, p, b), width), a)


def _wide(machine: Instructions, kind: str, a: Poly, b: Poly) -> Poly:
    if kind[0] == "s":
        return machine.terms.mul(*(machine.arithmetic.factor(p) for p in (a, b)))
    x, y = machine.terms.unsigned(a), machine.terms.unsigned(b)
    for p in (x, y):
        number = machine.terms.number(p)
        if number is not None and number < 0:
            raise AssertionError("an unsigned constant")
    return machine.terms.mul(x, y)


def _mad(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    if kind[0] not in "us" or "hi" in i.modifiers or "cc" in i.modifiers:
        raise Undecided(f"{i.name} is not known", f"line {i.line}")
    width = bits_of(kind)
    a, b = machine.two(i, width)
    if "wide" in i.modifiers:
        product = machine.values.resize(machine.values.lift(lambda x, y: _wide(machine, kind, x, y), a, b), 2 * width)
        width *= 2
    else:
        product = machine.values.mul(a, b)
    machine.result(i.operands[0], machine.values.add(product, machine.get(i.operands[3], width)))


def _fma(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    width = bits_of(kind)
    a, b = machine.two(i, width)
    c = machine.get(i.operands[3], width)
    if kind == "f32":
        machine.result(i.operands[0], machine.floats.fma(a, b, c, ".".join(i.modifiers)))
    else:
        machine.result(i.operands[0], machine.values.apply(width, i.name, a, b, c))


def _div(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    width = bits_of(kind)
    a, b = machine.two(i, width)
    if kind == "f32":
        machine.result(i.operands[0], machine.floats.div(a, b, ".".join(i.modifiers)))
        return
    machine.result(i.operands[0], _divided(machine, kind, a, b)[0])


def _rem(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    a, b = machine.two(i, bits_of(kind))
    machine.result(i.operands[0], _divided(machine, kind, a, b)[1])


def _divided(machine: Instructions, kind: str, a: Value, b: Value) -> tuple[Value, Value]:
    data = any(machine.arithmetic.is_data(p) for v in (a, b) for _, p in machine.values.parts(v))
    width = bits_of(kind)
    if data:
        return machine.arithmetic.divided_words(kind, a, b, machine.holds)
    read = machine.arithmetic.signed if kind[0] == "s" else partial(_unsigned, machine)
    quotient = machine.values.lift(lambda x, y: machine.arithmetic.quotient(read(x), read(y)), a, b)
    quotient = machine.values.resize(quotient, width)
    return quotient, machine.values.sub(a, machine.values.mul(quotient, b))


def _unsigned(machine: Instructions, p: Poly) -> Poly:
    """The unsigned reading of a word, which wraps nowhere if a branch has asked for a number that fits it."""
    whole = machine.terms.resize(p, 0)
    wraps = machine.terms.floordiv(whole, 1 << p.width)
    low = machine.terms.interval(whole)[0]
    if low is None or low < 0 or machine.cases.both(machine.holds, machine.cases.at_least(wraps, 1)) != 0:
        return machine.terms.unsigned(p)
    return whole


def _neg(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    a = machine.get(i.operands[1], bits_of(kind))
    if kind == "f32":
        machine.result(i.operands[0], machine.floats.neg(a))
    elif kind[0] == "s":
        machine.result(i.operands[0], machine.values.scale(a, -1))
    else:
        machine.result(i.operands[0], machine.values.apply(bits_of(kind), i.name, a))


def _absolute(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    width = bits_of(kind)
    a = machine.get(i.operands[1], width)
    if kind == "f32":
        machine.result(i.operands[0], machine.floats.absolute(a))
    elif kind[0] == "s":
        negative = machine.arithmetic.compare("lt", kind, a, machine.terms.const(width, 0))
        machine.result(i.operands[0], machine.values.select(negative, machine.values.scale(a, -1), a))
    else:
        machine.result(i.operands[0], machine.values.apply(width, i.name, a))


def _not(machine: Instructions, i: Instruction) -> None:
    if i.modifiers[-1] == "pred":
        machine.result(i.operands[0], machine.cases.negate(machine.predicate(i.operands[1])))
        return
    width = machine.width(i)
    ones = machine.terms.const(width, -1)
    machine.result(i.operands[0], machine.values.sub(ones, machine.get(i.operands[1], width)))


def _logic(machine: Instructions, i: Instruction) -> None:
    if i.modifiers[-1] == "pred":
        a, b = (machine.predicate(o) for o in i.operands[1:3])
        join = {"and": machine.cases.both, "or": machine.cases.either, "xor": machine.cases.differ}[i.opcode]
        machine.result(i.operands[0], join(a, b))
        return
    a, b = machine.two(i, machine.width(i))
    machine.result(i.operands[0], machine.values.lift(lambda x, y: machine.arithmetic.bitwise(i.opcode, x, y), a, b))


def _shift(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    a, by = machine.get(i.operands[1], bits_of(kind)), machine.get(i.operands[2], 32)
    signed, target = kind[0] == "s", i.operands[0]
    if i.opcode == "shr" and bits_of(kind) == 64 and machine.values.number(by) == 32:
        machine.rests_on_half(target)
    machine.result(
        target,
        machine.arithmetic.shifted(i.opcode, a, by, signed=signed),
    )


def _funnel_shift(machine: Instructions, i: Instruction) -> None:
    operands = (machine.get(o, 32) for o in i.operands[1:4])
    machine.result(i.operands[0], machine.values.apply(32, i.name, *operands))


def _bfi(machine: Instructions, i: Instruction) -> None:
    width = machine.width(i)
    a, b = machine.get(i.operands[1], width), machine.get(i.operands[2], width)
    at, count = (machine.values.number(machine.get(o, 32)) for o in i.operands[3:5])
    if at is None or count is None or not 0 <= at < width or count < 0:
        raise Undecided(f"{i.name} at a place that varies", f"line {i.line}")
    count = min(count, width - at)
    old = machine.values.scale(machine.values.field(b, at, count, width), 1 << at)
    new = machine.values.scale(machine.values.field(a, 0, count, width), 1 << at)
    machine.result(i.operands[0], machine.values.add(machine.values.sub(b, old), new))


def _bfe(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    width = bits_of(kind)
    at, count = (machine.values.number(machine.get(o, 32)) for o in i.operands[2:4])
    if at is None or count is None or kind[0] != "u":
        raise Undecided(f"{i.name} at a place that varies", f"line {i.line}")
    machine.result(i.operands[0], machine.values.field(machine.get(i.operands[1], width), at, count, width))


def _prmt(machine: Instructions, i: Instruction) -> None:
    a, b, selector = (machine.get(o, 32) for o in i.operands[1:4])
    number = machine.values.number(selector)
    if number is None or len(i.modifiers) > 1:
        machine.result(i.operands[0], machine.values.apply(32, i.name, a, b, selector))
        return
    machine.result(
        i.operands[0], machine.values.lift(lambda x, y: machine.arithmetic.permuted(x, y, number & 0xFFFF), a, b)
    )


def _extreme(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    width = bits_of(kind)
    a, b = machine.two(i, width)
    if kind[0] not in "us":
        machine.result(i.operands[0], machine.floats.extreme(i.name, a, b))
        return
    machine.result(i.operands[0], machine.arithmetic.least(kind, a, b, i.opcode))


def _setp(machine: Instructions, i: Instruction) -> None:
    kind, name, target = i.modifiers[-1], i.modifiers[0], i.operands[0]
    a, b = machine.two(i, bits_of(kind))
    if kind[0] in "usb":
        found = machine.arithmetic.compare(name, kind, a, b)
    else:
        found = machine.arithmetic.compare_floats(name, a, b, kind)
    if len(i.operands) > 3:
        other = machine.predicate(i.operands[3])
        join = {"and": machine.cases.both, "or": machine.cases.either, "xor": machine.cases.differ}[i.modifiers[1]]
        found = join(found, other)
    if isinstance(target, Pair):
        raise Undecided("setp with two results", f"line {i.line}")
    machine.result(target, found)


def _copysign(machine: Instructions, i: Instruction) -> None:
    kind = i.modifiers[-1]
    machine.result(i.operands[0], machine.values.apply(bits_of(kind), i.name, *machine.two(i, bits_of(kind))))


def _selp(machine: Instructions, i: Instruction) -> None:
    test = machine.predicate(i.operands[3])
    before, machine.used = machine.used, NOTHING
    a, first = machine.get(i.operands[1], machine.width(i)), machine.used
    machine.used = NOTHING
    b, second = machine.get(i.operands[2], machine.width(i)), machine.used
    machine.used = before | machine.when(first, test) | machine.when(second, machine.cases.negate(test))
    machine.result(i.operands[0], machine.arithmetic.selected(test, a, b))


def _function(machine: Instructions, i: Instruction) -> None:
    width = machine.width(i)
    x = machine.get(i.operands[1], width)
    if i.name == "rcp.rn.f32":  # rounded as the quotient is
        machine.result(i.operands[0], machine.floats.div(machine.floats.constant(1.0), x, "rn.f32"))
        return
    machine.result(i.operands[0], machine.values.apply(width, i.name, x))


OPCODES: dict[str, Callable[[Instructions, Instruction], None]] = {
    "mov": _mov,
    "cvta": _cvta,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "mad": _mad,
    "fma": _fma,
    "div": _div,
    "rem": _rem,
    "neg": _neg,
    "abs": _absolute,
    "bfi": _bfi,
    "bfe": _bfe,
    "prmt": _prmt,
    "setp": _setp,
    "copysign": _copysign,
    "selp": _selp,
    "not": _not,
    "and": _logic,
    "or": _logic,
    "xor": _logic,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel_shift,
    "min": _extreme,
    "max": _extreme,
    **dict.fromkeys(_FLOAT_UNARY, _function),
}
