"""The scalar ops of a map's body as PTX computes them: what each op of the tile dialect means, per dtype and policy.

Floats narrower than f32 are computed in it and rounded after each operation; integers of 8 and 16 bits are computed in
32 bits with a sign, and wrap. Where an op is a function of a library, its meaning is the library's PTX (``library``),
evaluated on the operand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from xdsl.ir import Block, SSAValue

from tilewright.base.dtypes import DType, u32
from tilewright.base.expr import Expr
from tilewright.hw.approximations import APPROXIMATIONS
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_in
from tilewright.transport import dialect as t
from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Poly
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Choice, Value

Scalar: TypeAlias = "Value | Condition"
"""A word as it is computed with, for bools a condition."""
_ROUND = {
    "bf16": (16, "cvt.rn.bf16.f32"),
    "f16": (16, "cvt.rn.f16.f32"),
    "e4m3": (8, "cvt.rn.satfinite.e4m3.f32"),
    "e5m2": (8, "cvt.rn.satfinite.e5m2.f32"),
    "tf32": (32, "cvt.rna.tf32.f32"),
}
_STAYS = frozenset(("not", "and", "or", "xor", "shr", "mod", "min", "max"))


_WHOLE = frozenset(("floor", "ceil", "round", "trunc"))
"""Whole numbers between two values of a dtype are values of the dtype."""


class Scalars:
    """Evaluates bodies. ``library(name, *xs)`` is a library function of f32s."""

    def __init__(self, arithmetic: Arithmetic, library: Callable[..., Value]):
        self.arithmetic, self.library = arithmetic, library
        self.values, self.terms, self.cases = arithmetic.values, arithmetic.terms, arithmetic.cases
        self.floats = arithmetic.floats

    # -- storage --------------------------------------------------------------------------------------------------
    def unpack(self, dtype: DType, word: Value) -> Scalar:
        """A stored element as it is computed with."""
        if dtype.is_bool:
            return self.cases.negate(
                self.values.test(lambda x: self.arithmetic.compare_data("eq", "u8", x, self.terms.const(8, 0)), word)
            )
        if dtype.is_float:
            return self.widened(dtype, word)
        return self._integer(dtype, word) if dtype.bits < 32 else word

    def _integer(self, dtype: DType, word: Value) -> Value:
        """The element of a narrow dtype that the low bits of a word say, in 32 bits."""
        if not dtype.signed:
            return self.values.field(word, 0, dtype.bits, 32)
        return self.values.lift(lambda x: self.arithmetic.extended(x, dtype.bits, 32), word)

    def pack(self, dtype: DType, value: Scalar) -> Value:
        """A computed value as it is stored."""
        if dtype.is_bool:
            assert not isinstance(value, Poly | Choice)
            return self.arithmetic.as_word(value, 8)
        assert isinstance(value, Poly | Choice)
        if dtype.is_float:
            return self.narrowed(dtype, value)
        return self.values.field(value, 0, dtype.bits, dtype.bits) if dtype.bits < 32 else value

    def widened(self, dtype: DType, word: Value) -> Value:
        """A float as f32."""
        if dtype.name in ("f32", "tf32"):
            return word
        if dtype.name == "e4m3" or dtype.name == "e5m2":
            half = self.values.lift(lambda x: self.terms.data(16, 16, f"cvt.f16.{dtype.name}", x), word)
            return self.floats.widened("f16", half)
        return self.floats.widened(dtype.name, word)

    def narrowed(self, dtype: DType, value: Value) -> Value:
        """An f32 rounded to a dtype."""
        if dtype.name == "f32":
            return value
        size, name = _ROUND[dtype.name]
        return self.floats.rounded(dtype.name, size, name, value)

    # -- bodies ---------------------------------------------------------------------------------------------------
    def body(
        self,
        block: Block,
        given: dict[SSAValue, Scalar],
        expression: Callable[[Expr], Value],
        predicate: Callable[[Expr], Condition],
    ) -> list[Scalar]:
        """The values that a body yields."""
        values = dict(given)
        raw: dict[SSAValue, Scalar] = dict(given)
        for op in ops_in(block):
            if isinstance(op, t.Yield):
                return [raw[v] for v in op.values]
            result = op.results[0]
            assert isinstance(result.type, tile.TileType)
            dtype = result.type.dtype.dtype
            value, exact = self._operation(op, dtype, values, expression, predicate)
            raw[result] = value
            if not exact and not dtype.is_bool:
                assert isinstance(value, Poly | Choice)
                if dtype.is_float and dtype.name != "f32":
                    value = self.widened(dtype, self.narrowed(dtype, value))
                elif dtype.is_int and dtype.bits < 32:
                    value = self._integer(dtype, value)
            values[result] = value
        raise AssertionError("a map's body ends with a yield")

    def _operation(
        self,
        op: object,
        dtype: DType,
        values: dict[SSAValue, Scalar],
        expression: Callable[[Expr], Value],
        predicate: Callable[[Expr], Condition],
    ) -> tuple[Scalar, bool]:
        width = 64 if dtype.bits == 64 else 32
        match op:
            case tile.Constant():
                return self.constant(op.value.data, dtype), True
            case tile.ScalarExpr():
                return self.values.resize(expression(op.expr.expr), width), True
            case t.Predicate():
                return predicate(op.expr.expr), True
            case tile.Unary():
                return self._unary(op, dtype, values)
            case tile.Binary():
                a, b = values[op.operands[0]], values[op.operands[1]]
                return self.binary(op.fn.data, dtype, a, b)
            case tile.Fma() | t.Fma():
                a, b, c = (self._word(values[v]) for v in op.operands)
                return self.floats.fma(a, b, c), True
            case t.Approximate():
                return self.values.apply(32, APPROXIMATIONS[op.fn.data].instruction, self._word(values[op.x])), True
            case t.ExponentScale():
                return self._exponent_scale(*(self._word(values[v]) for v in op.operands)), True
            case tile.Compare():
                source = tile.tile_type(op.operands[0]).element
                return self.compare(op.fn.data, source, values[op.operands[0]], values[op.operands[1]]), True
            case tile.Select():
                c, a, b = (values[v] for v in op.operands)
                assert not isinstance(c, Poly | Choice)
                if dtype.is_bool:
                    return self.cases.either(self.cases.both(c, a), self.cases.without(b, c)), True  # pyright: ignore
                assert isinstance(a, Poly | Choice)
                assert isinstance(b, Poly | Choice)
                return self.values.select(c, a, b), True
            case tile.Bitcast():
                return self.unpack(dtype, self.pack(tile.tile_type(op.x).element, values[op.x])), True
            case tile.Cast():
                return self._cast(op, dtype, values[op.operands[0]])
            case _:
                raise Undecided(f"op {getattr(op, 'name', op)}")

    def _word(self, value: Scalar) -> Value:
        assert isinstance(value, Poly | Choice)
        return value

    def constant(self, value: float | int, dtype: DType) -> Scalar:
        """A constant as it is computed with."""
        if dtype.is_bool:
            return self.cases.true if value else 0
        if dtype.is_int:
            return self.terms.const(64 if dtype.bits == 64 else 32, int(value))
        if value != value:
            return self.floats.bits(0x7FFFFFFF)
        with np.errstate(over="ignore"):
            return self.floats.bits(struct.unpack("<I", np.float32(value).tobytes())[0])

    def _unary(self, op: tile.Unary, dtype: DType, values: dict[SSAValue, Scalar]) -> tuple[Scalar, bool]:
        fn, x = str(op.fn.data), values[op.operands[0]]
        if dtype.is_bool:
            return self.cases.negate(x), True  # pyright: ignore[reportArgumentType]
        assert isinstance(x, Poly | Choice)
        if dtype.is_float:
            if fn in ("neg", "abs"):
                return (self.floats.neg(x) if fn == "neg" else self.floats.absolute(x)), True
            if fn == "sqrt":
                return self.values.apply(32, "sqrt.rn.f32", x), False
            return self.library(fn, x), fn in _WHOLE
        if fn == "neg":
            return self.values.scale(x, -1), False
        if fn == "not":
            return self.values.sub(self.terms.const(x.width, -1), x), dtype.signed
        if not dtype.signed:
            return x, True
        negative = self.arithmetic.compare("lt", "s32", x, self.terms.const(x.width, 0))
        return self.values.select(negative, self.values.scale(x, -1), x), False

    def _exponent_scale(self, scale: Value, b: Value) -> Value:
        """The scale, or beside a great b the power of two of its sign that makes 2^31 or more of |b|."""

        def integer(fn: str, x: Value | int, y: Value | int) -> Value:
            return self._int_binary(fn, u32, *(self.terms.const(32, v) if isinstance(v, int) else v for v in (x, y)))

        power = integer("sub", 285 << 23, integer("and", b, 255 << 23))
        power = integer("or", integer("and", scale, 1 << 31), power)
        limit = integer("min", integer("sub", 0x7F7FFFFF, self.floats.absolute(scale)), 0x7215FFFF)
        limit = integer("add", limit, 0x0D6A0001)
        far = self.arithmetic.compare_floats("ge", self.floats.absolute(b), limit)
        return self.values.select(far, power, scale)

    def binary(self, fn: str, dtype: DType, a: Scalar, b: Scalar) -> tuple[Scalar, bool]:
        """One op of two operands; whether the result is of the dtype as it is."""
        if dtype.is_bool:
            return self._logic(fn, a, b), True  # pyright: ignore[reportArgumentType]
        assert isinstance(a, Poly | Choice)
        assert isinstance(b, Poly | Choice)
        if dtype.is_float:
            return self._float_binary(fn, a, b), fn in ("min", "max")
        return self._int_binary(fn, dtype, a, b), fn in _STAYS

    def _logic(self, fn: str, a: Condition, b: Condition) -> Condition:
        if fn in ("add", "max", "or", "sum"):
            return self.cases.either(a, b)
        if fn in ("mul", "min", "and"):
            return self.cases.both(a, b)
        return self.cases.differ(a, b)

    def _float_binary(self, fn: str, a: Value, b: Value) -> Value:
        floats = self.floats
        match fn:
            case "add" | "sum":
                return floats.add(a, b)
            case "sub":
                return floats.sub(a, b)
            case "mul" | "prod":
                return floats.mul(a, b)
            case "div":
                return floats.div(a, b, "rn.f32")
            case "min" | "max":
                return floats.extreme(f"{fn}.NaN.f32", a, b)
            case "pow" | "atan2" | "hypot" | "fmod" | "mod" | "floordiv":
                return self.library(fn, a, b)
            case _:
                raise Undecided(f"{fn} of floats")

    def _int_binary(self, fn: str, dtype: DType, a: Value, b: Value) -> Value:
        values, kind = self.values, _kind(dtype)
        match fn:
            case "add" | "sum":
                return values.add(a, b)
            case "sub":
                return values.sub(a, b)
            case "mul" | "prod":
                return values.mul(a, b)
            case "and" | "or" | "xor":
                bits = min(dtype.bits, a.width)
                a, b = values.field(a, 0, bits, bits), values.field(b, 0, bits, bits)
                found = values.lift(lambda x, y: self.arithmetic.bitwise(fn, x, y), a, b)
                if bits >= 32:
                    return found
                return self._integer(dtype, found)
            case "shl" | "shr":
                return self._shift(fn, a, b, signed=kind[0] == "s")
            case "floordiv" | "mod" if kind[0] == "u":
                return self._divided_unsigned(a, b)[fn == "mod"]
            case "floordiv":
                return self._divided(kind, a, b)[0]
            case "mod":
                return self._divided(kind, a, b)[1]
            case "min" | "max":
                return self.arithmetic.least(kind, a, b, fn)
            case _:
                raise Undecided(f"{fn} of integers")

    def _shift(self, fn: str, a: Value, b: Value, *, signed: bool) -> Value:
        """A shift by any amount: beyond the word nothing is left of shl, and the sign of shr, if there is one."""
        values, width = self.values, a.width
        if fn == "shl" or not signed:
            inside = self.arithmetic.compare("lt", f"u{width}", b, self.terms.const(width, width))
            by = values.resize(b, 32)
            moved = values.lift(lambda x, y: self.arithmetic.shift(fn, x, y, signed=False), a, by)
            return values.select(inside, moved, self.terms.const(width, 0))
        by = values.resize(self.arithmetic.least(f"u{width}", b, self.terms.const(width, width - 1)), 32)
        return values.lift(lambda x, y: self.arithmetic.shift(fn, x, y, signed=True), a, by)

    def _divided_unsigned(self, a: Value, b: Value) -> tuple[Value, Value]:
        """The quotient of words without a sign, and what remains; both are 0 where the divisor is."""
        values, zero = self.values, self.terms.const(a.width, 0)
        none = self.arithmetic.compare("eq", f"u{a.width}", b, zero)
        quotient, rest = self.arithmetic.divided_words(f"u{a.width}", a, b, self.cases.true)
        return values.select(none, zero, quotient), values.select(none, zero, rest)

    def _divided(self, kind: str, a: Value, b: Value) -> tuple[Value, Value]:
        """Floor of the quotient, and what remains, with the divisor's sign; both are 0 where the divisor is."""
        values, cases, compare = self.values, self.cases, self.arithmetic.compare
        number = values.number(b)
        if number is not None and number > 0 and not any(self.arithmetic.is_data(p) for _, p in values.parts(a)):
            floor = values.lift(lambda x: self.terms.floordiv(self.arithmetic.signed(x), number), a)
            floor = values.resize(floor, a.width)
            return floor, values.sub(a, values.mul(floor, b))
        if number is not None and number > 0 and number & (number - 1) == 0:
            by, low = self.terms.const(32, number.bit_length() - 1), self.terms.const(a.width, number - 1)
            floor = values.lift(lambda x: self.arithmetic.shift("shr", x, by, signed=True), a)
            return floor, values.lift(lambda x: self.arithmetic.bitwise("and", x, low), a)
        zero, one = self.terms.const(a.width, 0), self.terms.const(a.width, 1)
        if self._is_counted(a) and self._is_counted(b):
            none, signed = compare("eq", kind, b, zero), self.arithmetic.signed
            quotient = values.lift(lambda x, y: self.arithmetic.divided(signed(x), signed(y)), a, b)
            quotient = values.resize(quotient, a.width)
            rest = values.sub(a, values.mul(quotient, b))
            return values.select(none, zero, quotient), values.select(none, zero, rest)
        none, minus = compare("eq", kind, b, zero), compare("eq", kind, b, self.terms.const(a.width, -1))
        quotient, rest = self.arithmetic.divided_words(kind, a, b, cases.true)
        left = compare("ne", kind, rest, zero)
        signs = cases.differ(compare("lt", kind, a, zero), compare("lt", kind, b, zero))
        below = values.sub(quotient, values.select(cases.both(left, signs), one, zero))
        floor = values.select(none, zero, values.select(minus, values.scale(a, -1), below))
        signs = cases.differ(compare("lt", kind, rest, zero), compare("lt", kind, b, zero))
        above = values.add(rest, values.select(cases.both(left, signs), b, zero))
        return floor, values.select(cases.either(none, minus), zero, above)

    def _is_counted(self, a: Value) -> bool:
        """A word that is counted with, no less than 0."""
        parts = [p for _, p in self.values.parts(a)]
        lows = [self.terms.interval(p)[0] for p in parts if not self.arithmetic.is_data(p)]
        return len(lows) == len(parts) and all(low is not None and low >= 0 for low in lows)

    def compare(self, fn: str, dtype: DType, a: Scalar, b: Scalar) -> Condition:
        """A comparison; all but ``ne`` are false where an operand is NaN."""
        if dtype.is_bool:
            apart = self.cases.differ(a, b)  # pyright: ignore[reportArgumentType]
            return self.cases.negate(apart) if fn == "eq" else apart
        assert isinstance(a, Poly | Choice)
        assert isinstance(b, Poly | Choice)
        if dtype.is_float:
            return self.arithmetic.compare_floats("neu" if fn == "ne" else fn, a, b)
        return self.arithmetic.compare(fn, _kind(dtype), a, b)

    def _cast(self, op: tile.Cast, dtype: DType, x: Scalar) -> tuple[Scalar, bool]:
        source = tile.tile_type(op.operands[0]).element
        if dtype.is_bool:
            if source.is_bool:
                return x, True
            zero = self.constant(0, source)
            return self.compare("ne", source, x, zero), True
        if source.is_bool:
            word = self.arithmetic.as_word(x, 64 if dtype.bits == 64 else 32)  # pyright: ignore[reportArgumentType]
            if dtype.is_float:
                one = self.values.select(x, self.floats.constant(1.0), self.floats.constant(0.0))  # pyright: ignore
                return one, True
            return word, True
        assert isinstance(x, Poly | Choice)
        if dtype.is_float and source.is_float:
            widened = source.digits <= dtype.digits and source.bits <= dtype.bits
            return x, widened and (source == dtype or dtype.bits == 32)
        if dtype.is_float:
            return self.arithmetic.float_of(x, signed=_kind(source)[0] == "s"), False
        width = 64 if dtype.bits == 64 else 32
        if source.is_float:
            whole: Value = self.values.apply(width, f"cvt.rzi.{_kind(dtype)}.f32", x)
            return (self._clamped(whole, *dtype.integers) if dtype.bits < 32 else whole), True
        if x.width == width:
            return x, dtype.holds(source)
        if width == 64 and _kind(source) == "u32":
            return self.values.field(x, 0, 32, 64), True
        if width == 64:
            self.values.extended.update(p for _, p in self.values.parts(x))
            return self.values.lift(lambda p: self.arithmetic.extended(p, 32, 64), x), True
        return self.values.resize(x, 32), False

    def _clamped(self, whole: Value, *ends: int) -> Value:
        """The nearest integer between two ends."""
        least, most = (self.terms.const(whole.width, n) for n in ends)
        below = self.arithmetic.least("s32", whole, most)
        return self.arithmetic.least("s32", below, least, "max")


def _kind(dtype: DType) -> str:
    """The type in which integers are computed with: narrow ones with a sign, whatever their own."""
    return "s64" if dtype.bits == 64 else "s32" if dtype.signed or dtype.bits < 32 else "u32"
