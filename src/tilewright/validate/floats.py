"""Normal form of floating-point operations: each identity holds bit for bit, NaN payloads apart (IEEE 754-2019).

An operation is an atom named after its PTX instruction. ``a - b`` is ``a + (-b)``; a sign moves out of products,
quotients and fused products; sums and products are commutative; a constant absorbs the sign of what it is multiplied
with. The result of an operation on a NaN is some NaN on either side: payloads are not compared.
"""

from __future__ import annotations

import struct

import numpy as np

from tilewright.validate.constants import SIGN
from tilewright.validate.polynomials import Atom, Poly
from tilewright.validate.values import Choice, Value, Values

_EXTREMES = frozenset(("max.f32", "min.f32", "max.NaN.f32", "min.NaN.f32"))
"""Those that give one of their operands as it is: others flush it, or change its sign."""


class Floats:
    """Makes f32 operations over ``values``."""

    def __init__(self, values: Values):
        self.values = values
        self.terms = values.terms

    def constant(self, x: float) -> Poly:
        """An f32 constant."""
        return self.terms.const(32, struct.unpack("<I", struct.pack("<f", x))[0])

    def bits(self, pattern: int) -> Poly:
        """An f32 constant by its bits."""
        return self.terms.const(32, pattern)

    def _atom(self, value: Value, kind: str) -> Atom | None:
        atom = self.terms.single(value) if isinstance(value, Poly) else None
        return atom if atom is not None and atom.kind == kind else None

    def split(self, value: Value) -> tuple[bool, Value]:
        """A value as its sign, if the sign is separate, and the rest."""
        number = self.values.number(value)
        if number is not None:
            return bool(number & SIGN), self.bits(number & ~SIGN)
        atom = self._atom(value, "neg.f32")
        if atom is not None:
            (inner,) = atom.args
            assert isinstance(inner, Poly | Choice)
            return True, inner
        return False, value

    def neg(self, a: Value) -> Value:
        """-a."""
        negative, rest = self.split(a)
        number = self.values.number(rest)
        if number is not None:
            return self.bits(number | (0 if negative else SIGN))
        return rest if negative else self.values.apply(32, "neg.f32", rest)

    def absolute(self, a: Value) -> Value:
        """|a|."""
        _, rest = self.split(a)
        if self.values.number(rest) is not None or self._atom(rest, "abs.f32") is not None:
            return rest
        return self.values.apply(32, "abs.f32", rest)

    def add(self, a: Value, b: Value) -> Value:
        """a + b, rounded to nearest even. A sum with +0 is the other summand unless that can be -0."""
        for x, y in ((a, b), (b, a)):
            if self.values.number(x) == 0 and self.never_negative_zero(y):
                return y
            if self.values.number(x) in (SIGN, -SIGN):
                return y
        x, y = sorted((a, b), key=_order)
        return self.values.apply(32, "add.f32", x, y)

    def never_negative_zero(self, value: Value) -> bool:
        """A rounded sum is -0 only where both summands are."""
        number = self.values.number(value)
        if number is not None:
            return number & 0xFFFFFFFF != SIGN
        if isinstance(value, Choice):
            return all(self.never_negative_zero(p) for _, p in value.parts)
        atom = self._atom(value, "add.f32")
        return atom is not None and any(isinstance(x, Poly | Choice) and self.never_negative_zero(x) for x in atom.args)

    def sub(self, a: Value, b: Value) -> Value:
        """a - b."""
        return self.add(a, self.neg(b))

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, rounded to nearest even."""
        (s, x), (u, y) = self.split(a), self.split(b)
        for one, other in ((x, y), (y, x)):
            if self.values.number(one) == 0x3F800000:
                return self.neg(other) if s != u else other
        x, y = sorted((x, y), key=_order)
        return self._signed(s != u, self.values.apply(32, "mul.f32", x, y))

    def div(self, a: Value, b: Value, form: str) -> Value:
        """a / b. By a power of two it is a product with the reciprocal, where that is a float too: both are rounded
        from the same number."""
        (s, x), (u, y) = self.split(a), self.split(b)
        exponent, rest = divmod(self.values.number(y) or 0, 1 << 23)
        if form == "rn.f32" and rest == 0 and 0 < exponent < 254:
            return self._signed(s != u, self.mul(x, self.bits((254 - exponent) << 23)))
        return self._signed(s != u, self.values.apply(32, f"div.{form}", x, y))

    def fma(self, a: Value, b: Value, c: Value, form: str = "rn.f32") -> Value:
        """a * b + c, rounded once."""
        (s, x), (u, y) = self.split(a), self.split(b)
        if form != "rn.f32" and s != u:  # directed rounding: the sign stays with a factor
            x, s = self.neg(x), u
        x, y = sorted((x, y), key=_order)
        if s != u:
            x, y = (self.neg(x), y) if self.values.number(x) is not None else (x, self.neg(y))
        return self.values.apply(32, f"fma.{form}", x, y, c)

    def extreme(self, name: str, a: Value, b: Value) -> Value:
        """min or max, which are commutative; with the far infinity it is the other operand."""
        far = {"max.NaN.f32": 0xFF800000, "min.NaN.f32": 0x7F800000}.get(name)
        for x, y in ((a, b), (b, a)):
            number = self.values.number(x)
            if number is not None and number & 0xFFFFFFFF == far:
                return y
        if a is b and name in _EXTREMES:
            return a
        x, y = sorted((a, b), key=_order)
        return self.values.apply(32, name, x, y)

    def remade(self, kind: str, width: int, args: list[Value]) -> Value:
        """The operation of an atom on other operands."""
        match kind.split("."), args:
            case ["add", "f32"], [a, b]:
                return self.add(a, b)
            case ["mul", "f32"], [a, b]:
                return self.mul(a, b)
            case ["neg", "f32"], [a]:
                return self.neg(a)
            case ["abs", "f32"], [a]:
                return self.absolute(a)
            case ["fma", *form], [a, b, c]:
                return self.fma(a, b, c, ".".join(form))
            case ["div", form, "f32"], [a, b]:
                return self.div(a, b, f"{form}.f32")
            case ["max" | "min", *_], [a, b]:
                return self.extreme(kind, a, b)
            case ["cvt", "rn", "f32", "s32" | "s64"], [a] if (number := self.values.number(a)) is not None:
                return self.constant(float(np.float32(np.int64(number))))
            case ["cvt", *_, to, "f32"], [a] if to in ("bf16", "f16"):
                return self.rounded(to, width, kind, a)
            case _:
                return self.values.apply(width, kind, *args)

    def widened(self, kind: str, word: Value) -> Value:
        """A narrow float as f32. A bf16 is the upper half of one."""
        if kind == "bf16":
            return self.values.by_numbers(lambda x: self.terms.scale(self.terms.field(x, 0, 16, 32), 1 << 16), word)
        return self.values.lift(lambda x: self.terms.data(32, 32, f"cvt.f32.{kind}", x), word)

    def rounded(self, kind: str, size: int, name: str, word: Value) -> Value:
        """An f32 as a narrow float. What was widened from that type is what it was."""
        return self.values.by_numbers(lambda x: self._rounded(kind, size, name, x), word)

    def _rounded(self, kind: str, size: int, name: str, x: Poly) -> Poly:
        terms, forms = self.terms, name.split(".")
        if "relu" in forms or ("satfinite" in forms and size == 16):  # negative numbers, or infinities, become others
            return terms.data(size, size, name, x)
        if kind == "bf16" and x.terms and all(isinstance(c, int) and c % (1 << 16) == 0 for _, c in x.terms):
            return terms.field(x, 16, 16, 16)
        atom = terms.single(x)
        if atom is not None and atom.kind == f"cvt.f32.{kind}":
            (inner,) = atom.args
            assert isinstance(inner, Poly)
            return inner
        number = terms.number(x)
        if number is not None and number in (0, SIGN, -SIGN):
            return terms.const(size, 1 << (size - 1) if number else 0)
        return terms.data(size, size, name, x)

    def _signed(self, negative: bool, value: Value) -> Value:
        return self.neg(value) if negative else value


def _order(value: Value) -> tuple[bool, int]:
    return isinstance(value, Choice), value.id
