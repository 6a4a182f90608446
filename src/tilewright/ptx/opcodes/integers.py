"""Integer, logic, shift and selection instructions (PTX ISA 9.1, 9.7.1, 9.7.2, 9.7.6 to 9.7.8)."""

# Lambdas of the table take modifiers or arrays, as ``Row.build`` and ``Function`` say.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tilewright.ptx.opcodes.bit_vectors import (
    SIGNED,
    UNSIGNED,
    count_ones,
    is_signed,
    leading_zeros,
    number,
    product_high,
    product_wide,
    quotient,
    remainder,
    resize,
    reversed_bits,
    shift_left,
    shift_right,
    unsigned,
    width,
)
from tilewright.ptx.opcodes.rows import Bits, Function, Row

_U32 = np.uint32
_CARRIED = "u32/s32/u64/s64"
_NUMBERS = "u16/u32/u64/s16/s32/s64"
_ADDED: dict[str, Function] = {"add": operator.add, "sub": operator.sub}


def _saturated(name: str) -> Function:
    def compute(a: Bits, b: Bits) -> Bits:
        exact = _ADDED[name](a.view(np.int32).astype(np.int64), b.view(np.int32).astype(np.int64))
        return _clamped(exact)

    return compute


def _clamped(exact: Bits) -> Bits:
    return np.clip(exact, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)


def _mul(part: str, type: str) -> Function:
    return {
        "lo": lambda a, b: a * b,
        "hi": lambda a, b: product_high(a, b, type),
        "wide": lambda a, b: product_wide(a, b, type),
    }[part]


def _mad(part: str, type: str) -> Function:
    product = _mul(part, type)
    return lambda a, b, c: product(a, b) + c


def _mad_saturated(_hi: str, _sat: str, type: str) -> Function:
    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        high = product_high(a, b, type).view(np.int32).astype(np.int64)
        return _clamped(high + c.view(np.int32))

    return compute


def _mul24(part: str, type: str) -> Function:
    def compute(a: Bits, b: Bits) -> Bits:
        eight = SIGNED[32](8) if is_signed(type) else _U32(8)
        x, y = (number(v << _U32(8), type) >> eight for v in (a, b))
        wide = x.astype(np.int64) * y.astype(np.int64)
        return (wide >> (16 if part == "hi" else 0)).astype(np.uint32)

    return compute


def _mad24(part: str, type: str) -> Function:
    product = _mul24(part, type)
    return lambda a, b, c: product(a, b) + c


def _carry(name: str, reads: bool) -> Function:
    """``add.cc``, ``subc``: (result, carry); the carry of a subtraction is its borrow."""

    def compute(a: Bits, b: Bits, carry: Bits | None = None) -> tuple[Bits, Bits]:
        u = a.dtype.type
        c = np.asarray(carry).astype(u) if reads else u(0)
        if name == "add":
            first = a + b
            total = first + c
            return total, (first < a) | (total < first)
        first = a - b
        total = first - c
        return total, (a < b) | (first < c)

    return compute


def _mad_carry(part: str, type: str, reads: bool) -> Function:
    product, add = _mul(part, type), _carry("add", reads)
    return lambda a, b, c, *carry: add(product(a, b), c, *carry)


def _sad(type: str) -> Function:
    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        return c + np.where(number(a, type) < number(b, type), b - a, a - b)

    return compute


def _extremum(take: Any) -> Any:
    return lambda type: lambda a, b: take(number(a, type), number(b, type)).view(unsigned(type))


def _extremum_relu(take: Any) -> Any:
    def build(_relu: str, type: str) -> Function:
        zero = SIGNED[width(type)](0)
        return lambda a, b: np.maximum(take(number(a, type), number(b, type)), zero).view(unsigned(type))

    return build


def _halves(lane: Function) -> Function:
    """A packed ``x2`` operation, half by half."""

    def compute(*operands: Bits) -> Bits:
        low = lane(*((o & _U32(0xFFFF)).astype(np.uint16) for o in operands))
        high = lane(*((o >> _U32(16)).astype(np.uint16) for o in operands))
        return low.astype(np.uint32) | high.astype(np.uint32) << _U32(16)

    return compute


