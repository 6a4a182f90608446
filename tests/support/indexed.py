"""Kernels at computed and loaded coordinates, with NumPy beside them."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.base.dtypes import DTYPES
from tilewright.schedule.facts import CallFacts, Observed, observe_facts

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Indexed:
    """A kernel, arguments drawn from a seed (outputs hold what a launch has to overwrite, or to add to), results."""

    kernel: Any
    draw: Callable[[np.random.Generator], Arrays]
    expected: Callable[[Arrays], Mapping[str, np.ndarray]]
    within: float = 0.0


CASES: dict[str, Indexed] = {}


def case(
    draw: Callable[[np.random.Generator], Arrays],
    expected: Callable[[Arrays], Mapping[str, np.ndarray]],
    within: float = 0.0,
) -> Callable[[Any], Any]:
    """Lists a kernel under its name."""

    def note(kernel: Any) -> Any:
        CASES[kernel.name] = Indexed(kernel, draw, expected, within)
        return kernel

    return note


SHORT = {
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "bool": "bool",
}


def facts_of(arrays: Arrays) -> CallFacts:
    """Of tensors that begin at multiples of 16 bytes."""
    seen = {
        n: Observed(DTYPES[SHORT[a.dtype.name]], 0, a.shape, tuple(s // a.itemsize for s in a.strides))
        for n, a in arrays.items()
    }
    return observe_facts(seen)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def stale(*shape: int) -> np.ndarray:
    """An output that has something in it."""
    return np.full(shape, 7, np.float32)


def rows_at(table: np.ndarray, index: np.ndarray, absent: float = 0.0) -> np.ndarray:
    """``table[index]``, ``absent`` where an index leads outside."""
    inside = (index >= 0) & (index < len(table))
    found = table[np.where(inside, index, 0)]
    return np.where(inside.reshape(inside.shape + (1,) * (found.ndim - inside.ndim)), found, np.float32(absent))


# -- loaded coordinates ------------------------------------------------------------------------------------------------
@case(
    lambda rng: {
        "index": rng.integers(-3, 53, 37).astype(np.int32),
        "table": floats(rng, 50, 100),
        "y": stale(37, 100),
    },
    lambda a: {"y": rows_at(a["table"], a["index"])},
)
@tw.kernel
def embedding(index: tw.Tensor["T"], table: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
    m, n = tw.grid(y, (4, 64))
    y[m, n] = table[index[m], n]


def _sums(a: Arrays) -> Mapping[str, np.ndarray]:
    y = a["y"].astype(np.float64)
    inside = (a["index"] >= 0) & (a["index"] < len(y))
    np.add.at(y, a["index"][inside], a["x"][inside])
    return {"y": y}


@case(
    lambda rng: {
        "index": rng.integers(-3, 12, 37).astype(np.int64) << rng.integers(0, 2, 37) * 40,
        "x": floats(rng, 37, 100),
        "y": floats(rng, 9, 100),
    },
    _sums,
    1e-5,
)
@tw.kernel
def index_add(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], y: tw.Tensor["V", "D"]):
    m, n = tw.grid(x, (4, 64))
    tw.reduce_add(y, (index[m], n), x[m, n])


@case(
    lambda rng: {
        "x": floats(rng, 9, 30),
        "index": rng.integers(-2, 32, (9, 21)).astype(np.int32),
        "y": stale(9, 21),
    },
    lambda a: {"y": np.stack([rows_at(row, at) for row, at in zip(a["x"], a["index"], strict=True)])},
)
@tw.kernel
def take_along_rows(x: tw.Tensor["M", "N"], index: tw.Tensor["M", "K"], y: tw.Tensor["M", "K"]):
    m, k = tw.grid(y, (4, 16))
    y[m, k] = x[m.index[:, None], index[m, k]]


@case(
    lambda rng: {
        "pages": rng.integers(-1, 7, (3, 5)).astype(np.int32),
        "pool": floats(rng, 6, 8, 16),
        "y": stale(3, 5, 8, 16),
    },
    lambda a: {"y": rows_at(a["pool"], a["pages"])},
)
@tw.kernel
def pages_of(pages: tw.Tensor["B", "P"], pool: tw.Tensor["N", 8, 16], y: tw.Tensor["B", "P", 8, 16]):
    b, p = tw.grid((y.shape[0], y.shape[1]), (None, None))
    y[b, p] = pool[pages[b, p]]


@case(
    lambda rng: {
        "logits": floats(rng, 13, 40),
        "target": np.r_[-100, rng.integers(0, 40, 12)].astype(np.int64),
        "loss": stale(13),
    },
    lambda a: {
        "loss": np.where(
            a["target"] >= 0,
            np.log(np.exp(a["logits"].astype(np.float64)).sum(1))
            - np.take_along_axis(a["logits"], np.maximum(a["target"], 0)[:, None], 1)[:, 0],
            0,
        )
    },
    1e-5,
)
@tw.kernel
def cross_entropy(logits: tw.Tensor["M", "N"], target: tw.Tensor["M"], loss: tw.Tensor["M"]):
    """Labels of -100 count as no label: their loss is 0."""
    m = tw.grid(loss, 4)
    n = tw.axis(logits.shape[1], upto=64)
    row = logits[m, n]
    most = row.max(1)
    total = tw.log(tw.exp(row - most[:, None]).sum(1)) + most
    loss[m] = total - logits[m.index, target[m]]


@case(
    lambda rng: {
        "first": rng.integers(-1, 12, 20).astype(np.int32),
        "second": rng.integers(-1, 11, 10).astype(np.int32),
        "x": floats(rng, 20),
        "y": stale(20),
    },
    lambda a: {"y": rows_at(a["x"], rows_at(a["second"], a["first"], -1).astype(int), 1.5)},
)
@tw.kernel
def twice(first: tw.Tensor["T"], second: tw.Tensor["U"], x: tw.Tensor["T"], y: tw.Tensor["T"]):
    """What is absent leads nowhere."""
    t = tw.grid(y, 16)
    y[t] = x[second[first[t]]].fill(1.5)


# -- computed coordinates ----------------------------------------------------------------------------------------------
@case(
    lambda rng: {"x": floats(rng, 1000), "w": floats(rng, 4), "y": stale(1000)},
    lambda a: {"y": np.convolve(a["x"].astype(np.float64), a["w"])[:1000]},
    1e-5,
)
@tw.kernel
def causal_conv1d(x: tw.Tensor["T"], w: tw.Tensor[4], y: tw.Tensor["T"]):
    t = tw.grid(y, 256)
    acc = tw.zeros((t,), tw.f32)
    for j in range(4):
        acc += x[t - j] * w[j]
    y[t] = acc


def _rotated(a: Arrays) -> Mapping[str, np.ndarray]:
    first, second = a["x"][..., :32], a["x"][..., 32:]
    cos, sin = a["cos"][:, None], a["sin"][:, None]
    return {"y": np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)}


@case(
    lambda rng: {
        "x": floats(rng, 9, 3, 64),
        "cos": floats(rng, 9, 32),
        "sin": floats(rng, 9, 32),
        "y": stale(9, 3, 64),
    },
    _rotated,
    1e-6,
)
@tw.kernel
def rotary(x: tw.Tensor["T", "H", 64], cos: tw.Tensor["T", 32], sin: tw.Tensor["T", 32], y: tw.Tensor["T", "H", 64]):
    t, h = tw.grid(x, (4, None))
    first, second = x[t, h, :32], x[t, h, 32:]
    y[t, h, :32] = first * cos[t] - second * sin[t]
    y[t, h, 32:] = second * cos[t] + first * sin[t]


@case(
    lambda rng: {"x": floats(rng, 20, 3, 64), "cos": floats(rng, 20, 32), "sin": floats(rng, 20, 32)},
    lambda a: {"x": _rotated(a)["y"]},
    1e-6,
)
@tw.kernel
def rotary_in_place(x: tw.Tensor["T", "H", 64], cos: tw.Tensor["T", 32], sin: tw.Tensor["T", 32]):
    """Halves that never meet are read and written in any order."""
    t, h = tw.grid((x.shape[0], x.shape[1]), (8, None))
    first, second = x[t, h, :32], x[t, h, 32:]
    x[t, h, :32] = first * cos[t] - second * sin[t]
    x[t, h, 32:] = second * cos[t] + first * sin[t]


@case(
    lambda rng: {"q": floats(rng, 40, 40), "table": floats(rng, 20), "y": stale(40, 40)},
    lambda a: {"y": a["q"] + rows_at(a["table"], np.subtract.outer(np.arange(40), np.arange(40)) + 8, 1.0)},
)
@tw.kernel
def relative_position(q: tw.Tensor["N", "N"], table: tw.Tensor["R"], y: tw.Tensor["N", "N"]):
    m, n = tw.grid(y, (16, 16))
    y[m, n] = q[m, n] + table[m.index[:, None] - n.index[None, :] + 8].fill(1.0)


@case(
    lambda rng: {"x": floats(rng, 301), "y": stale(160)},
    lambda a: {"y": np.r_[a["x"], np.full(19, -np.inf, np.float32)].reshape(160, 2).max(1)},
)
@tw.kernel
def max_of_pairs(x: tw.Tensor["T"], y: tw.Tensor["U"]):
    t = tw.grid(y, 64)
    y[t] = tw.maximum(x[2 * t].fill(-tw.inf), x[2 * t + 1].fill(-tw.inf))


@case(
    lambda rng: {"x": floats(rng, 3, 20, 30), "y": stale(3, 10, 15)},
    lambda a: {"y": a["x"].astype(np.float64).reshape(3, 10, 2, 15, 2).mean((2, 4))},
    1e-6,
)
@tw.kernel
def average_pool(x: tw.Tensor["C", "H", "W"], y: tw.Tensor["C", "P", "Q"]):
    """Index tiles of one axis stand like Ranges."""
    c, h, w = tw.grid(y, (None, 8, 8))
    rows = [x[c, 2 * h + i, 2 * w + j].fill(0.0) for i in range(2) for j in range(2)]
    y[c, h, w] = (rows[0] + rows[1] + rows[2] + rows[3]) * 0.25


@case(
    lambda rng: {"x": floats(rng, 50), "y": stale(101)},
    lambda a: {"y": np.r_[np.stack([a["x"], -a["x"][::-1]], 1).ravel(), np.float32(7)]},
)
@tw.kernel
def interleave(x: tw.Tensor["T"], y: tw.Tensor["U"]):
    """Elements that no coordinate reaches stay as they were."""
    t = tw.grid(x, 16)
    y[2 * t] = x[t]
    y[2 * t + 1] = -x[x.shape[0] - 1 - t]


def _convolved(a: Arrays) -> Mapping[str, np.ndarray]:
    x = np.pad(a["x"].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    taps = [a["w"][i, j] * x[:, i : i + 19 : 2, j : j + 17] for i in range(3) for j in range(3)]
    return {"y": np.sum(taps, axis=0)}


@case(
    lambda rng: {"x": floats(rng, 3, 20, 17), "w": floats(rng, 3, 3), "y": stale(3, 10, 17)},
    _convolved,
    1e-5,
)
@tw.kernel
def depthwise_conv2d(x: tw.Tensor["C", "H", "W"], w: tw.Tensor[3, 3], y: tw.Tensor["C", "P", "W"]):
    """A stride of 2 along rows; padding is what is absent."""
    c, p, q = tw.grid(y, (None, 4, 16))
    acc = tw.zeros((p, q), tw.f32)
    for i in range(3):
        for j in range(3):
            acc += x[c, (2 * p.index + i - 1)[:, None], (q.index + j - 1)[None, :]] * w[i, j]
    y[c, p, q] = acc


@case(
    lambda rng: {"x": floats(rng, 9, 30), "y": stale(9)},
    lambda a: {"y": np.diff(a["x"], axis=1, prepend=np.float32(-np.inf))[:, 1:].max(1)},
)
@tw.kernel
def steepest(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
    """A reduction skips what is absent."""
    m = tw.grid(y, 4)
    n = tw.axis(x.shape[1], upto=32)
    y[m] = (x[m, n] - x[m, n - 1]).max(1)


@case(
    lambda rng: {"x": floats(rng, 33, 8), "y": stale(33, 8)},
    lambda a: {"y": np.r_[np.zeros((1, 8), np.float32), a["x"][:-1]] - a["x"]},
)
@tw.kernel
def from_step_before(x: tw.Tensor["T", "D"], y: tw.Tensor["T", "D"]):
    """A scalar coordinate leaves the tensor in the first program."""
    t = tw.grid(x.shape[0], None)
    n = tw.axis(x.shape[1], upto=8)
    y[t, n] = x[t - 1, n].fill(0.0) - x[t, n]


@case(
    lambda rng: {"x": floats(rng, 12, 10), "y": stale(12, 3)},
    lambda a: {"y": a["x"][:, 8:2:-2]},
)
@tw.kernel
def backwards(x: tw.Tensor["M", 10], y: tw.Tensor["M", 3]):
    m = tw.grid(x.shape[0], 4)
    y[m, :] = x[m, 8:2:-2]


# -- loaded bounds -----------------------------------------------------------------------------------------------------
def _means(a: Arrays) -> Mapping[str, np.ndarray]:
    ends = np.clip(a["lengths"], 0, a["x"].shape[1])
    sums = np.array([row[:end].astype(np.float64).sum() for row, end in zip(a["x"], ends, strict=True)])
    return {"y": sums / np.maximum(ends, 1)}


@case(
    lambda rng: {
        "lengths": np.r_[0, -5, 100, 2**31 - 1, 1, rng.integers(0, 101, 4)].astype(np.int32),
        "x": floats(rng, 9, 100),
        "y": stale(9),
    },
    _means,
    1e-5,
)
@tw.kernel
def mean_of_lengths(lengths: tw.Tensor["B"], x: tw.Tensor["B", "N"], y: tw.Tensor["B"]):
    """Lengths are clipped to the extent; a negative one is an empty stream."""
    b = tw.grid(y, None)
    total = tw.zeros((), tw.f32)
    for n in tw.stream(x.shape[1], 32, until=lengths[b]):
        total += x[b, n].sum(0)
    count = tw.maximum(tw.minimum(lengths[b], x.shape[1]), 1)
    y[b] = total / count.to(tw.f32)


def _segments(a: Arrays) -> Mapping[str, np.ndarray]:
    clipped = np.clip(a["offsets"], 0, len(a["x"]))
    pairs = list(pairwise(clipped))
    return {
        "y": np.stack([a["x"][lo:hi].max(0, initial=-np.inf) if hi > lo else np.full(20, -np.inf) for lo, hi in pairs])
    }


@case(
    lambda rng: {
        "offsets": np.array([0, 7, 7, 50, 48, 2**40, -3, 64], np.int64),
        "x": floats(rng, 64, 20),
        "y": stale(7, 20),
    },
    _segments,
)
@tw.kernel
def segment_max(offsets: tw.Tensor["S"], x: tw.Tensor["T", "D"], y: tw.Tensor["G", "D"]):
    """Offsets that do not ascend give empty segments, or such that overlap: nothing is read outside."""
    g, d = tw.grid(y, (None, 16))
    most = tw.full((d,), -tw.inf, tw.f32)
    for t in tw.stream(x.shape[0], 8, start=offsets[g], until=offsets[g + 1]):
        most.set(tw.maximum(most, x[t, d].max(0)))
    y[g, d] = most


def _attention(a: Arrays) -> Mapping[str, np.ndarray]:
    rows = []
    for q, k, v, n in zip(a["q"].astype(np.float64), a["k"], a["v"], a["lengths"], strict=True):
        s = np.exp(k[:n].astype(np.float64) @ q / 4.0)
        rows.append((s[:, None] * v[:n]).sum(0) / s.sum() if n else np.zeros(16))
    return {"o": np.stack(rows)}


@case(
    lambda rng: {
        "lengths": np.array([0, 1, 37, 64], np.int32),
        "q": floats(rng, 4, 16),
        "k": floats(rng, 4, 64, 16),
        "v": floats(rng, 4, 64, 16),
        "o": stale(4, 16),
    },
    _attention,
    1e-5,
)
@tw.kernel
def decode(
    lengths: tw.Tensor["B"],
    q: tw.Tensor["B", 16],
    k: tw.Tensor["B", "T", 16],
    v: tw.Tensor["B", "T", 16],
    o: tw.Tensor["B", 16],
):
    """Attention of one query over as many keys as there are."""
    b = tw.grid(q.shape[0], None)
    query = q[b]
    most, total, acc = tw.full((), -tw.inf, tw.f32), tw.zeros((), tw.f32), tw.zeros((16,), tw.f32)
    for t in tw.stream(k.shape[1], 16, until=lengths[b]):
        s = (k[b, t] * query[None, :]).sum(1) * 0.25
        new = tw.maximum(most, s.max(0))
        p = tw.exp(s - new)
        scale = tw.exp(most - new)
        total.set(total * scale + p.sum(0))
        acc.set(acc * scale + (p[:, None] * v[b, t]).sum(0))
        most.set(new)
    o[b] = tw.where(total > 0, acc / tw.maximum(total, 1e-30), 0.0)


@case(
    lambda rng: {
        "ends": np.array([3, 0, 90, 33], np.int32),
        "index": rng.integers(-1, 8, (4, 40)).astype(np.int32),
        "x": floats(rng, 4, 40),
        "y": floats(rng, 7),
    },
    lambda a: {"y": a["y"].astype(np.float64) + _added(a)},
    1e-5,
)
@tw.kernel
def ragged_sums(ends: tw.Tensor["B"], index: tw.Tensor["B", "N"], x: tw.Tensor["B", "N"], y: tw.Tensor["V"]):
    """Added to at loaded places, as often as was loaded."""
    b = tw.grid(ends, None)
    for n in tw.stream(x.shape[1], 16, until=ends[b]):
        tw.reduce_add(y, index[b, n], x[b, n])


def _added(a: Arrays) -> np.ndarray:
    made = np.zeros(len(a["y"]))
    for end, places, row in zip(a["ends"], a["index"], a["x"], strict=True):
        kept = (places[:end] >= 0) & (places[:end] < len(made))
        np.add.at(made, places[:end][kept], row[:end][kept])
    return made


# -- stores through promised tensors -----------------------------------------------------------------------------------
def _scattered(y: np.ndarray, places: tuple[np.ndarray, ...], x: np.ndarray) -> np.ndarray:
    """``y[places] = x`` where the places lie in y."""
    made = y.copy()
    inside = np.all([(p >= 0) & (p < n) for p, n in zip(places, y.shape, strict=False)], axis=0)
    made[tuple(p[inside] for p in places)] = x[inside]
    return made


def _some_of(rng: np.random.Generator, count: int, extent: int, outside: list[int]) -> np.ndarray:
    """Different integers below ``extent``, with some that lead outside, more than once."""
    drawn = rng.permutation(extent)[:count]
    drawn[rng.permutation(count)[: 2 * len(outside)]] = np.repeat(outside, 2)
    return drawn


@case(
    lambda rng: {
        "rows": _some_of(rng, 37, 50, [-1, 50, 2**31 - 1]).astype(np.int32),
        "x": floats(rng, 37, 100),
        "y": stale(50, 100),
    },
    lambda a: {"y": _scattered(a["y"], (a["rows"],), a["x"])},
)
@tw.kernel
def scatter_rows(rows: tw.Unique["T"], x: tw.Tensor["T", "D"], y: tw.Tensor["V", "D"]):
    """Rows that nothing is stored to stay as they were."""
    t, d = tw.grid(x, (8, 64))
    y[rows[t], d] = x[t, d]


@case(
    lambda rng: {
        "slots": _some_of(rng, 21, 48, [-1, 2**40]).astype(np.int64),
        "k": floats(rng, 21, 3, 16),
        "pool": stale(6, 8, 3, 16),
    },
    lambda a: {"pool": _scattered(a["pool"].reshape(48, 3, 16), (a["slots"],), a["k"]).reshape(6, 8, 3, 16)},
)
@tw.kernel
def append_to_pages(slots: tw.Unique["T"], k: tw.Tensor["T", "H", 16], pool: tw.Tensor["P", 8, "H", 16]):
    """A slot is a page and a place in it; a slot of -1 is stored nowhere."""
    t, h = tw.grid(k, (4, None))
    slot = slots[t]
    pool[slot // 8, slot % 8, h] = k[t, h]


def _pairs(rng: np.random.Generator) -> Arrays:
    flat = rng.permutation(9 * 7)[:40].astype(np.int32)
    flat[3:5] = -1
    return {"row": flat // 7, "column": flat % 7, "x": floats(rng, 40), "y": stale(9, 7)}


@case(_pairs, lambda a: {"y": _scattered(a["y"], (a["row"], a["column"]), a["x"])})
@tw.kernel
def scatter_pairs(row: tw.Unique["E"], column: tw.Unique["E"], x: tw.Tensor["E"], y: tw.Tensor["M", "N"]):
    """The pairs are unique, neither tensor by itself."""
    e = tw.grid(x, 16)
    y[row[e], column[e]] = x[e]


@case(
    lambda rng: {
        "place": rng.permutation(30)[:26].reshape(13, 2).astype(np.int32),
        "x": floats(rng, 13, 40),
        "sent": stale(30, 40),
        "token": np.full(30, 7, np.int32),
        "count": np.full(1, 5, np.int32),
    },
    lambda a: {
        "sent": _scattered(a["sent"], (a["place"].ravel(),), np.repeat(a["x"], 2, 0)),
        "token": _scattered(a["token"], (a["place"].ravel(),), np.repeat(np.arange(13, dtype=np.int32), 2)),
        "count": np.array([5 + 26]),
    },
)
@tw.kernel
def dispatch(
    place: tw.Unique["T", 2],
    x: tw.Tensor["T", "D"],
    sent: tw.Tensor["S", "D"],
    token: tw.Tensor["S"],
    count: tw.Tensor[1],
):
    """Rows go where two columns of places say; two tensors are stored to, and a third added to."""
    t = tw.grid(x.shape[0], 4)
    token[place[t]] = t.index[:, None]
    for d in tw.stream(x.shape[1], 32):
        sent[place[t], d] = x[t, d][:, None, :]
    tw.reduce_add(count, 0, (place[t] >= 0).to(tw.i32).sum(1).sum(0))


# -- other reductions into memory --------------------------------------------------------------------------------------
def _reduced(ufunc: np.ufunc, target: np.ndarray, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """``target`` after a reduction at places that may repeat, or lead outside."""
    found, inside = target.copy(), (index >= 0) & (index < len(target))
    ufunc.at(found, index[inside], values[inside])
    return found


def _with_extremes(values: np.ndarray) -> np.ndarray:
    """Some of the values infinite, NaN, and zeros of both signs."""
    values.reshape(-1)[:24:4] = [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0]
    return values


@case(
    lambda rng: {
        "index": rng.integers(-3, 12, 97).astype(np.int64) << rng.integers(0, 2, 97) * 40,
        "x": _with_extremes(floats(rng, 97, 70)),
        "top": floats(rng, 9, 70),
        "least": floats(rng, 9, 70),
    },
    lambda a: {
        "top": _reduced(np.maximum, a["top"], a["index"], a["x"]),
        "least": _reduced(np.minimum, a["least"], a["index"], a["x"]),
    },
)
@tw.kernel
def extremes_at(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], top: tw.Tensor["V", "D"], least: tw.Tensor["V", "D"]):
    """Extrema of f32: NaN where an element is."""
    m, n = tw.grid(x, (16, 64))
    tw.reduce_max(top, (index[m], n), x[m, n])
    tw.reduce_min(least, (index[m], n), x[m, n])


@case(
    lambda rng: {
        "x": rng.integers(-(2**62), 2**62, 203),
        "top": rng.integers(-(2**62), 0, 60),
        "least": rng.integers(0, 2**62, 60),
    },
    lambda a: {
        "top": _reduced(np.maximum, a["top"], np.arange(203) // 4, np.append(np.full(3, -(2**63)), a["x"][:-3])),
        "least": _reduced(np.minimum, a["least"], np.arange(203) // 4, np.append(np.full(3, 2**63 - 1), a["x"][:-3])),
    },
)
@tw.kernel
def extremes_of_four(x: tw.Tensor["M"], top: tw.Tensor["K"], least: tw.Tensor["K"]):
    """Of i64; the first three elements are absent, and change nothing."""
    m = tw.grid(x.shape[0], 64)
    tw.reduce_max(top, m.index // 4, x[m.index - 3])
    tw.reduce_min(least, m.index // 4, x[m.index - 3])


@case(
    lambda rng: {
        "index": rng.integers(-2, 11, 61).astype(np.int32),
        "x": rng.integers(0, 2**32, 61).astype(np.uint32),
        **{n: rng.integers(0, 2**32, 9).astype(np.uint32) for n in ("least", "top", "every", "some")},
    },
    lambda a: {
        "least": _reduced(np.minimum, a["least"], a["index"], a["x"]),
        "top": _reduced(np.maximum, a["top"], a["index"], a["x"]),
        "every": _reduced(np.bitwise_and, a["every"], a["index"], a["x"]),
        "some": _reduced(np.bitwise_or, a["some"], a["index"], a["x"]),
    },
)
@tw.kernel
def reductions_unsigned(
    index: tw.Tensor["T"],
    x: tw.Tensor["T"],
    least: tw.Tensor["V"],
    top: tw.Tensor["V"],
    every: tw.Tensor["V"],
    some: tw.Tensor["V"],
):
    m = tw.grid(x, 16)
    tw.reduce_min(least, index[m], x[m])
    tw.reduce_max(top, index[m], x[m])
    tw.reduce_and(every, index[m], x[m])
    tw.reduce_or(some, index[m], x[m])


@case(
    lambda rng: {
        "x": rng.integers(-(2**31), 2**31, (40, 70)).astype(np.int32),
        "index": rng.integers(-2, 40, 40).astype(np.int32),
        "top": np.full(70, -(2**31), np.int32),
        "every": np.full(70, -1, np.int64),
        "some": np.zeros(70, np.int32),
    },
    lambda a: {
        "top": a["x"].max(0),
        "every": np.bitwise_and.reduce(a["x"][a["index"][a["index"] >= 0]].astype(np.int64), 0),
        "some": np.bitwise_or.reduce(a["x"], 0),
    },
)
@tw.kernel
def reductions_of_columns(
    x: tw.Tensor["M", "N"],
    index: tw.Tensor["M"],
    top: tw.Tensor["N"],
    every: tw.Tensor["N"],
    some: tw.Tensor["N"],
):
    """Boxes of tensors that programs share; rows that there are not change nothing."""
    m, n = tw.grid(x, (None, 64))
    tw.reduce_max(top, n, x[m, n])
    tw.reduce_and(every, n, x[index[m], n].to(tw.i64))
    tw.reduce_or(some, n, x[m, n])


# -- ragged grids ------------------------------------------------------------------------------------------------------
OFFSETS = np.array([0, 5, 5, 5, 30, 33, 33])


def _by_group(a: Arrays, group: Callable[[int, np.ndarray], np.ndarray], kept: np.ndarray | None = None) -> np.ndarray:
    """``group`` of each group's rows of x; other rows 0, or as ``kept``."""
    made = np.zeros_like(a["x"]) if kept is None else kept.copy()
    for g, (first, stop) in enumerate(pairwise(a["offsets"])):
        made[first:stop] = group(g, a["x"][first:stop])
    return made


