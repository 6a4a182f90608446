"""Representation of elements: in memory as their own bits, in registers as values that NumPy computes on.

Floats of 16 bits and fewer are held in registers as float32 numbers that the dtype can represent: an op computes in
float32 and rounds its result once, to nearest even, as the hardware's packed instructions do.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilewright.base.dtypes import DType
from tilewright.simulate.symbols import Array

_MEMORY: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
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
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
"""Largest finite values of 8-bit floats: conversions to them saturate (PTX ISA 9.1, cvt, .satfinite)."""


def memory_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of an array that holds ``dtype``."""
    return _MEMORY[dtype.name]


def register_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype registers of ``dtype`` are computed in."""
    return np.dtype(np.float32) if dtype.is_float else _MEMORY[dtype.name]


def to_registers(data: Array, dtype: DType) -> Array:
    """Elements read from memory as register values; exact."""
    return data.astype(register_dtype(dtype), copy=False)


def to_memory(data: Array, dtype: DType) -> Array:
    """Register values as elements in memory; exact, since registers hold only representable values."""
    return data.astype(_MEMORY[dtype.name], copy=False)


def rounded(data: Array, dtype: DType) -> Array:
    """The result of an op rounded to ``dtype``, as registers hold it."""
    if dtype.is_bool:
        return data.astype(np.bool_, copy=False)
    if dtype.is_int:
        return data.astype(_MEMORY[dtype.name], copy=False)
    single = data.astype(np.float32, copy=False)
    if dtype.name == "f32":
        return single
    if dtype.name == "tf32":
        return _round_tf32(single)
    largest = LARGEST.get(dtype.name)
    if largest is not None:
        single = np.where(np.isinf(single), single, np.clip(single, -largest, largest))
    return single.astype(_MEMORY[dtype.name]).astype(np.float32)


def _round_tf32(data: Array) -> Array:
    """Ten fraction bits, ties away from zero (PTX ISA, cvt.rna.tf32.f32)."""
    bits = data.view(np.uint32)
    kept = ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(data), kept, data)
