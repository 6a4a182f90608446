"""Values that may be absent here and there: text, axes, and the whole of what NumPy says of them, exactly.

Elements are integers, bools, or floats that are only moved and compared. A value is evaluated over all of ``m`` and
``n`` at once, whatever tiles a program has of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = Any
INTEGERS: dict[str, Any] = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
}
MOVED: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
NUMPY: dict[str, Any] = {**INTEGERS, "bool": np.bool_, **MOVED}
_WIDTH = {"bool": 1} | {name: int(name[1:]) for name in INTEGERS}


@dataclass(frozen=True)
class Value:
    """``array`` over ``axes`` of m and n, in this order; ``here``: where it is present, None where everywhere.

    ``absence`` tells values apart that are absent at different places, as the language does.
    """

    text: str
    axes: tuple[str, ...]
    dtype: str
    array: Array
    here: Array | None = None
    absence: int | None = None

    @property
    def present(self) -> Array:
        return np.ones(self.array.shape, bool) if self.here is None else self.here


def ends(dtype: str) -> tuple[float | int, float | int]:
    """What a maximum and a minimum begin with."""
    if dtype in MOVED:
        return -np.inf, np.inf
    if dtype == "bool":
        return False, True
    return int(np.iinfo(INTEGERS[dtype]).min), int(np.iinfo(INTEGERS[dtype]).max)


def converted(x: Value, dtype: str) -> Value:
    """The same, wrapped to another integer dtype."""
    if x.dtype == dtype:
        return x
    return Value(f"({x.text}).to(tw.{dtype})", x.axes, dtype, x.array.astype(NUMPY[dtype]), x.here, x.absence)


def wider(a: str, b: str) -> str:
    """The narrowest dtype that has all elements of both."""
    if "bool" in (a, b):
        return max(a, b, key=lambda d: _WIDTH[d])
    both = (d for d in INTEGERS if all(_has(d, x) for x in (a, b)))
    return min(both, key=lambda d: _WIDTH[d])


def _has(dtype: str, other: str) -> bool:
    (low, high), (least, most) = ends(dtype), ends(other)
    return low <= least and most <= high


def computed(op: str, a: Array, b: Array, dtype: str) -> Array:
    """An operation on integers or bools of ``dtype`` as docs/language.md has it."""
    with np.errstate(all="ignore"):
        return np.asarray(_computed(op, a.astype(NUMPY[dtype]), b.astype(NUMPY[dtype]), _WIDTH[dtype])).astype(
            NUMPY[dtype]
        )


def _computed(op: str, a: Array, b: Array, bits: int) -> Array:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
        case "//" if a.dtype.kind == "u":
            return np.where(b == 0, 0, a // np.where(b == 0, 1, b))
        case "%" if a.dtype.kind == "u":
            return np.where(b == 0, 0, a % np.where(b == 0, 1, b))
        case "//":
            return np.where(b == 0, 0, np.where(b == -1, -a, a // np.where((b == 0) | (b == -1), 1, b)))
        case "%":
            return np.where((b == 0) | (b == -1), 0, a % np.where((b == 0) | (b == -1), 1, b))
        case "<<":
            return np.where((b < 0) | (b >= bits), 0, a << np.clip(b, 0, bits - 1))
        case ">>" if a.dtype.kind == "u":
            return np.where(b >= bits, 0, a >> np.clip(b, 0, bits - 1))
        case ">>":
            return a >> np.where((b < 0) | (b >= bits), bits - 1, np.clip(b, 0, bits - 1))
        case "max":
            return np.maximum(a, b)
        case _:
            return np.minimum(a, b)


def compared(op: str, a: Array, b: Array) -> Array:
    tests = {
        "==": np.equal,
        "!=": np.not_equal,
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
    }
    with np.errstate(invalid="ignore"):
        return tests[op](a, b)


def reduced(fn: str, x: Value, live: Array, axis: int) -> tuple[str, Array]:
    """``sum``, ``max``, ``min`` or ``argmax`` of the elements that are live: dtype and values."""
    if fn == "sum":
        return "i64", np.where(live, x.array, 0).astype(np.int64).sum(axis)
    low, high = ends(x.dtype)
    if fn == "argmax":
        array = np.where(live, x.array, low)
        return "i32", np.argmax(live & (array == array.max(axis, keepdims=True)), axis).astype(np.int32)
    array = np.where(live, x.array, np.array(low if fn == "max" else high, NUMPY[x.dtype]))
    wide = array.astype(np.float32 if x.dtype in MOVED else NUMPY[x.dtype])
    pick, first = (np.maximum, low) if fn == "max" else (np.minimum, high)
    return x.dtype, pick.reduce(wide, axis, initial=first).astype(NUMPY[x.dtype])


def scanned(fn: str, x: Value, live: Array, axis: int, *, exclusive: bool, reverse: bool) -> tuple[str, Array]:
    """``cumsum``, ``cummax`` or ``cummin``: an element that is not live leaves the running value."""
    low, high = ends(x.dtype)
    dtype, first, add = {
        "cumsum": ("i64", 0, np.add),
        "cummax": (x.dtype, low, np.maximum),
        "cummin": (x.dtype, high, np.minimum),
    }[fn]
    array = np.where(live, x.array, np.array(first, NUMPY[dtype])).astype(NUMPY[dtype])
    array = np.flip(array, axis) if reverse else array
    running = add.accumulate(array, axis) if array.size else array
    if exclusive:
        one = np.full_like(np.take(running, [0] if running.shape[axis] else [], axis), first)
        running = np.concatenate([one, np.delete(running, -1, axis)], axis) if running.size else running
    return dtype, np.flip(running, axis) if reverse else running


def ordered(x: Value, live: Array, axis: int, *, descending: bool) -> tuple[Array, Array]:
    """Places of the live elements in stable order, NaN the greatest; where there are any."""
    array, live = np.moveaxis(x.array, axis, -1), np.moveaxis(live, axis, -1)
    places, here = np.zeros(array.shape, np.int32), np.zeros(array.shape, bool)
    for row in np.ndindex(array.shape[:-1]):
        key = array[row].astype(np.float64)
        key = np.where(np.isnan(key), np.inf, key) if descending else key
        nan = np.isnan(array[row].astype(np.float64))
        order = np.lexsort((np.where(nan, 0, -key if descending else key), nan != descending))
        order = order[live[row][order]]
        places[row][: len(order)], here[row][: len(order)] = order, True
    return np.moveaxis(places, -1, axis), np.moveaxis(here, -1, axis)