@case(
    lambda rng: {
        "offsets": OFFSETS.astype(np.int32),
        "scale": floats(rng, 6),
        "x": floats(rng, 41, 40),
        "y": stale(41, 40),
    },
    lambda a: {"y": _by_group(a, lambda g, rows: rows * a["scale"][g])},
)
@tw.kernel
def scaled_groups(offsets: tw.Offsets["G + 1"], scale: tw.Tensor["G"], x: tw.Tensor["T", "D"], y: tw.Tensor["T", "D"]):
    g, t = tw.ragged_grid(offsets, x.shape[0], 8)
    for d in tw.stream(x.shape[1], 32):
        y[t, d] = x[t, d] * scale[g]


@case(
    lambda rng: {"offsets": OFFSETS.astype(np.int64), "x": floats(rng, 41), "y": stale(41)},
    lambda a: {"y": _by_group(a, lambda g, rows: rows + np.float32(g), a["y"])},
)
@tw.kernel
def numbered_groups(offsets: tw.Offsets["G + 1"], x: tw.Tensor["T"], y: tw.Tensor["T"]):
    """Rows in no group stay as they were."""
    g, t = tw.ragged_grid(offsets, x.shape[0], 4, rest="keep")
    y[t] = x[t] + tw.where(t.index >= 0, g, 0).to(tw.f32)


