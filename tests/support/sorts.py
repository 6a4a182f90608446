"""Kernels that sort, with NumPy's stable sort beside them."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from support.scans import Arrays, Scanning, stale

CASES: dict[str, Scanning] = {}


def of_kind(rng: np.random.Generator, kind: Any, *shape: int) -> np.ndarray:
    """Numbers with repeats; of floats also both zeros, infinities and NaN."""
    dtype = np.dtype(kind)
    if dtype.kind in "ib":
        info = np.iinfo(np.int8 if dtype.kind == "b" else dtype)
        wide = rng.integers(info.min, info.max, shape, endpoint=True)
        return np.where(rng.random(shape) < 0.5, wide, rng.integers(-2, 3, shape)).astype(dtype)
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5], np.float32)
    if dtype == ml_dtypes.float8_e4m3fn:
        special = special[[0, 1, 2, 5, 6]]
    drawn = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.4, rng.choice(special, shape), drawn).astype(dtype)


def places(x: np.ndarray, axis: int, *, descending: bool) -> np.ndarray:
    """Where elements of a stable sort come from, NaN being the greatest."""
    wide = x.astype(np.float64 if x.dtype.kind not in "ib" else np.int64)
    if not descending:
        return np.argsort(wide, axis, kind="stable")
    keys = np.where(np.isnan(wide), -np.inf, -wide) if wide.dtype.kind == "f" else -wide
    tie = np.where(np.isnan(wide), 0, 1)
    return np.lexsort((np.broadcast_to(_along(x, axis), x.shape), keys, tie), axis)


def _along(x: np.ndarray, axis: int) -> np.ndarray:
    return np.arange(x.shape[axis]).reshape([-1 if d == axis else 1 for d in range(x.ndim)])


@tw.kernel
def ordered(
    x: tw.Tensor["M", "N"],
    y: tw.Tensor["M", "N"],
    at: tw.Tensor["M", "N"],
    *,
    axis=1,
    descending=False,
    bm=4,
    upto=64,
):
    if axis:
        m = tw.grid(x.shape[0], bm)
        n = tw.axis(x.shape[1], upto=upto)
    else:
        n = tw.grid(x.shape[1], bm)
        m = tw.axis(x.shape[0], upto=upto)
    y[m, n] = tw.sort(x[m, n], axis, descending=descending)
    at[m, n] = tw.argsort(x[m, n], axis, descending=descending)


@tw.kernel
def greatest(
    x: tw.Tensor["M", "N"], y: tw.Tensor["M", "K"], at: tw.Tensor["M", "K"], *, k=8, largest=True, bm=4, upto=64
):
    m = tw.grid(x.shape[0], bm)
    n, j = tw.axis(x.shape[1], upto=upto), tw.axis(k)
    y[m, j], at[m, j] = tw.topk(x[m, n], k, 1, largest=largest)


@tw.kernel
def in_a_stream(x: tw.Tensor["M", "N"], best: tw.Tensor["M"], *, bm=2, bn=128):
    """The sum over tiles of each tile's second greatest: slots in shared memory are used step after step."""
    m = tw.grid(x.shape[0], bm)
    total = tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[1], bn):
        values, _ = tw.topk(x[m, n], 2, 1)
        total += values.min(1)
    best[m] = total


@tw.kernel
def shifted(x: tw.Tensor["N"], y: tw.Tensor["N"], *, upto=64):
    """Of elements two before each; the first two are absent and go last."""
    n = tw.axis(x.shape[0], upto=upto)
    y[n] = tw.sort(x[n.index - 2], 0)


@tw.kernel
def gate(x: tw.Tensor["T", "D"], w: tw.Tensor[64, "D"], y: tw.Tensor["T", 8], at: tw.Tensor["T", 8], *, bt=64):
    """The best of a product's columns, where they lie as tensor cores leave them."""
    t, e = tw.grid(x.shape[0], bt), tw.axis(64)
    score = tw.zeros((t, e), tw.f32)
    for d in tw.stream(x.shape[1], 64):
        score += tw.dot(x[t, d], w[e, d].T)
    y[t, :], at[t, :] = tw.topk(score, 8, 1)


