"""What a conversion between dtypes means, value by value and from the formats alone: an oracle for all of them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "bool": np.dtype(np.bool_),
}
FLOATS = ("f32", "f16", "bf16", "e4m3", "e5m2")
BITS = {name: kind.itemsize * 8 for name, kind in NUMPY.items()}
_SATURATES = {"e4m3": 448.0, "e5m2": 57344.0}
_DIGITS = {"f32": (24, -149), "f16": (11, -24), "bf16": (8, -133), "e4m3": (4, -9), "e5m2": (3, -16)}
"""Bits of a significand, and the exponent of the least denormal number."""
_BEYOND = {"f32": 128, "f16": 16, "bf16": 128, "e4m3": 9, "e5m2": 16}
"""The exponent of the first power of two beyond the finite numbers."""


def samples(name: str, rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Every value of a dtype of 16 bits or fewer; of wider ones those at the edges of all dtypes, and random ones."""
    kind = NUMPY[name]
    if name == "bool":
        return np.array([False, True])
    if BITS[name] <= 16:
        return np.arange(1 << BITS[name], dtype=np.uint32).astype(f"u{kind.itemsize}").view(kind)
    near = sorted({s * (2**e + d) for e in (*range(64), 127) for d in (-2, -1, 0, 1, 2) for s in (1, -1)})
    if name == "f32":
        half = [
            s * (m + f)
            for m in (0.0, 1, 2, 126, 127, 128, 448, 464, 57344, 61440, 65504, 65520)
            for f in (0.25, 0.5, 0.75)
            for s in (1, -1)
        ]
        edges = np.array([*map(float, near), *half, np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e-45, -1e-45, 1e-7])
        with np.errstate(over="ignore"):
            single = edges.astype(np.float32)
        around = np.concatenate(
            [single, np.nextafter(single, np.float32(np.inf)), np.nextafter(single, -np.float32(np.inf))]
        )
        return np.concatenate([around, rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)])
    least, greatest = ends(name)
    inside = [v for v in near if least <= v <= greatest]
    wide = rng.integers(least, greatest, count, dtype=np.int64, endpoint=True)
    return np.concatenate(
        [np.array([*inside, least, greatest], np.int64), wide, wide >> rng.integers(0, 60, count)]
    ).astype(kind)


def ends(name: str) -> tuple[int, int]:
    """The least and the greatest of a dtype of integers."""
    bits = BITS[name]
    return (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


def converted(values: np.ndarray[Any, Any], source: str, target: str) -> np.ndarray[Any, Any]:
    """``values`` of dtype ``source`` as ``target``."""
    if target == "bool":
        return np.array([v != 0 or v != v for v in values.tolist()], np.bool_)
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.float64 if source in FLOATS else object).tolist()
    if target not in FLOATS:
        return np.array([_integer(v, source, target) for v in numbers], NUMPY[target])
    single = numbers if source in FLOATS else [nearest(int(v), "f32") for v in numbers]  # integers go through f32
    with np.errstate(invalid="ignore"):
        return np.array([nearest(v, target) for v in single], np.float64).astype(NUMPY[target])


def _integer(value: float | int, source: str, target: str) -> int:
    least, greatest = ends(target)
    if source not in FLOATS:
        return (int(value) - least) % (1 << BITS[target]) + least
    if value != value:
        return least if BITS[target] == 64 else 0
    if math.isinf(value):
        return greatest if value > 0 else least
    return max(least, min(greatest, int(value)))


def nearest(value: float | int | Fraction, target: str) -> float:
    """The nearest number of a float dtype, ties to even; of fractions those whose denominator is a power of two."""
    if value != value:
        return float(value)
    return math.copysign(_magnitude(abs(value), target), value)


def _magnitude(value: float | int | Fraction, target: str) -> float:
    largest = _SATURATES.get(target, math.inf)
    if value == math.inf:
        return largest
    numerator, denominator = value.as_integer_ratio()
    scale = denominator.bit_length() - 1  # the denominator is a power of two
    digits, least = _DIGITS[target]
    power = max(numerator.bit_length() - scale - digits, least)
    shift = max(power + scale, 0)
    quotient = numerator >> shift
    rest, half = (numerator - (quotient << shift)) * 2, 1 << shift
    quotient = (quotient + (rest > half or (rest == half and quotient % 2 == 1))) << max(-power - scale, 0)
    if quotient.bit_length() + power > _BEYOND[target]:
        return largest
    return min(math.ldexp(quotient, power), largest)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where two arrays have the same values: NaN whatever its payload, zeros with their signs."""
    if a.dtype.kind in "iub":
        return a == b
    with np.errstate(invalid="ignore"):
        left, right = a.astype(np.float64), b.astype(np.float64)
    both = np.isnan(left) & np.isnan(right)
    return both | ((left == right) & (np.signbit(left) == np.signbit(right)))