def _packed_extremum(take: Any) -> Any:
    def build(*chosen: str) -> Function:
        type = chosen[-1]
        lane = _extremum_relu(take)("relu", type[:3]) if "relu" in chosen else _extremum(take)(type[:3])
        return _halves(lane)

    return build


def _abs(type: str) -> Function:
    return lambda a: np.where(number(a, type) < 0, a.dtype.type(0) - a, a)


def _place(start: Bits, length: Bits, bits: int) -> tuple[Bits, Bits]:
    """The operands of ``bfe`` and ``bfi``: 8 bits each in 32-bit forms; 64-bit forms read all 32 (measured, H200)."""
    return (start & _U32(0xFF), length & _U32(0xFF)) if bits == 32 else (start, length)


def _bfe(type: str) -> Function:
    bits = width(type)
    u = UNSIGNED[bits]

    def compute(a: Bits, start: Bits, length: Bits) -> Bits:
        start, length = _place(start, length, bits)
        field = shift_right(a, start, f"u{bits}") & ~shift_left(~u(0) + np.zeros_like(a), length)
        if not is_signed(type):
            return field
        last = np.minimum(start.astype(np.int64) + length - 1, bits - 1)
        sign = (a >> np.maximum(last, 0).astype(u)) & u(1) & np.where(length > 0, u(1), u(0))
        inside = np.minimum(length, np.maximum(bits - start.astype(np.int64), 0)).astype(np.uint32)
        ones = shift_left(~u(0) + np.zeros_like(a), inside)
        return np.where(sign.astype(bool), field | ones, field)

    return compute


def _bfi(type: str) -> Function:
    u = unsigned(type)

    def compute(a: Bits, b: Bits, start: Bits, length: Bits) -> Bits:
        start, length = _place(start, length, width(type))
        mask = shift_left(~shift_left(~u(0) + np.zeros_like(b), length), start)
        return shift_left(a + np.zeros_like(b), start) & mask | b & ~mask

    return compute


def _bfind(amount: str, type: str) -> Function:
    bits = width(type)

    def compute(a: Bits) -> Bits:
        if is_signed(type):
            a = np.where(number(a, type) < 0, ~a, a)
        zeros = leading_zeros(a)
        return np.where(zeros == bits, _U32(0xFFFFFFFF), zeros if amount else _U32(bits - 1) - zeros)

    return compute


def _bmsk(mode: str, _type: str) -> Function:
    def compute(start: Bits, length: Bits) -> Bits:
        if mode == "wrap":
            start, length = start & _U32(31), length & _U32(31)
        ones = ~shift_left(~_U32(0) + np.zeros_like(length), length)
        return shift_left(ones + np.zeros_like(start), start)

    return compute


def _szext(mode: str, type: str) -> Function:
    def compute(a: Bits, size: Bits) -> Bits:
        n = size & _U32(31) if mode == "wrap" else np.minimum(size, _U32(32))
        kept = a & ~shift_left(~_U32(0) + np.zeros_like(a), n)
        if not is_signed(type):
            return kept
        sign = (a >> (np.maximum(n, _U32(1)) - _U32(1))) & _U32(1)
        extended = kept | shift_left(~_U32(0) + np.zeros_like(a), n)
        return np.where((sign != 0) & (n > 0), extended, kept)

    return compute


def _shf(direction: str, mode: str, _type: str) -> Function:
    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        amount = (c & _U32(31) if mode == "wrap" else np.minimum(c, _U32(32))).astype(np.uint64)
        wide = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        if direction == "l":
            return ((wide << amount) >> np.uint64(32)).astype(np.uint32)
        return (wide >> amount).astype(np.uint32)

    return compute


