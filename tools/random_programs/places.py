"""Arguments of a random launch: what tensors hold, and how they lie in memory that is full of poison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from random_programs import tree as t

Array = Any
NUMPY: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "bool": np.dtype(np.bool_),
}  # fmt: skip
ALIGN_BYTES = 256
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 65504.0, -65504.0, 3.4e38, -3.4e38, 1e-40, 2.0**-126, 6e-8,
           448.0, 464.0, 2147483648.0, -2147483648.0, 0.5, 1.5, 2.5, 127.5, -128.5, 9.3e18)  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """``view`` is the argument, a part of ``base``, whose first byte is aligned to 256; ``strides`` and ``offset`` in
    elements."""

    base: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def view(self) -> Array:
        """The argument itself."""
        return of(self.base, self.shape, self.strides, self.offset)

    def copy(self) -> Placed:
        """The same bytes at another address, as well aligned."""
        base = aligned(self.base.size, self.base.dtype)
        base[:] = self.base
        return Placed(base, self.shape, self.strides, self.offset)

    def around(self) -> Array:
        """The elements of ``base`` that are not the argument's, as bytes."""
        mine = np.zeros(self.base.size, bool)
        of(mine, self.shape, self.strides, self.offset)[...] = True
        return self.base.view(f"u{self.base.itemsize}")[~mine]


def of(base: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """A view of a flat array by element strides."""
    steps = [s * base.itemsize for s in strides]
    return np.ndarray(shape, base.dtype, base.view(np.uint8), offset * base.itemsize, steps)


def aligned(count: int, dtype: np.dtype[Any]) -> Array:
    """A flat array whose address is a multiple of 256."""
    raw = np.zeros(count * dtype.itemsize + ALIGN_BYTES, np.uint8)
    first = -raw.__array_interface__["data"][0] % ALIGN_BYTES
    return raw[first : first + count * dtype.itemsize].view(dtype)


def poison(dtype: np.dtype[Any]) -> Any:
    """NaN, the least integer, or True."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return True if dtype.kind == "b" else np.nan


def places(kernel: t.Kernel, seed: int) -> dict[str, Placed]:
    """All tensors as they are before the launch."""
    rng = np.random.default_rng(seed)
    found: dict[str, Placed] = {}
    for name, tensor in kernel.tensors.items():
        shape = kernel.shape(name)
        strides, offset, size = lie(shape, tensor.how, NUMPY[tensor.dtype].itemsize, rng)
        base = aligned(size, NUMPY[tensor.dtype])
        base[:] = poison(base.dtype)
        placed = Placed(base, shape, strides, offset)
        if tensor.use != "out":
            placed.view[...] = contents(rng, shape, tensor.dtype, tensor.data)
        found[name] = placed
    return found


def placed(given: Mapping[str, Array], seed: int) -> dict[str, Placed]:
    """Arguments that are given, in memory: most of them row-major."""
    rng = np.random.default_rng(seed)
    ways = ("plain",) * 5 + ("offset", "sliced", "permuted", "reversed", "spread", "pitched")
    found: dict[str, Placed] = {}
    for name, array in given.items():
        strides, offset, size = lie(array.shape, str(rng.choice(ways)), array.itemsize, rng)
        base = aligned(size, array.dtype)
        base[:] = poison(base.dtype)
        found[name] = Placed(base, array.shape, strides, offset)
        found[name].view[...] = array
    return found


def lie(shape: tuple[int, ...], how: str, itemsize: int, rng: np.random.Generator) -> tuple[tuple[int, ...], int, int]:
    """(strides, offset, elements of the buffer). plain: row-major, aligned. offset: from an odd element. sliced: a
    window of longer rows. permuted: axes in another order. reversed: negative strides. spread: every second
    element. pitched:
    rows of whole 16 bytes. expanded: an axis of stride 0."""
    order = list(range(len(shape)))[::-1]
    if how == "permuted":
        rng.shuffle(order)
    step, offset = (2, 3) if how == "spread" else (1, 0)
    strides = [0] * len(shape)
    line = 16 // itemsize
    for position, axis in enumerate(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if how == "sliced":
            step += 3
        if how == "spread":
            step *= 2
        if how == "pitched" and position == 0:
            step = -(-step // line) * line
    if how in ("offset", "sliced"):
        offset = 1
    if how == "expanded" and shape:
        strides[int(rng.integers(len(shape)))] = 0
    if how == "reversed" and shape:
        for axis in range(len(shape)):
            if rng.random() < 0.7:
                strides[axis] = -strides[axis]
    low = sum(min(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True) if n > 0)
    high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True) if n > 0)
    offset -= low
    return tuple(strides), offset, offset + high + 1 + 2 * line


def contents(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, data: str) -> Array:
    """Elements: normal, units (small integers), dyadic (eighths), edges (of the dtype)."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    kind = NUMPY[dtype]
    if dtype in t.INTS:
        low, high = {"units": (-3, 4), "dyadic": (-100, 101)}.get(data, (-9, 10))
        plain = rng.integers(low, high, shape)
        if data == "edges":
            info = np.iinfo(kind)
            ends = np.array([info.min, info.max, info.min + 1, info.max - 1, -1, 0, 1, 2], np.int64)
            whole = rng.integers(info.min, info.max, shape, np.int64, endpoint=True)
            plain = np.where(rng.random(shape) < 0.4, rng.choice(ends, shape), whole)
        return plain.astype(kind)
    match data:
        case "units":
            values = rng.integers(-3, 4, shape).astype(np.float32)
        case "dyadic":
            values = rng.integers(-32, 33, shape).astype(np.float32) / 8
        case "edges":
            values = np.where(rng.random(shape) < 0.5, rng.choice(SPECIAL, shape), rng.normal(size=shape) * 100)
        case _:
            values = rng.normal(size=shape)
    with np.errstate(all="ignore"):
        return np.asarray(values, np.float32).astype(kind)


def arrays(placed: Mapping[str, Placed]) -> dict[str, Array]:
    """The arguments by name."""
    return {name: p.view for name, p in placed.items()}
