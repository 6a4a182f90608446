"""Kernels that scan, with NumPy beside them."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw

Arrays = dict[str, np.ndarray]
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Scanning:
    """A kernel, its keywords, arguments drawn from a seed (outputs hold what a launch has to overwrite), results."""

    kernel: Any
    draw: Callable[[np.random.Generator], Arrays]
    expected: Callable[[Arrays], Mapping[str, np.ndarray]]
    within: float = 0.0
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any])


CASES: dict[str, Scanning] = {}


def case(
    draw: Callable[[np.random.Generator], Arrays],
    expected: Callable[[Arrays], Mapping[str, np.ndarray]],
    within: float = 0.0,
) -> Callable[[Any], Any]:
    """Lists a kernel under its name."""

    def note(kernel: Any) -> Any:
        CASES[kernel.name] = Scanning(kernel, draw, expected, within)
        return kernel

    return note


def variant(name: str, kernel: Any, draw: Any, expected: Any, within: float = 0.0, **keywords: Any) -> None:
    """Lists a kernel with keywords."""
    CASES[name] = Scanning(kernel, draw, expected, within, keywords)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def stale(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, 7, dtype)


def before(total: np.ndarray, first: Any, axis: int) -> np.ndarray:
    """Running values before each element, of those after it."""
    shifted = np.roll(total, 1, axis)
    index = [slice(None)] * total.ndim
    index[axis] = slice(0, 1)
    shifted[tuple(index)] = first
    return shifted


def accumulated(
    fn: np.ufunc, x: np.ndarray, axis: int, *, first: Any, exclusive: bool = False, reverse: bool = False
) -> np.ndarray:
    """NumPy's running values, in 64 bits."""
    wide = x.astype(np.int64 if x.dtype.kind in "ib" else np.float64)
    wide = np.flip(wide, axis) if reverse else wide
    total = fn.accumulate(wide, axis)
    total = before(total, first, axis) if exclusive else total
    return np.flip(total, axis) if reverse else total


# -- every way of walking ---------------------------------------------------------------------------------------------
@tw.kernel
def sums(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, axis=1, exclusive=False, reverse=False, bm=4):
    """Whole rows or columns in a tile."""
    if axis == 1:
        m = tw.grid(x.shape[0], bm)
        n = tw.axis(x.shape[1], upto=1024)
    else:
        n = tw.grid(x.shape[1], 16)
        m = tw.axis(x.shape[0], upto=64)
    y[m, n] = tw.cumsum(x[m, n], axis, exclusive=exclusive, reverse=reverse)


def _sums(axis: int, exclusive: bool, reverse: bool) -> Callable[[Arrays], Arrays]:
    return lambda a: {"y": accumulated(np.add, a["x"], axis, first=0, exclusive=exclusive, reverse=reverse)}


for _axis, _m, _n in ((1, 7, 1000), (1, 3, 33), (1, 5, 1), (0, 37, 50), (0, 64, 16), (0, 1, 3)):
    for _exclusive in (False, True):
        for _reverse in (False, True):
            variant(
                f"sums of {_m} x {_n} along {_axis}{' exclusive' * _exclusive}{' reverse' * _reverse}",
                sums,
                lambda rng, m=_m, n=_n: {"x": floats(rng, m, n), "y": stale(m, n)},
                _sums(_axis, _exclusive, _reverse),
                5e-5,
                axis=_axis,
                exclusive=_exclusive,
                reverse=_reverse,
            )


# -- dtypes -----------------------------------------------------------------------------------------------------------
@tw.kernel
def every(
    x: tw.Tensor["M", "N"],
    total: tw.Tensor["M", "N"],
    product: tw.Tensor["M", "N"],
    most: tw.Tensor["M", "N"],
    least: tw.Tensor["M", "N"],
    *,
    reverse=False,
):
    m = tw.grid(x.shape[0], 4)
    n = tw.axis(x.shape[1], upto=256)
    row = x[m, n]
    total[m, n] = tw.cumsum(row, 1, reverse=reverse)
    product[m, n] = tw.cumprod(row, 1, reverse=reverse)
    most[m, n] = row.cummax(-1, reverse=reverse)
    least[m, n] = row.cummin(1, reverse=reverse)