# -- indices without a sign, and of 8 and 16 bits ---------------------------------------------------------------------
@case(
    lambda rng: {
        "index": rng.integers(0, 256, 37).astype(np.uint8),
        "table": floats(rng, 200, 40),
        "y": stale(37, 40),
    },
    lambda a: {"y": rows_at(a["table"], a["index"])},
)
@tw.kernel
def palette(index: tw.Tensor["T"], table: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
    m, n = tw.grid(y, (4, 64))
    y[m, n] = table[index[m], n]


@case(
    lambda rng: {
        "index": rng.integers(-3, 128, 37).astype(np.int8),
        "table": floats(rng, 300),
        "y": stale(37),
    },
    lambda a: {"y": rows_at(a["table"], np.concatenate([[-1] * 3, a["index"][:-3]]), 5.0)},
)
@tw.kernel
def filled_from_bytes(index: tw.Tensor["T"], table: tw.Tensor["V"], y: tw.Tensor["T"]):
    """Coordinates that are absent themselves, in a table of more elements than their dtype has."""
    m = tw.grid(y, 16)
    y[m] = table[index[m.index - 3]].fill(5.0)


@case(
    lambda rng: {
        "index": (rng.integers(0, 12, 61).astype(np.uint32) - np.uint32(2)),
        "x": rng.integers(0, 2**32, 61).astype(np.uint32),
        "y": rng.integers(0, 2**32, 9).astype(np.uint32),
    },
    lambda a: {"y": _wrapping_sums(a)},
)
@tw.kernel
def index_add_unsigned(index: tw.Tensor["T"], x: tw.Tensor["T"], y: tw.Tensor["V"]):
    m = tw.grid(x, 16)
    tw.reduce_add(y, index[m], x[m])


def _wrapping_sums(a: Arrays) -> np.ndarray:
    y, inside = a["y"].copy(), a["index"] < len(a["y"])
    np.add.at(y, a["index"][inside], a["x"][inside])
    return y


# -- sums at computed coordinates, which meet --------------------------------------------------------------------------
def _added_at(a: Arrays, *coords: Any) -> Mapping[str, np.ndarray]:
    """``x`` added to ``y`` where the coordinates lie inside."""
    y, x = a["y"].astype(np.float64), a["x"]
    at = [np.broadcast_to(c, x.shape) for c in coords]
    inside = np.logical_and.reduce([(c >= 0) & (c < n) for c, n in zip(at, y.shape, strict=True)])
    np.add.at(y, tuple(c[inside] for c in at), x[inside])
    return {"y": y}


def _grid(a: Arrays) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = a["x"].shape
    return np.arange(rows)[:, None], np.arange(columns)


@case(
    lambda rng: {"x": floats(rng, 203), "y": floats(rng, 40)},
    lambda a: _added_at(a, np.arange(203) // 4),
    1e-5,
)
@tw.kernel
def sums_of_four(x: tw.Tensor["M"], y: tw.Tensor["K"]):
    """The last elements lead outside, and are added nowhere."""
    m = tw.grid(x.shape[0], 64)
    tw.reduce_add(y, m.index // 4, x[m])


@case(
    lambda rng: {"x": floats(rng, 40, 70), "y": floats(rng, 7, 70)},
    lambda a: _added_at(a, _grid(a)[0] % 8, _grid(a)[1]),
    1e-5,
)
@tw.kernel
def folded_rows(x: tw.Tensor["M", "N"], y: tw.Tensor["K", "N"]):
    m, n = tw.grid(x, (16, 64))
    tw.reduce_add(y, (m.index % 8, n), x[m, n])


@case(
    lambda rng: {"x": floats(rng, 40, 36), "y": floats(rng, 10, 5)},
    lambda a: _added_at(a, _grid(a)[0] // 4, _grid(a)[1] % 5),
    1e-5,
)
@tw.kernel
def folded_both(x: tw.Tensor["M", "N"], y: tw.Tensor["K", "L"]):
    m, n = tw.grid(x, (16, 32))
    tw.reduce_add(y, (m.index // 4, n.index % 5), x[m, n])


@case(
    lambda rng: {"x": floats(rng, 40, 36), "y": floats(rng, 20)},
    lambda a: _added_at(a, _grid(a)[0] - _grid(a)[1]),
    1e-5,
)
@tw.kernel
def sums_of_diagonals(x: tw.Tensor["M", "N"], y: tw.Tensor["K"]):
    """An index tile of two axes: Toeplitz gradients. Diagonals above the main one lie outside."""
    m, n = tw.grid(x, (16, 32))
    tw.reduce_add(y, m.index[:, None] - n.index[None, :], x[m, n])


@case(
    lambda rng: {"x": floats(rng, 75), "y": floats(rng, 40)},
    lambda a: _added_at(a, np.where(np.arange(75) % 3 == 0, -1, np.arange(75) // 2)),
    1e-5,
)
@tw.kernel
def sums_but_every_third(x: tw.Tensor["M"], y: tw.Tensor["K"]):
    m = tw.grid(x.shape[0], 32)
    tw.reduce_add(y, tw.where(m.index % 3 == 0, -1, m.index // 2), x[m])


@case(
    lambda rng: {"x": floats(rng, 20, 70), "y": floats(rng, 30)},
    lambda a: _added_at(a, np.minimum(_grid(a)[1], 25) // 3 + _grid(a)[0] * 0),
    1e-4,
)
@tw.kernel
def sums_in_a_stream(x: tw.Tensor["M", "N"], y: tw.Tensor["K"]):
    """Programs, steps and rows meet."""
    m = tw.grid(x.shape[0], 8)
    for n in tw.stream(x.shape[1], 32):
        tw.reduce_add(y, tw.minimum(n.index[None, :], 25) // 3 + m.index[:, None] * 0, x[m, n])


@case(
    lambda rng: {"x": floats(rng, 9, 8, 32), "y": floats(rng, 9, 2, 32)},
    lambda a: {"y": a["y"] + a["x"].reshape(9, 2, 4, 32).sum(2)},
    1e-5,
)
@tw.kernel
def sums_of_heads(x: tw.Tensor["T", "H", "D"], y: tw.Tensor["T", "G", "D"]):
    """Scalar coordinates that programs share."""
    t, h, d = tw.grid(x.shape, (4, None, 32))
    tw.reduce_add(y, (t, h // 4, d), x[t, h, d])


def _product_folded(a: Arrays) -> np.ndarray:
    made = a["y"].astype(np.float64)
    np.add.at(made, np.arange(100) // 3, a["x"].astype(np.float64) @ a["w"].T)
    return made


@case(
    lambda rng: {"x": floats(rng, 100, 64), "w": floats(rng, 72, 64), "y": floats(rng, 34, 72)},
    lambda a: {"y": _product_folded(a)},
    1e-4,
)
@tw.kernel
def product_folded(x: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], y: tw.Tensor["R", "N"]):
    m, n = tw.grid((x.shape[0], y.shape[1]), (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 32):
        acc += tw.dot(x[m, k], w[n, k].T)
    tw.reduce_add(y, (m.index // 3, n), acc)


# -- products ----------------------------------------------------------------------------------------------------------
@case(
    lambda rng: {
        "index": rng.integers(-2, 52, 100).astype(np.int32),
        "x": floats(rng, 50, 200),
        "w": floats(rng, 72, 200),
        "y": stale(100, 72),
    },
    lambda a: {"y": rows_at(a["x"], a["index"]).astype(np.float64) @ a["w"].T},
    1e-4,
)
@tw.kernel
def gathered_product(index: tw.Tensor["M"], x: tw.Tensor["V", "K"], w: tw.Tensor["N", "K"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    rows = index[m]
    for k in tw.stream(x.shape[1], 32):
        acc += tw.dot(x[rows, k], w[n, k].T)
    y[m, n] = acc


def _rows_in_pages(a: Arrays) -> np.ndarray:
    """Rows of the first three pages of each sequence, by pages of 16; zeros for all others."""
    b, t = np.meshgrid(np.arange(a["pages"].shape[0]), np.arange(a["o"].shape[1]), indexing="ij")
    page = np.where(t // 16 < 3, a["pages"][b, t // 16], -1)
    there = (page >= 0) & (page < len(a["k"]))
    return np.where(there[..., None], a["k"][np.where(there, page, 0), t % 16], 0)


@case(
    lambda rng: {
        "q": floats(rng, 2, 5, 32),
        "k": floats(rng, 12, 16, 32),
        "pages": rng.integers(-2, 14, (2, 4)).astype(np.int32),
        "o": stale(2, 64, 5),
    },
    lambda a: {"o": np.einsum("btd,bhd->bth", _rows_in_pages(a).astype(np.float64), a["q"])},
    1e-4,
)
@tw.kernel
def product_of_chosen_pages(
    q: tw.Tensor["B", "H", 32], k: tw.Tensor["N", 16, 32], pages: tw.Tensor["B", "I"], o: tw.Tensor["B", "T", "H"]
):
    """Pages that a condition chooses, absent where it or the table says so: coordinates of two axes, transposed."""
    b, t, h = tw.grid(o, (None, 16, 8))
    d = tw.axis(q.shape[2], upto=32)
    keys = k[tw.where(t.index // 16 < 3, pages[b, t.index // 16], -1), t.index % 16, d]
    o[b, t, h] = tw.dot(keys, q[b, h, d].T)


@case(
    lambda rng: {"x": floats(rng, 20), "z": floats(rng, 6), "y": stale(6, 20)},
    lambda a: {
        "y": np.where(np.arange(20) >= 3, a["z"][:, None] * np.where(np.arange(20) < 9, np.roll(a["x"], 3), 5.0), -1.0)
    },
)
@tw.kernel
def chosen_in_another_shape(x: tw.Tensor["N"], z: tw.Tensor["M"], y: tw.Tensor["M", "N"]):
    """A choice of which one side is absent here and there, expanded along a new axis before it is filled."""
    m, n = tw.grid(y, (8, 8))
    chosen = tw.where(n.index < 9, x[n - 3], 5.0)
    y[m, n] = (z[m][:, None] * chosen[None, :]).fill(-1.0)
