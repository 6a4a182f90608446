"""Whether results lie within their bounds; NumPy only, for machines that have the runtime alone."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def inside(lo: Array, hi: Array, free: Array | None, signed: bool, found: Array) -> Array:
    """Where ``found``, held as values are (floats in f32, integers in i64), is within its bounds. NaN wants NaN; zeros
    want their sign where it is ``signed``; ``free`` elements may be anything."""
    right = (lo <= found) & (found <= hi)
    if np.asarray(lo).dtype.kind != "f":
        return right
    if signed:
        zero = (lo == 0) & (hi == 0)
        right &= ~zero | (np.signbit(lo) == np.signbit(found)) | (np.signbit(hi) == np.signbit(found))
    right |= np.isnan(lo) & np.isnan(hi) & np.isnan(found)
    return right if free is None else right | free


def of_bytes(raw: Array, dtype: str, tables: dict[str, Array]) -> Array:
    """A flat buffer of bytes as values are held; ``tables`` has all 256 numbers of each 8-bit float."""
    match dtype:
        case "bf16":
            return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        case "f16" | "f32":
            return raw.view(np.float16 if dtype == "f16" else np.float32).astype(np.float32)
        case "bool":
            return raw.view(np.uint8) != 0
        case _ if dtype[1:].isdecimal():
            return raw.view(f"{dtype[0]}{int(dtype[1:]) // 8}").astype(np.int64)
        case _:
            return tables[dtype][raw.view(np.uint8)]