_FUNCTIONS = {"total": (np.add, 0), "product": (np.multiply, 1), "most": (np.maximum, 0), "least": (np.minimum, 0)}


def _drawn_as(dtype: np.dtype[Any], rng: np.random.Generator, m: int, n: int) -> Arrays:
    if dtype.kind == "i":
        x = rng.integers(-3, 4, (m, n)).astype(dtype)
    elif dtype.kind == "b":
        x = rng.random((m, n)) < 0.3
    else:
        x = (1 + rng.standard_normal((m, n)) / 100).astype(dtype)
    wide = np.dtype(np.int64) if dtype.kind in "ib" else dtype
    kinds = {"total": wide, "product": wide, "most": dtype, "least": dtype}
    return {"x": x} | {n_: np.ones((m, n), d) for n_, d in kinds.items()}


def _every(a: Arrays, reverse: bool) -> Arrays:
    found = {n: accumulated(fn, a["x"], 1, first=first, reverse=reverse) for n, (fn, first) in _FUNCTIONS.items()}
    return {n: f.astype(a[n].dtype).astype(f.dtype) for n, f in found.items()}


for _dtype, _within in (
    (np.float32, 1e-5),
    (np.float16, 2e-3),
    (BF16, 2e-2),
    (np.int8, 0),
    (np.int32, 0),
    (np.int64, 0),
    (np.bool_, 0),
):
    for _reverse in (False, True):
        variant(
            f"every of {np.dtype(_dtype).name}{' reverse' * _reverse}",
            every,
            lambda rng, d=_dtype: _drawn_as(np.dtype(d), rng, 6, 150),
            lambda a, reverse=_reverse: _every(a, reverse),
            _within,
            reverse=_reverse,
        )


def _with_nan(rng: np.random.Generator) -> Arrays:
    x = floats(rng, 5, 70)
    x[1, 40], x[2, 0], x[3, 69], x[4, 3] = np.nan, np.nan, np.nan, -np.inf
    return {"x": x, "y": stale(5, 70)}


@case(_with_nan, lambda a: {"y": np.maximum.accumulate(a["x"], 1)})
@tw.kernel
def greatest_so_far(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """NaN from the first one on."""
    m = tw.grid(x.shape[0], 2)
    n = tw.axis(x.shape[1], upto=128)
    y[m, n] = tw.cummax(x[m, n], 1)


def _infinite_bytes(rng: np.random.Generator) -> Arrays:
    x = rng.choice(np.float32([-np.inf, -3, -0.0, 1.5, np.inf]), (5, 70)).astype(ml_dtypes.float8_e5m2)
    return {"x": x, "y": stale(5, 70, dtype=x.dtype)}


@case(_infinite_bytes, lambda a: {"y": np.minimum.accumulate(a["x"].astype(np.float32)[:, ::-1], 1)[:, ::-1]})
@tw.kernel
def least_of_bytes(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """Infinities are elements like others: those that conversions to 8 bits make finite."""
    m = tw.grid(x.shape[0], 2)
    n = tw.axis(x.shape[1], upto=128)
    y[m, n] = tw.cummin(x[m, n], 1, reverse=True)


# -- carried through a stream -----------------------------------------------------------------------------------------
@tw.kernel
def long_sums(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], sums: tw.Tensor["M"], *, exclusive=False, step=64):
    m = tw.grid(x.shape[0], 4)
    total = tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[1], step):
        y[m, n] = tw.cumsum(x[m, n], 1, exclusive=exclusive, carry=total)
    sums[m] = total


