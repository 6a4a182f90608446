"""Floating-point formats: exact widening to f64, and correct rounding from f64 in every mode (IEEE 754; OCP FP8 1.0).

A value that f64 can't hold is carried *rounded to odd*: the neighbour whose last bit is 1. Rounding that to a format
with at least two bits less gives what rounding the exact value would (Boldo and Melquiond, 2008), so sums and fused
products of two f32 are exact here without wider arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilewright.ptx.opcodes.rows import Bits

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
F32, F64 = np.float32, np.float64
_SIGN64, _FRACTION64 = U64(1 << 63), U64((1 << 52) - 1)


@dataclass(frozen=True)
class Format:
    """A float format: widths of its fields, its largest finite pattern, the NaN of arithmetic, if it has infinity."""

    name: str
    bits: int
    mantissa: int
    bias: int
    largest: int
    nan: int
    infinite: bool = True

    @property
    def unsigned(self) -> type:
        """The NumPy type of its patterns."""
        return {8: U8, 16: U16, 32: U32, 64: U64}[self.bits]


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f64", 64, 52, 1023, 0x7FEFFFFFFFFFFFFF, 0xFFF8000000000000),
        Format("f32", 32, 23, 127, 0x7F7FFFFF, 0x7FFFFFFF),
        Format("tf32", 32, 10, 127, 0x7F7FE000, 0x7FFFE000),
        Format("f16", 16, 10, 15, 0x7BFF, 0x7FFF),
        Format("bf16", 16, 7, 127, 0x7F7F, 0x7FFF),
        Format("e4m3", 8, 3, 7, 0x7E, 0x7F, infinite=False),
        Format("e5m2", 8, 2, 15, 0x7B, 0x7F),
    )
}


@cache
def _bytes_as_f64(name: str) -> Bits:
    """The 256 values of an 8-bit format."""
    f, found = FORMATS[name], list[float]()
    for pattern in range(256):
        field, fraction = (pattern & 0x7F) >> f.mantissa, pattern & ((1 << f.mantissa) - 1)
        value = (fraction + ((1 << f.mantissa) if field else 0)) * 2.0 ** (max(field, 1) - f.bias - f.mantissa)
        if pattern & 0x7F > f.largest:
            value = np.inf if f.infinite and not fraction else np.nan
        found.append(-value if pattern >> 7 else value)
    return np.array(found, F64)


def widen(bits: Bits, name: str) -> Bits:
    """Patterns as f64, exactly."""
    if name == "f64":
        return bits.view(F64)
    if name in ("f32", "tf32"):
        return bits.view(F32).astype(F64)
    if name == "f16":
        return bits.view(np.float16).astype(F64)
    if name == "bf16":
        return (bits.astype(U32) << U32(16)).view(F32).astype(F64)
    return _bytes_as_f64(name)[bits]


def odd_sum(a: Bits, b: Bits) -> Bits:
    """a + b in f64, rounded to odd (Knuth's two-sum gives the error; Boldo and Melquiond)."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    return _to_odd(total, error)


def _to_odd(total: Bits, error: Bits) -> Bits:
    """``total`` is nearest to total + error: its neighbour with an odd last bit instead, where error isn't 0."""
    total = np.asarray(total)
    bits = total.view(U64)
    even = np.isfinite(total) & (error != 0) & np.isfinite(error) & (bits & U64(1) == 0)
    if not even.any():
        return total
    away = (error > 0) == (total > 0)
    return np.where(even, np.where(away, bits + U64(1), bits - U64(1)), bits).view(F64)


def narrow(
    value: Bits, name: str, mode: str = "rn", finite: bool = False, relu: bool = False, ftz: bool = False
) -> Bits:
    """f64 values, exact or rounded to odd, as patterns: ``mode`` is rn, rz, rm or rp; ``finite`` clamps.

    ``ftz`` makes zeros of results that are below the least normal number when rounded as if exponents had no end: what
    rounds up to that number only because subnormals are coarser becomes zero.
    """
    f = FORMATS[name]
    value = np.asarray(value, F64)
    if name == "f32" and mode == "rn" and not finite and not relu and not ftz:
        nearest = value.astype(F32)
        return np.where(np.isnan(value), U32(f.nan), nearest.view(U32))
    raw = value.view(U64)
    negative = (raw & _SIGN64) != 0
    if name == "f64":
        return np.where(np.isnan(value), U64(f.nan), raw)
    exponent = ((raw >> U64(52)) & U64(0x7FF)).astype(np.int64) - 1023
    significand = (raw & _FRACTION64) | np.where(exponent > -1023, U64(1 << 52), U64(0))
    least = 1 - f.bias
    place = exponent if ftz else np.maximum(exponent, least)
    drop = np.minimum(52 - f.mantissa + place - exponent, 55).astype(U64)
    kept = significand >> drop
    rest = significand & ((U64(1) << drop) - U64(1))
    half = U64(1) << (drop - U64(1))
    up = {
        "rn": (rest > half) | (rest == half) & ((kept & U64(1)) != 0),
        "rz": np.zeros_like(negative),
        "rm": negative & (rest != 0),
        "rp": ~negative & (rest != 0),
    }[mode]
    placed = (kept + up.astype(U64)).astype(np.int64) + ((place - least) << f.mantissa)
    pattern = np.where(placed < 1 << f.mantissa, 0, placed).astype(U64) if ftz else placed.astype(U64)
    largest = U64(f.largest >> 13 if name == "tf32" else f.largest)
    beyond = (pattern > largest) | np.isinf(value)
    stays = {"rz": np.ones_like(negative), "rm": ~negative, "rp": negative}.get(mode, np.zeros_like(negative))
    if finite:
        top = np.where(beyond, largest, pattern)
    else:
        infinity = largest + U64(1) if f.infinite else U64(f.nan)
        top = np.where(beyond, np.where(stays & np.isfinite(value), largest, infinity), pattern)
    if name == "tf32":
        top = top << U64(13)
    signed = top | np.where(negative, U64(1 << (f.bits - 1)), U64(0))
    if relu:
        signed = np.where(negative, U64(0), signed)
    result: Any = np.where(np.isnan(value), U64(f.nan), signed)
    return result.astype(f.unsigned)


def bf16_of_f32(bits: Bits) -> Bits:
    """f32 patterns rounded to the nearest bf16: what ``narrow`` gives, in a quarter of its time."""
    rounded = (bits + U32(0x7FFF) + (bits >> U32(16) & U32(1))) >> U32(16)
    nan = (bits & U32(0x7FFFFFFF)) > U32(0x7F800000)
    return np.where(nan, U32(0x7FFF), rounded).astype(U16)


def is_nan(bits: Bits, name: str) -> Bits:
    """Whether patterns are NaNs."""
    f = FORMATS[name]
    u = f.unsigned
    infinity = ((1 << (f.bits - 1 - f.mantissa)) - 1) << f.mantissa
    return (bits & u((1 << (f.bits - 1)) - 1)) > u(infinity)


def quiet(bits: Bits, name: str) -> Bits:
    """The NaN that an instruction makes of a NaN: the canonical one; of f64 the same one, quiet."""
    f = FORMATS[name]
    return bits | f.unsigned(1 << (f.mantissa - 1)) if name == "f64" else np.full_like(bits, f.nan)


def quiet_as(bits: Bits, of: str, to: str) -> Bits:
    """A NaN converted from or to f64: quiet, with its sign and as many upper bits of its payload as fit."""
    source, target = FORMATS[of], FORMATS[to]
    wide = bits.astype(U64)
    payload = (wide << U64(64 - source.mantissa)) >> U64(64 - target.mantissa)
    exponent = ((1 << (target.bits - 1 - target.mantissa)) - 1) << target.mantissa
    sign = (wide >> U64(source.bits - 1)) << U64(target.bits - 1)
    result: Any = sign | U64(exponent | 1 << (target.mantissa - 1)) | payload
    return result.astype(target.unsigned)


def flush(bits: Bits, name: str = "f32") -> Bits:
    """``.ftz`` of operands: subnormal patterns become zeros of their sign."""
    f = FORMATS[name]
    u = f.unsigned
    magnitude = u((1 << (f.bits - 1)) - 1)
    small = (bits & magnitude) < u(1 << f.mantissa)
    return np.where(small, bits & ~magnitude, bits)