def _gated(arrays: Arrays) -> Arrays:
    score = arrays["x"].astype(np.float64) @ arrays["w"].astype(np.float64).T
    at = places(score, 1, descending=True)[:, :8]
    return {"y": np.take_along_axis(score, at, 1), "at": at}


def _case(kernel: Any, draw: Callable[..., Arrays], expected: Any, name: str, **keywords: Any) -> None:
    CASES[name] = Scanning(kernel, draw, expected, 0.0, keywords)


def _ordered(name: str, kind: Any, m: int, n: int, **keywords: Any) -> None:
    axis, descending = keywords.get("axis", 1), keywords.get("descending", False)

    def draw(rng: np.random.Generator) -> Arrays:
        return {"x": of_kind(rng, kind, m, n), "y": stale(m, n, dtype=kind), "at": stale(m, n, dtype=np.int32)}

    def expected(arrays: Arrays) -> Arrays:
        at = places(arrays["x"], axis, descending=descending)
        return {"y": np.take_along_axis(arrays["x"], at, axis), "at": at}

    _case(ordered, draw, expected, name, **keywords)


def _greatest(name: str, kind: Any, m: int, n: int, k: int, **keywords: Any) -> None:
    largest = keywords.get("largest", True)

    def draw(rng: np.random.Generator) -> Arrays:
        return {"x": of_kind(rng, kind, m, n), "y": stale(m, k, dtype=kind), "at": stale(m, k, dtype=np.int32)}

    def expected(arrays: Arrays) -> Arrays:
        at = places(arrays["x"], 1, descending=largest)[:, :k]
        y = np.zeros((m, k), kind)
        y[:, :n] = np.take_along_axis(arrays["x"], at, 1)
        return {"y": y, "at": np.pad(at, [(0, 0), (0, k - at.shape[1])])}

    _case(greatest, draw, expected, name, k=k, **keywords)


def _second(arrays: Arrays) -> Arrays:
    x = np.pad(arrays["x"], [(0, 0), (0, -arrays["x"].shape[1] % 128)], constant_values=-np.inf)
    return {"best": np.sort(x.reshape(len(x), -1, 128), 2)[:, :, -2].sum(1, dtype=np.float32)}


def _whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-99, 99, shape).astype(np.float32)


FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
KINDS = (*FLOATS, np.int32, np.int8, np.bool_)
for each in KINDS:
    _ordered(f"{np.dtype(each).name} ascending", each, 5, 50)
    _ordered(f"{np.dtype(each).name} descending", each, 5, 64, descending=True)
for size in (1, 2, 31, 64):
    _ordered(f"down columns of {size}", np.float32, size, 9, axis=0)
_ordered("rows across warps", np.float32, 2, 1000, bm=1, upto=1024)
_ordered("narrow rows across warps", np.float16, 2, 1024, bm=1, upto=1024)
for each in (np.float32, ml_dtypes.bfloat16, np.int32):
    _greatest(f"greatest of {np.dtype(each).name}", each, 5, 61, 8)
_greatest("least", np.float32, 5, 64, 3, largest=False)
_greatest("one", np.float32, 5, 64, 1)
_greatest("fewer than asked for", np.float32, 3, 5, 8)
_greatest("many", np.float16, 3, 60, 64)
_greatest("greatest across warps", np.float32, 2, 2000, 6, bm=1, upto=2048)
_case(
    in_a_stream,
    lambda rng: {"x": _whole(rng, 3, 300), "best": stale(3)},
    _second,
    "in_a_stream",
)
_case(
    shifted,
    lambda rng: {"x": _whole(rng, 50), "y": stale(50)},
    lambda a: {"y": np.r_[np.sort(a["x"][:-2]), 0, 0]},
    "shifted",
)
_case(
    gate,
    lambda rng: {
        "x": rng.integers(-3, 4, (100, 128)).astype(np.float16),
        "w": rng.integers(-3, 4, (64, 128)).astype(np.float16),
        "y": stale(100, 8),
        "at": stale(100, 8, dtype=np.int32),
    },
    _gated,
    "gate",
)