for _n in (1, 63, 64, 65, 1000):
    for _exclusive in (False, True):
        variant(
            f"long sums of {_n}{' exclusive' * _exclusive}",
            long_sums,
            lambda rng, n=_n: {"x": floats(rng, 6, n), "y": stale(6, n), "sums": stale(6)},
            lambda a, e=_exclusive: {"y": _sums(1, e, False)(a)["y"], "sums": a["x"].sum(1, dtype=np.float64)},
            1e-5,
            exclusive=_exclusive,
        )


@case(
    lambda rng: {"x": floats(rng, 100, 33), "y": stale(100, 33)},
    lambda a: {"y": accumulated(np.add, a["x"], 0, first=0)},
    1e-5,
)
@tw.kernel
def down_columns(x: tw.Tensor["T", "D"], y: tw.Tensor["T", "D"]):
    d = tw.grid(x.shape[1], 16)
    total = tw.zeros((d,), tw.f32)
    for t in tw.stream(x.shape[0], 32):
        y[t, d] = tw.cumsum(x[t, d], 0, carry=total)


@case(
    lambda rng: {"x": floats(rng, 900), "y": stale(900), "most": stale(900)},
    lambda a: {"y": accumulated(np.add, a["x"], 0, first=0), "most": np.maximum.accumulate(a["x"])},
    1e-5,
)
@tw.kernel
def one_row(x: tw.Tensor["N"], y: tw.Tensor["N"], most: tw.Tensor["N"]):
    """One program, a carry without axes."""
    total = tw.zeros((), tw.f32)
    greatest = tw.full((), -tw.inf, tw.f32)
    for n in tw.stream(x.shape[0], 256):
        y[n] = tw.cumsum(x[n], carry=total)
        most[n] = tw.cummax(x[n], carry=greatest)


# -- functions of the user's ------------------------------------------------------------------------------------------
def recurrence(before, here):
    """h = a * h + b, as maps h -> a * h + b that are applied one after the other."""
    (a, b), (c, d) = before, here
    return a * c, b * c + d


def _linear(a: np.ndarray, b: np.ndarray, first: float = 0.0, reverse: bool = False) -> np.ndarray:
    h, found = np.full(a.shape[0], first), np.zeros(a.shape)
    for n in range(a.shape[1])[:: -1 if reverse else 1]:
        h = a[:, n] * h + b[:, n]
        found[:, n] = h
    return found


def _decays(rng: np.random.Generator, m: int, n: int) -> Arrays:
    return {"a": rng.uniform(0.5, 1, (m, n)).astype(np.float32), "b": floats(rng, m, n), "h": stale(m, n)}


@tw.kernel
def linear(a: tw.Tensor["M", "N"], b: tw.Tensor["M", "N"], h: tw.Tensor["M", "N"], *, reverse=False):
    m = tw.grid(a.shape[0], 4)
    n = tw.axis(a.shape[1], upto=512)
    _, h[m, n] = tw.scan(recurrence, (a[m, n], b[m, n]), 1, reverse=reverse)


for _n in (1, 7, 300, 512):
    for _reverse in (False, True):
        variant(
            f"linear of {_n}{' reverse' * _reverse}",
            linear,
            lambda rng, n=_n: _decays(rng, 5, n),
            lambda a, reverse=_reverse: {"h": _linear(a["a"], a["b"], reverse=reverse)},
            1e-5,
            reverse=_reverse,
        )


@case(
    lambda rng: _decays(rng, 5, 777) | {"last": stale(5)},
    lambda a: {"h": (h := _linear(a["a"], a["b"], 1.5)), "last": h[:, -1]},
    1e-5,
)
@tw.kernel
def long_recurrence(a: tw.Tensor["M", "N"], b: tw.Tensor["M", "N"], h: tw.Tensor["M", "N"], last: tw.Tensor["M"]):
    m = tw.grid(a.shape[0], 4)
    decay, state = tw.full((m,), 1.0, tw.f32), tw.full((m,), 1.5, tw.f32)
    for n in tw.stream(a.shape[1], 64):
        _, h[m, n] = tw.scan(recurrence, (a[m, n], b[m, n]), 1, carry=(decay, state))
    last[m] = state