def _prmt(_type: str, mode: str) -> Function:
    fixed = {
        "f4e": lambda i, c: i + c,
        "b4e": lambda i, c: (8 - i + c) % 8,
        "rc8": lambda i, c: c,
        "ecl": lambda i, c: max(i, c),
        "ecr": lambda i, c: min(i, c),
        "rc16": lambda i, c: (c & 1) * 2 + (i & 1),
    }

    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        wide = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        result = np.uint32(0)
        for i in range(4):
            if mode:
                table = np.array([fixed[mode](i, k) for k in range(4)], np.uint32)
                pick = table[c & _U32(3)]
            else:
                pick = c >> _U32(4 * i) & _U32(15)
            byte = (wide >> ((pick & _U32(7)) * _U32(8)).astype(np.uint64)).astype(np.uint32) & _U32(255)
            sign = np.where(byte >> _U32(7), _U32(255), _U32(0))
            result = result | np.where(pick >> _U32(3), sign, byte) << _U32(8 * i)
        return np.asarray(result)

    return compute


def _lop3(_type: str) -> Function:
    def compute(a: Bits, b: Bits, c: Bits, table: Bits) -> Bits:
        result = np.zeros_like(a | b | c)
        for row in range(8):
            chosen = np.where(table >> _U32(row) & _U32(1), ~_U32(0), _U32(0))
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            result = result | term & chosen
        return result

    return compute


def _dot_bytes(_type_a: str, _type_b: str) -> Function:
    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        total = c
        for i in range(4):
            x = resize((a >> _U32(8 * i)).astype(np.uint8), _type_a[0] + "8", 32)
            y = resize((b >> _U32(8 * i)).astype(np.uint8), _type_b[0] + "8", 32)
            total = total + x * y
        return total

    return compute


def _dot_halves(part: str, type_a: str, type_b: str) -> Function:
    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        total = c
        for i in range(2):
            x = resize((a >> _U32(16 * i)).astype(np.uint16), type_a[0] + "16", 32)
            y = resize((b >> _U32(8 * i + (16 if part == "hi" else 0))).astype(np.uint8), type_b[0] + "8", 32)
            total = total + x * y
        return total

    return compute


