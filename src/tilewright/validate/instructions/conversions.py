"""cvt, between integers and floats of all widths."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ptx.syntax import (
    Instruction,
    Operand,
    Register,
)
from tilewright.validate.arithmetic import bits_of
from tilewright.validate.instructions.evaluate import Instructions
from tilewright.validate.polynomials import Poly
from tilewright.validate.values import Value


def _cvt(machine: Instructions, i: Instruction) -> None:
    forms, to, source = i.modifiers[:-2], i.modifiers[-2], i.modifiers[-1]
    values = machine.values
    if len(i.operands) == 3:  # two sources are packed, the second one lower
        kind = {"bf16x2": "bf16", "f16x2": "f16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}[to]
        size = 8 if kind[0] == "e" else 16
        high, low = (_rounded(machine, kind, forms, machine.get(o, 32)) for o in i.operands[1:3])
        width = 2 * size
        low, high = (values.field(word, 0, size, width) for word in (low, high))
        machine.result(i.operands[0], values.add(low, values.scale(high, 1 << size)))
        return
    integers = (to[0] in "us" and source[0] in "us") and not forms
    if integers:
        a = machine.get(i.operands[1], machine.register_width(i.operands[1], bits_of(source)))
        width = machine.register_width(i.operands[0], bits_of(to))
        _rests_on_halves(machine, i.operands[0], i.operands[1], bits_of(to), bits_of(source))
        machine.result(
            i.operands[0], values.lift(lambda x: _integer(machine, x, to, source, width), values.unfolded(a))
        )
        return
    if source in ("bf16", "f16") and to == "f32" and not forms:
        word = machine.get(i.operands[1], 16)
        machine.result(i.operands[0], widened(machine, source, word))
        return
    if source == "f32" and to in ("bf16", "f16", "tf32"):
        machine.result(i.operands[0], _rounded(machine, to, forms, machine.get(i.operands[1], 32)))
        return
    if source in ("e4m3x2", "e5m2x2"):
        word = machine.get(i.operands[1], 16)
        bytes_ = (values.field(word, 8 * k, 8, 8) for k in (0, 1))
        parts = (values.lift(lambda x: machine.terms.data(16, 16, f"cvt.f16.{source[:4]}", x), b) for b in bytes_)
        low, high = (values.field(p, 0, 16, 32) for p in parts)
        machine.result(i.operands[0], values.add(low, values.scale(high, 1 << 16)))
        return
    width = machine.register_width(i.operands[0], bits_of(to))
    held = machine.register_width(i.operands[1], bits_of(source))
    a = machine.get(i.operands[1], held)
    if to == "f32" and source[0] in "us" and forms == ("rn",):
        if held > bits_of(source):
            a = values.lift(lambda x: _integer(machine, x, source, source, held), a)
        machine.result(i.operands[0], machine.arithmetic.float_of(a, signed=source[0] == "s"))
        return
    machine.result(i.operands[0], values.apply(width, i.name, a))


def _rests_on_halves(machine: Instructions, target: Operand, source: Operand, wanted: int, size: int) -> None:
    """A word that is extended and cut again is what it was, in range or not: it rests on what the word does. So does
    the upper half of a word, shifted down."""
    if wanted > size:
        machine.rests_on_half(target)
    elif wanted == 32 and isinstance(source, Register) and source.name in machine.halves:
        machine.used = machine.halves[source.name]


def _integer(machine: Instructions, x: Poly, to: str, source: str, width: int) -> Poly:
    size, wanted = bits_of(source), bits_of(to)
    if wanted <= size:
        low = machine.terms.field(x, 0, wanted, width)
        if to[0] == "s" and wanted < width:
            return machine.arithmetic.extended(x, wanted, width)
        return machine.terms.resize(x, width) if wanted == size == x.width else low
    if source[0] == "s":
        return machine.arithmetic.extended(x, size, width) if x.width > size else _lifted(machine, x, size, width)
    return machine.terms.field(x, 0, size, width)


def _lifted(machine: Instructions, x: Poly, size: int, width: int) -> Poly:
    return machine.arithmetic.extended(x, size, width)


def widened(machine: Instructions, kind: str, word: Value) -> Value:
    """A 16-bit float as f32: a bf16 is the upper half of one."""
    return machine.floats.widened(kind, word)


def _rounded(machine: Instructions, kind: str, forms: tuple[str, ...], word: Value) -> Value:
    size = {"bf16": 16, "f16": 16, "tf32": 32}.get(kind, 8)
    name = f"cvt.{'.'.join(forms)}.{kind}.f32"
    return machine.floats.rounded(kind, size, name, word)


OPCODES: dict[str, Callable[[Instructions, Instruction], None]] = {
    "cvt": _cvt,
}