def _segmented(a: Arrays) -> Arrays:
    y, total = np.zeros(a["x"].shape), 0.0
    for n, (x, begins) in enumerate(zip(a["x"], a["begins"], strict=True)):
        total = x + (0 if begins else total)
        y[n] = total
    return {"y": y}


@case(
    lambda rng: {"x": floats(rng, 500), "begins": rng.random(500) < 0.1, "y": stale(500)},
    _segmented,
    1e-5,
)
@tw.kernel
def segmented_sums(x: tw.Tensor["N"], begins: tw.Tensor["N"], y: tw.Tensor["N"]):
    def add(before, here):
        (begun, total), (begins, x) = before, here
        return begun | begins, tw.where(begins, x, total + x)

    begun, total = tw.full((), False, tw.bool), tw.zeros((), tw.f32)
    for n in tw.stream(x.shape[0], 128):
        _, y[n] = tw.scan(add, (begins[n], x[n]), 0, carry=(begun, total))


def _first_greatest(a: Arrays) -> Arrays:
    return {"y": np.array([[np.argmax(row[: n + 1]) for n in range(len(row))] for row in a["x"]])}


@case(
    lambda rng: {"x": rng.integers(0, 9, (3, 50)).astype(np.float32), "y": np.full((3, 50), 7, np.int32)},
    _first_greatest,
)
@tw.kernel
def place_of_greatest(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """A state of a float and an integer."""

    def greater(before, here):
        (x, i), (y, j) = before, here
        return tw.maximum(x, y), tw.where(y > x, j, i)

    m = tw.grid(x.shape[0], 2)
    n = tw.axis(x.shape[1], upto=64)
    _, y[m, n] = tw.scan(greater, (x[m, n], n), 1)


@case(
    lambda rng: {"x": floats(rng, 4, 40), "first": floats(rng, 4), "y": stale(4, 40)},
    lambda a: {"y": before(np.minimum.accumulate(np.c_[a["first"], a["x"]], 1), 0, 1)[:, 1:]},
)
@tw.kernel
def least_before(x: tw.Tensor["M", "N"], first: tw.Tensor["M"], y: tw.Tensor["M", "N"]):
    """Exclusive, from a state of each row's own."""
    m = tw.grid(x.shape[0], 2)
    n = tw.axis(x.shape[1], upto=64)
    y[m, n] = tw.scan(tw.minimum, x[m, n], 1, init=first[m], exclusive=True)


@case(
    lambda rng: {"x": floats(rng, 4, 40), "first": floats(rng, 4), "y": stale(4, 40)},
    lambda a: {
        "y": before(_linear(np.full((4, 40), 0.75), a["x"][:, ::-1], 0.5), 0.5, 1)[:, ::-1],
    },
    1e-5,
)
@tw.kernel
def decayed_after(x: tw.Tensor["M", "N"], first: tw.Tensor["M"], y: tw.Tensor["M", "N"]):
    """Exclusive and backwards."""
    m = tw.grid(x.shape[0], 2)
    n = tw.axis(x.shape[1], upto=64)
    decay = tw.full((m, n), 0.75, tw.f32)
    _, y[m, n] = tw.scan(recurrence, (decay, x[m, n]), 1, init=(1.0, 0.5), exclusive=True, reverse=True)


# -- absent elements --------------------------------------------------------------------------------------------------
def _shifted(x: np.ndarray, by: int, absent: float) -> np.ndarray:
    return np.r_[np.full(by, absent), x[:-by].astype(np.float64)]


@case(
    lambda rng: {"x": floats(rng, 100), "y": stale(100), "most": stale(100), "tail": stale(100)},
    lambda a: {
        "y": np.cumsum(_shifted(a["x"], 3, 0)),
        "most": np.maximum.accumulate(_shifted(a["x"], 3, -np.inf)),
        "tail": np.maximum.accumulate(np.where(np.arange(103) < 100, np.r_[a["x"], 0, 0, 0], -np.inf)[3:][::-1])[::-1],
    },
    1e-5,
)
@tw.kernel
def shifted(x: tw.Tensor["T"], y: tw.Tensor["T"], most: tw.Tensor["T"], tail: tw.Tensor["T"]):
    """Absent elements leave the running value."""
    t = tw.axis(x.shape[0], upto=128)
    y[t] = tw.cumsum(x[t - 3])
    most[t] = tw.cummax(x[t - 3])
    tail[t] = tw.cummax(x[t + 3], reverse=True)


def _gathered_least(a: Arrays) -> Arrays:
    y, least = np.zeros(len(a["index"])), None
    for n, at in enumerate(a["index"]):
        if 0 <= at < len(a["x"]):
            least = a["x"][at] if least is None else min(least, a["x"][at])
        y[n] = -1 if least is None else least
    return {"y": y}


@case(
    lambda rng: {
        "x": floats(rng, 40),
        "index": np.r_[-1, 40, rng.integers(-20, 60, 88)].astype(np.int32),
        "y": stale(90),
    },
    _gathered_least,
)
@tw.kernel
def gathered_least(x: tw.Tensor["V"], index: tw.Tensor["T"], y: tw.Tensor["T"]):
    """By a function without a known identity: absent until the first element that is present."""
    t = tw.axis(index.shape[0], upto=128)
    y[t] = tw.scan(lambda a, b: tw.where(b < a, b, a), x[index[t]], 0).fill(-1.0)


@case(
    lambda rng: {"x": floats(rng, 6, 90), "lengths": np.array([0, 1, 64, 65, 90, -5], np.int32), "sums": stale(6)},
    lambda a: {
        "sums": np.array([r[: max(0, n)].sum(dtype=np.float64) for r, n in zip(a["x"], a["lengths"], strict=True)])
    },
    1e-5,
)
@tw.kernel
def until_loaded(x: tw.Tensor["B", "N"], lengths: tw.Tensor["B"], sums: tw.Tensor["B"]):
    """Of no element the carry is what it was."""
    b = tw.grid(x.shape[0], None)
    n = tw.axis(x.shape[1], upto=128, until=lengths[b])
    total = tw.zeros((), tw.f32)
    tw.scan(lambda a, b: a + b + 0.0, x[b, n], 0, carry=total)
    sums[b] = total


# -- places -----------------------------------------------------------------------------------------------------------
@case(
    lambda rng: {"bins": rng.integers(0, 8, 300).astype(np.int32), "rank": np.full(300, 7, np.int64)},
    lambda a: {"rank": np.array([(a["bins"][:n] == b).sum() for n, b in enumerate(a["bins"])])},
)
@tw.kernel
def rank_in_bin(bins: tw.Tensor["T"], rank: tw.Tensor["T"]):
    """How many before each are in its bin: a running sum of a one-hot compare, carried for all bins."""
    b = tw.axis(8)
    counts = tw.zeros((b,), tw.i64)
    for t in tw.stream(bins.shape[0], 64):
        hit = bins[t][:, None] == b.index[None, :]
        place = tw.cumsum(hit, 0, exclusive=True, carry=counts)
        rank[t] = tw.where(hit, place, 0).sum(1)


@case(
    lambda rng: {"lengths": rng.integers(0, 9, 70).astype(np.int32), "starts": np.full(70, 7, np.int32)},
    lambda a: {"starts": np.cumsum(a["lengths"]) - a["lengths"]},
)
@tw.kernel
def offsets(lengths: tw.Tensor["G"], starts: tw.Tensor["G"]):
    """Run-length offsets."""
    g = tw.axis(lengths.shape[0], upto=128)
    starts[g] = tw.cumsum(lengths[g], exclusive=True).to(tw.i32)


def _compacted(a: Arrays) -> Arrays:
    kept = a["x"][a["x"] > 0]
    return {"y": np.r_[kept, np.zeros(len(a["x"]) - len(kept))]}


@case(lambda rng: {"x": floats(rng, 100), "y": np.zeros(100, np.float32)}, _compacted)
@tw.kernel
def compacted(x: tw.Tensor["T"], y: tw.Tensor["T"]):
    """Places found by a scan are coordinates."""
    t = tw.axis(x.shape[0], upto=128)
    keep = x[t] > 0
    place = tw.cumsum(keep, exclusive=True)
    tw.reduce_add(y, tw.where(keep, place, -1), x[t])


# -- three axes, products ---------------------------------------------------------------------------------------------
def _selective(a: Arrays) -> Arrays:
    h, y = np.zeros((a["x"].shape[1], a["a"].shape[1])), np.zeros(a["x"].shape)
    for t in range(len(y)):
        decay = np.exp(a["dt"][t][:, None].astype(np.float64) * a["a"])
        h = decay * h + (a["dt"][t] * a["x"][t])[:, None] * a["b"][t][None, :]
        y[t] = (h * a["c"][t][None, :]).sum(1)
    return {"y": y}


@case(
    lambda rng: {
        "x": floats(rng, 75, 12),
        "dt": rng.uniform(0.01, 0.1, (75, 12)).astype(np.float32),
        "a": -rng.uniform(0.5, 1, (12, 16)).astype(np.float32),
        "b": floats(rng, 75, 16),
        "c": floats(rng, 75, 16),
        "y": stale(75, 12),
    },
    _selective,
    1e-4,
)
@tw.kernel
def selective_scan(
    x: tw.Tensor["T", "D"],
    dt: tw.Tensor["T", "D"],
    a: tw.Tensor["D", 16],
    b: tw.Tensor["T", 16],
    c: tw.Tensor["T", 16],
    y: tw.Tensor["T", "D"],
):
    """Mamba: h[t] = exp(dt * a) * h[t - 1] + dt * b * x; y[t] = sum over n of c * h[t]."""
    d = tw.grid(x.shape[1], 8)
    n = tw.axis(16)
    decay, state = tw.full((d, n), 1.0, tw.f32), tw.zeros((d, n), tw.f32)
    for t in tw.stream(x.shape[0], 16):
        step = dt[t, d][:, :, None]
        _, h = tw.scan(
            recurrence,
            (tw.exp(step * a[d, n][None, :, :]), step * x[t, d][:, :, None] * b[t, n][:, None, :]),
            0,
            carry=(decay, state),
        )
        y[t, d] = (h * c[t, n][:, None, :]).sum(2)


@tw.kernel
def of_product(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], y: tw.Tensor["M", "N"], *, axis=1, reverse=False):
    """The accumulator of a product of matrices, along either axis."""
    m, n = tw.grid((a.shape[0], b.shape[1]), (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[k, n])
    y[m, n] = tw.cumsum(acc, axis, reverse=reverse)


for _axis in (0, 1):
    for _reverse in (False, True):
        variant(
            f"of product along {_axis}{' reverse' * _reverse}",
            of_product,
            lambda rng: {
                "a": floats(rng, 50, 64).astype(BF16),
                "b": floats(rng, 64, 40).astype(BF16),
                "y": stale(50, 40),
            },
            lambda a, axis=_axis, reverse=_reverse: {
                "y": accumulated(
                    np.add, a["a"].astype(np.float64) @ a["b"].astype(np.float64), axis, first=0, reverse=reverse
                )
            },
            1e-3,
            axis=_axis,
            reverse=_reverse,
        )
