"""Bit-vectors of 8 to 64 bits on NumPy: signed views, widths, double-width products, shifts that clamp."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ptx.opcodes.rows import Bits

UNSIGNED: dict[int, type[Any]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, type[Any]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "pred": 1}
_PAIRS = {"e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "u16x2": 32, "s16x2": 32}


def width(type: str) -> int:
    """Bits of a type; a predicate has 1."""
    return _FLOATS.get(type) or _PAIRS.get(type) or int(type.lstrip("bus"))


def is_type(name: str) -> bool:
    """Whether a modifier names a type."""
    return name in _FLOATS or name in _PAIRS or (name[:1] in ("b", "u", "s") and name[1:].isdecimal())


def is_signed(type: str) -> bool:
    """Whether it is s8 to s64."""
    return type[0] == "s"


def unsigned(type: str) -> type[Any]:
    """The NumPy type that holds a register of this type: bool, or uint8 to uint64."""
    return np.bool_ if type == "pred" else UNSIGNED[width(type)]


def number(bits: Bits, type: str) -> Bits:
    """Patterns as the numbers that an integer type reads in them."""
    return bits.view(SIGNED[width(type)]) if is_signed(type) else bits


def resize(bits: Bits, type: str, to: int) -> Bits:
    """Patterns of ``type`` in ``to`` bits: cut off, or extended by the type's sign."""
    return bits if width(type) == to else number(bits, type).astype(UNSIGNED[to])


def product_high(a: Bits, b: Bits, type: str) -> Bits:
    """The upper half of the double-width product."""
    bits = width(type)
    if bits < 64:
        wide = number(a, type).astype(np.int64) * number(b, type).astype(np.int64)
        if type == "u32":
            wide = a.astype(np.uint64) * b.astype(np.uint64)
        return (wide >> np.array(bits, wide.dtype)).astype(UNSIGNED[bits])
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    al, ah, bl, bh = a & low, a >> half, b & low, b >> half
    middle = ah * bl + (al * bl >> half)
    other = al * bh + (middle & low)
    high = ah * bh + (middle >> half) + (other >> half)
    if is_signed(type):
        zero = np.uint64(0)
        high = high - np.where(a >> np.uint64(63), b, zero) - np.where(b >> np.uint64(63), a, zero)
    return high


def product_wide(a: Bits, b: Bits, type: str) -> Bits:
    """The whole product, in twice the width."""
    to = width(type) * 2
    return resize(a, type, to) * resize(b, type, to)


def quotient(a: Bits, b: Bits, type: str) -> Bits:
    """Division towards zero; by zero all ones (the ISA leaves it open, 9.7.1.9; an H200 gives this)."""
    return _divided(a, b, type)[0]


def remainder(a: Bits, b: Bits, type: str) -> Bits:
    """The remainder, with the dividend's sign; by zero all ones (open in the ISA, 9.7.1.10; an H200 gives this)."""
    return _divided(a, b, type)[1]


def _divided(a: Bits, b: Bits, type: str) -> tuple[Bits, Bits]:
    u = unsigned(type)
    zero = b == 0
    minus_a, minus_b = np.bool_(False), np.bool_(False)
    if is_signed(type):
        minus_a, minus_b = number(a, type) < 0, number(b, type) < 0
        a, b = np.where(minus_a, u(0) - a, a), np.where(minus_b, u(0) - b, b)
    safe = np.where(zero, u(1), b)
    q, r = a // safe, a % safe
    q, r = np.where(minus_a != minus_b, u(0) - q, q), np.where(minus_a, u(0) - r, r)
    return np.where(zero, ~u(0), q), np.where(zero, ~u(0), r)


def shift_left(a: Bits, amount: Bits) -> Bits:
    """``amount`` (32 bits) beyond the width shifts everything out."""
    u = a.dtype.type
    bits = a.dtype.itemsize * 8
    return np.where(amount >= bits, u(0), a << np.minimum(amount, bits - 1).astype(u))


def shift_right(a: Bits, amount: Bits, type: str) -> Bits:
    """The same to the right; signed types shift in the sign bit."""
    bits = width(type)
    small = np.minimum(amount, bits - 1)
    if is_signed(type):
        return (number(a, type) >> small.astype(SIGNED[bits])).view(UNSIGNED[bits])
    u = UNSIGNED[bits]
    return np.where(amount >= bits, u(0), a >> small.astype(u))


def count_ones(a: Bits) -> Bits:
    """Bits that are set, as u32."""
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Bits) -> Bits:
    """Zeros above the highest bit that is set, as u32."""
    u, bits = a.dtype.type, a.dtype.itemsize * 8
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits:
            a = a | (a >> u(step))
    return np.uint32(bits) - count_ones(a)


def reversed_bits(a: Bits) -> Bits:
    """Bit 0 becomes the highest."""
    u, bits = a.dtype.type, a.dtype.itemsize * 8
    step, ones = bits // 2, (1 << bits) - 1
    mask = ones
    while step:
        mask ^= (mask << step) & ones
        a = (a >> u(step)) & u(mask) | (a << u(step)) & u(ones ^ mask)
        step //= 2
    return a
