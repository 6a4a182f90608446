"""Kernels on integers of every width and sign, with NumPy beside them."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw

Arrays = dict[str, np.ndarray]
WIDTHS = (np.uint8, np.uint16, np.uint32, np.int16)
"""Dtypes that every case is drawn in; i8, i32 and i64 have older tests."""


@dataclass(frozen=True)
class OfIntegers:
    """A kernel, arguments drawn in a dtype, and its results; ``within`` of floats."""

    kernel: Any
    draw: Callable[[np.random.Generator, Any], Arrays]
    expected: Callable[[Arrays], Mapping[str, np.ndarray]]
    within: float = 0.0


CASES: dict[str, OfIntegers] = {}


def case(
    draw: Callable[[np.random.Generator, Any], Arrays],
    expected: Callable[[Arrays], Mapping[str, np.ndarray]],
    within: float = 0.0,
) -> Callable[[Any], Any]:
    """Lists a kernel under its name."""

    def note(kernel: Any) -> Any:
        CASES[kernel.name] = OfIntegers(kernel, draw, expected, within)
        return kernel

    return note


def drawn(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """Any elements, the ends of the dtype among them."""
    info = np.iinfo(dtype)
    array = rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    array.reshape(-1)[:4] = [info.min, info.max, info.max // 2 + 1, 1]
    return array


def like(array: np.ndarray, names: str) -> Arrays:
    return {name: np.full_like(array, 7) for name in names}


def _with_amounts(rng: np.random.Generator, dtype: Any) -> Arrays:
    x, k = drawn(rng, dtype, 300), rng.integers(0, 40, 300).astype(dtype)
    k[:6] = [0, 1, np.iinfo(dtype).bits - 1, np.iinfo(dtype).bits, np.iinfo(dtype).max, 0]
    return {"x": x, "k": k, **like(x, "abcdefgh")}


def _arithmetic(a: Arrays) -> Mapping[str, np.ndarray]:
    x, k = a["x"], a["k"]
    with np.errstate(all="ignore"):
        found = [x + k, x - k, x * k, x // k, x % k, np.left_shift(x, k), np.right_shift(x, k), -x + abs(k) + ~x]
    return dict(zip("abcdefgh", found, strict=True))


@case(_with_amounts, _arithmetic)
@tw.kernel
def arithmetic(
    x: tw.Tensor["M"],
    k: tw.Tensor["M"],
    a: tw.Tensor["M"],
    b: tw.Tensor["M"],
    c: tw.Tensor["M"],
    d: tw.Tensor["M"],
    e: tw.Tensor["M"],
    f: tw.Tensor["M"],
    g: tw.Tensor["M"],
    h: tw.Tensor["M"],
):
    m = tw.grid(x, 64)
    a[m] = x[m] + k[m]
    b[m] = x[m] - k[m]
    c[m] = x[m] * k[m]
    d[m] = x[m] // k[m]
    e[m] = x[m] % k[m]
    f[m] = x[m] << k[m]
    g[m] = x[m] >> k[m]
    h[m] = -x[m] + tw.abs(k[m]) + ~x[m]


@case(
    lambda rng, dtype: {"x": drawn(rng, dtype, 40), **like(np.zeros(40, dtype), "ab")},
    lambda a: {"a": np.sign(a["x"]), "b": np.broadcast_to(np.sign(a["x"]).sum(dtype=a["x"].dtype), 40)},
)
@tw.kernel
def signs(x: tw.Tensor["M"], a: tw.Tensor["M"], b: tw.Tensor["M"]):
    m = tw.grid(x, 64)
    a[m] = tw.sign(x[m])
    total = tw.full((tw.axis(1),), 0, tw.i64)
    total += tw.sign(x[tw.axis(x.shape[0], upto=64)]).sum(0)
    b[m] = total[0].to(a.dtype)


@case(
    lambda rng, dtype: {
        "x": drawn(rng, dtype, 300),
        "z": drawn(rng, dtype, 300)[::-1].copy(),
        **like(np.zeros(300, dtype), "abcd"),
        "less": np.zeros(300, np.bool_),
    },
    lambda a: {
        "a": np.maximum(a["x"], a["z"]),
        "b": np.minimum(a["x"], a["z"]),
        "c": a["x"] & a["z"] | (a["x"] ^ a["z"].dtype.type(5)),
        "d": np.where(a["x"] >= a["z"], a["x"], a["z"].dtype.type(3)),
        "less": a["x"] < a["z"],
    },
)
@tw.kernel
def choices(
    x: tw.Tensor["M"],
    z: tw.Tensor["M"],
    a: tw.Tensor["M"],
    b: tw.Tensor["M"],
    c: tw.Tensor["M"],
    d: tw.Tensor["M"],
    less: tw.Tensor["M"],
):
    m = tw.grid(x, 64)
    a[m] = tw.maximum(x[m], z[m])
    b[m] = tw.minimum(x[m], z[m])
    c[m] = x[m] & z[m] | (x[m] ^ 5)
    d[m] = tw.where(x[m] >= z[m], x[m], 3)
    less[m] = x[m] < z[m]


@case(
    lambda rng, dtype: {
        "x": drawn(rng, dtype, 10, 100),
        "total": np.zeros(10, np.int64),
        **like(np.zeros(10, dtype), "ab"),
        "at": np.zeros(10, np.int32),
        "mean": np.zeros(10, np.float32),
    },
    lambda a: {
        "total": a["x"].sum(1, dtype=np.int64),
        "a": a["x"].max(1),
        "b": a["x"].min(1),
        "at": a["x"].argmax(1).astype(np.int32),
        "mean": a["x"].mean(1),
    },
    1e-6,
)
@tw.kernel
def reductions(
    x: tw.Tensor["M", "N"],
    total: tw.Tensor["M"],
    a: tw.Tensor["M"],
    b: tw.Tensor["M"],
    at: tw.Tensor["M"],
    mean: tw.Tensor["M"],
):
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=128)
    v = x[m, n]
    total[m], a[m], b[m], at[m], mean[m] = v.sum(1), v.max(1), v.min(1), v.argmax(1), v.mean(1)


def _least_before(x: np.ndarray) -> np.ndarray:
    first = np.full((len(x), 1), np.iinfo(x.dtype).max, x.dtype)
    return np.concatenate([first, np.minimum.accumulate(x, 1)[:, :-1]], 1)


@case(
    lambda rng, dtype: {
        "x": drawn(rng, dtype, 6, 70),
        "total": np.zeros((6, 70), np.int64),
        **like(np.zeros((6, 70), dtype), "ab"),
    },
    lambda a: {
        "total": np.cumsum(a["x"], 1, dtype=np.int64),
        "a": np.maximum.accumulate(a["x"], 1),
        "b": _least_before(a["x"]),
    },
)
@tw.kernel
def scans(x: tw.Tensor["M", "N"], total: tw.Tensor["M", "N"], a: tw.Tensor["M", "N"], b: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=128)
    v = x[m, n]
    total[m, n], a[m, n], b[m, n] = tw.cumsum(v, 1), tw.cummax(v, 1), tw.cummin(v, 1, exclusive=True)


@case(
    lambda rng, dtype: {
        "x": drawn(rng, dtype, 6, 70),
        **like(np.zeros((6, 70), dtype), "ab"),
        "places": np.zeros((6, 70), np.int32),
        "greatest": np.zeros((6, 4), dtype),
    },
    lambda a: {
        "a": np.sort(a["x"], 1),
        "b": np.sort(a["x"], 1)[:, ::-1],
        "places": np.argsort(a["x"], 1, kind="stable").astype(np.int32),
        "greatest": np.sort(a["x"], 1)[:, :-5:-1],
    },
)
@tw.kernel
def sorts(
    x: tw.Tensor["M", "N"],
    a: tw.Tensor["M", "N"],
    b: tw.Tensor["M", "N"],
    places: tw.Tensor["M", "N"],
    greatest: tw.Tensor["M", 4],
):
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=128)
    v = x[m, n]
    a[m, n], b[m, n], places[m, n] = tw.sort(v, 1), tw.sort(v, 1, descending=True), tw.argsort(v, 1)
    greatest[m, :] = tw.topk(v, 4, 1)[0]


@case(
    lambda rng, dtype: {
        "x": drawn(rng, dtype, 10, 100),
        "a": np.zeros(10, dtype),
        "b": np.zeros(10, np.uint32),
        "c": np.zeros(10, np.uint8),
    },
    lambda a: {
        "a": a["x"].max(1),
        "b": a["x"].astype(np.uint32).sum(1, dtype=np.uint32),
        "c": np.bitwise_and(a["x"].astype(np.uint8), 15).min(1),
    },
)
@tw.kernel
def carried(x: tw.Tensor["M", "N"], a: tw.Tensor["M"], b: tw.Tensor["M"], c: tw.Tensor["M"]):
    """Fragments without a sign, over a stream: sums wrap."""
    m = tw.grid(x.shape[0], 4)
    total, least = tw.zeros((m,), tw.u32), tw.full((m,), 255, tw.u8)
    most = tw.full((m,), -(2**40), tw.i64)
    for n in tw.stream(x.shape[1], 16):
        v = x[m, n]
        total += v.to(tw.u32).sum(1).to(tw.u32)
        least.set(tw.minimum(least, (v.to(tw.u8) & 15).min(1)))
        most.set(tw.maximum(most, v.max(1).to(tw.i64)))
    a[m], b[m], c[m] = most, total, least


@case(
    lambda rng, dtype: {
        "x": np.minimum(rng.integers(0, 300, 900), np.iinfo(dtype).max).astype(dtype),
        "y": np.zeros(256, np.int32),
    },
    lambda a: {"y": np.bincount(a["x"][a["x"] < 256].astype(np.int64), minlength=256).astype(np.int32)},
)
@tw.kernel
def bins(x: tw.Tensor["N"], y: tw.Tensor[256]):
    n = tw.grid(x.shape[0], 512)
    tw.reduce_add(y, tw.axis(256), tw.histogram(x[n], 256))


# -- natural wording of pixels and of packed weights ------------------------------------------------------------------
BYTES: dict[str, OfIntegers] = {}


def _unpacked(a: Arrays) -> Mapping[str, np.ndarray]:
    low, high = ((p.astype(np.float32) - 8) * a["s"][:, None] for p in (a["w"] & 15, a["w"] >> 4))
    return {"y": np.stack([low, high], 2).reshape(len(a["w"]), -1)}


@tw.kernel
def unpack_nibbles(w: tw.Tensor["M", "N"], s: tw.Tensor["M"], y: tw.Tensor["M", "K"]):
    m, n = tw.grid(w, (4, 32))
    b = w[m, n]
    y[m, 2 * n] = ((b & 15) - 8.0) * s[m][:, None]
    y[m, 2 * n + 1] = ((b >> 4) - 8.0) * s[m][:, None]


BYTES["unpack_nibbles"] = OfIntegers(
    unpack_nibbles,
    lambda rng, dtype: {
        "w": drawn(rng, np.uint8, 9, 70),
        "s": rng.standard_normal(9).astype(np.float32),
        "y": np.zeros((9, 140), np.float32),
    },
    _unpacked,
)


@tw.kernel
def gray(x: tw.Tensor["M", "N", 3], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (4, 32))
    y[m, n] = (x[m, n, 0].to(tw.i32) * 77 + x[m, n, 1].to(tw.i32) * 150 + x[m, n, 2].to(tw.i32) * 29) >> 8


BYTES["gray"] = OfIntegers(
    gray,
    lambda rng, dtype: {"x": drawn(rng, np.uint8, 9, 70, 3), "y": np.zeros((9, 70), np.uint8)},
    lambda a: {"y": ((a["x"].astype(np.int32) * [77, 150, 29]).sum(2) >> 8).astype(np.uint8)},
)


@tw.kernel
def brighten(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    """Floats saturate on their way to bytes."""
    m = tw.grid(x, 256)
    y[m] = (x[m] * 1.5 + 10.0).to(tw.u8)


BYTES["brighten"] = OfIntegers(
    brighten,
    lambda rng, dtype: {"x": drawn(rng, np.uint8, 999), "y": np.zeros(999, np.uint8)},
    lambda a: {"y": np.clip(a["x"].astype(np.float32) * 1.5 + 10, 0, 255).astype(np.uint8)},
)


@tw.kernel
def quantised_product(
    a: tw.Tensor["M", "K"],
    w: tw.Tensor["N", "H"],
    s: tw.Tensor["N"],
    y: tw.Tensor["M", "N"],
    *,
    bm: int = 64,
    bn: int = 64,
):
    """Two weights of 4 bits a byte."""
    m, n = tw.grid(y, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for h in tw.stream(w.shape[1], 32):
        p = w[n, h]
        acc += tw.dot(a[m, 2 * h], ((p & 15).to(tw.f16) - 8).T)
        acc += tw.dot(a[m, 2 * h + 1], ((p >> 4).to(tw.f16) - 8).T)
    y[m, n] = acc * s[n][None, :]


def _product(a: Arrays) -> Mapping[str, np.ndarray]:
    w = np.stack([a["w"] & 15, a["w"] >> 4], 2).reshape(len(a["w"]), -1).astype(np.float64) - 8
    return {"y": (a["a"].astype(np.float64) @ w.T) * a["s"]}


BYTES["quantised_product"] = OfIntegers(
    quantised_product,
    lambda rng, dtype: {
        "a": rng.standard_normal((70, 96)).astype(np.float16),
        "w": drawn(rng, np.uint8, 80, 48),
        "s": rng.standard_normal(80).astype(np.float32),
        "y": np.zeros((70, 80), np.float32),
    },
    _product,
    1e-4,
)