COMPARE: dict[str, Function] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
"""The comparisons of integers and floats."""
_COMPARE = COMPARE | {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
COMBINE: dict[str, Function] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _setp(how: str, type: str) -> Function:
    compare = _COMPARE[how]

    def compute(a: Bits, b: Bits) -> tuple[Bits, Bits]:
        holds = compare(number(a, type), number(b, type))
        return holds, ~holds

    return compute


def combined(test: Function, combine: str) -> Function:
    """A comparison whose two results are combined with the predicate that comes last."""
    join = COMBINE[combine]
    return lambda a, b, c: tuple(join(p, c) for p in test(a, b))


def _setp_combined(how: str, combine: str, type: str) -> Function:
    return combined(_setp(how, type), combine)


def _slct(type: str, _s32: str) -> Function:
    return lambda a, b, c: np.where(c.view(np.int32) >= 0, a, b)


def _logic(symbol: Any) -> Any:
    return lambda type: symbol


_COMPARISONS = ("eq/ne b16/b32/b64", "eq/ne/lt/le/gt/ge u16/u32/u64/s16/s32/s64", "lo/ls/hi/hs u16/u32/u64")
_ANY = "b16/b32/b64/u16/u32/u64/s16/s32/s64"

ROWS: tuple[Row, ...] = (
    *(Row(f"{name} {_NUMBERS}", "w r r", lambda type, f=f: f) for name, f in _ADDED.items()),
    *(Row(f"{name} sat s32", "w r r", lambda _sat, type, name=name: _saturated(name)) for name in _ADDED),
    Row("add u16x2/s16x2", "w r r", lambda type: _halves(operator.add)),
    *(Row(f"{n} cc {_CARRIED}", "w r r k:pred", lambda _cc, type, n=n: _carry(n, False)) for n in _ADDED),
    *(Row(f"{n}c cc {_CARRIED}", "w r r c:pred k:pred", lambda _cc, type, n=n: _carry(n, True)) for n in _ADDED),
    *(Row(f"{n}c {_CARRIED}", "w r r c:pred", lambda type, n=n: _carry(n, True)) for n in _ADDED),
    Row(f"mul lo/hi {_NUMBERS}", "w r r", _mul),
    Row("mul wide u16/s16", "w:b32 r r", _mul),
    Row("mul wide u32/s32", "w:b64 r r", _mul),
    Row(f"mad lo/hi {_NUMBERS}", "w r r r", _mad),
    Row("mad hi sat s32", "w r r r", _mad_saturated),
    Row("mad wide u16/s16", "w:b32 r r r:b32", _mad),
    Row("mad wide u32/s32", "w:b64 r r r:b64", _mad),
    Row(f"mad lo/hi cc {_CARRIED}", "w r r r k:pred", lambda part, _cc, type: _mad_carry(part, type, False)),
    Row(f"madc lo/hi cc {_CARRIED}", "w r r r c:pred k:pred", lambda part, _cc, type: _mad_carry(part, type, True)),
    Row(f"madc lo/hi {_CARRIED}", "w r r r c:pred", lambda part, type: _mad_carry(part, type, True)),
    Row("mul24 lo/hi u32/s32", "w r r", _mul24),
    Row("mad24 lo/hi u32/s32", "w r r r", _mad24),
    Row(f"sad {_NUMBERS}", "w r r r", _sad),
    Row(f"div {_NUMBERS}", "w r r", lambda type: lambda a, b: quotient(a, b, type)),
    Row(f"rem {_NUMBERS}", "w r r", lambda type: lambda a, b: remainder(a, b, type)),
    Row("abs s16/s32/s64", "w r", _abs),
    Row("neg s16/s32/s64", "w r", lambda type: lambda a: a.dtype.type(0) - a),
    Row(f"min {_NUMBERS}", "w r r", _extremum(np.minimum)),
    Row(f"max {_NUMBERS}", "w r r", _extremum(np.maximum)),
    Row("min relu s32", "w r r", _extremum_relu(np.minimum)),
    Row("max relu s32", "w r r", _extremum_relu(np.maximum)),
    *(
        Row(f"{name} {forms}", "w r r", _packed_extremum(take))
        for name, take in (("min", np.minimum), ("max", np.maximum))
        for forms in ("relu? s16x2", "u16x2")
    ),
    Row("popc b32/b64", "w:b32 r", lambda type: count_ones),
    Row("clz b32/b64", "w:b32 r", lambda type: leading_zeros),
    Row("bfind shiftamt? u32/u64/s32/s64", "w:b32 r", _bfind),
    Row("brev b32/b64", "w r", lambda type: reversed_bits),
    Row("bfe u32/u64/s32/s64", "w r r:b32 r:b32", _bfe),
    Row("bfi b32/b64", "w r r r:b32 r:b32", _bfi),
    Row("bmsk clamp/wrap b32", "w r r", _bmsk),
    Row("szext clamp/wrap u32/s32", "w r r:b32", _szext),
    Row("dp4a u32/s32 u32/s32", "w:b32 r:b32 r:b32 r:b32", _dot_bytes),
    Row("dp2a lo/hi u32/s32 u32/s32", "w:b32 r:b32 r:b32 r:b32", _dot_halves),
    *(
        Row(f"{name} pred/b16/b32/b64", "w r r", _logic(f))
        for name, f in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor))
    ),
    Row("not pred/b16/b32/b64", "w r", lambda type: np.invert),
    Row("cnot b16/b32/b64", "w r", lambda type: lambda a: (a == 0).astype(a.dtype)),
    Row("lop3 b32", "w r r r i", _lop3),
    Row("shf l/r clamp/wrap b32", "w r r r", _shf),
    Row("shl b16/b32/b64", "w r r:b32", lambda type: shift_left),
    Row(f"shr {_ANY}", "w r r:b32", lambda type: lambda a, n: shift_right(a, n, type)),
    Row("prmt b32 f4e/b4e/rc8/ecl/ecr/rc16?", "w:b32 r:b32 r:b32 r:b32", _prmt),
    *(Row(f"setp {how}", "w:pred r r", _setp) for how in _COMPARISONS),
    *(Row(f"setp {how.replace(' ', ' and/or/xor ')}", "w:pred r r r:pred", _setp_combined) for how in _COMPARISONS),
    Row(f"selp {_ANY}/f32/f64", "w r r r:pred", lambda type: lambda a, b, p: np.where(p, a, b)),
    Row(f"slct {_ANY}/f32/f64 s32", "w:$0 r:$0 r:$0 r", _slct),
)
