"""More kernels at computed and loaded coordinates, in the words that people choose first, with NumPy beside them."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

import tilewright as tw
from support.indexed import CASES, Arrays, case, floats, rows_at, stale

OFFSETS = np.array([0, 3, 13, 13, 14, 34], np.int32)
"""Of 37 rows: the last three are in no group."""


def _places(rng: np.random.Generator, extent: int, *shape: int) -> np.ndarray:
    """Indices of which some lead outside."""
    return rng.integers(-2, extent + 2, shape).astype(np.int32)


# -- a Range beside an index tile that has it --------------------------------------------------------------------------
@case(
    lambda rng: {"x": floats(rng, 9, 30), "index": _places(rng, 30, 9, 21), "y": stale(9, 21)},
    lambda a: {"y": np.stack([rows_at(row, at) for row, at in zip(a["x"], a["index"], strict=True)])},
)
@tw.kernel
def gathered_columns(x: tw.Tensor["M", "N"], index: tw.Tensor["M", "K"], y: tw.Tensor["M", "K"]):
    m, k = tw.grid(y, (4, 16))
    y[m, k] = x[m, index[m, k]]


@case(
    lambda rng: {"x": floats(rng, 30, 20), "index": _places(rng, 30, 11, 20), "y": stale(11, 20)},
    lambda a: {"y": np.stack([rows_at(a["x"][:, n], a["index"][:, n]) for n in range(20)], 1)},
)
@tw.kernel
def gathered_rows(x: tw.Tensor["M", "N"], index: tw.Tensor["K", "N"], y: tw.Tensor["K", "N"]):
    k, n = tw.grid(y, (8, 16))
    y[k, n] = x[index[k, n], n]


@case(
    lambda rng: {"parent": _places(rng, 4, 3, 4), "tokens": floats(rng, 3, 4, 10), "new": stale(3, 4, 10)},
    lambda a: {"new": np.stack([rows_at(beams, at) for beams, at in zip(a["tokens"], a["parent"], strict=True)])},
)
@tw.kernel
def beams(parent: tw.Tensor["B", "K"], tokens: tw.Tensor["B", "K", "T"], new: tw.Tensor["B", "K", "T"]):
    b, k, t = tw.grid(new, (2, 4, 8))
    new[b, k, t] = tokens[b, parent[b, k], t]


@case(
    lambda rng: {"x": floats(rng, 5, 10, 20), "index": _places(rng, 20, 7, 5), "y": stale(5, 10, 7)},
    lambda a: {"y": np.stack([rows_at(x.T, at).T for x, at in zip(a["x"], a["index"].T, strict=True)])},
)
@tw.kernel
def columns_of_batches(x: tw.Tensor["B", "C", "N"], index: tw.Tensor["K", "B"], y: tw.Tensor["B", "C", "K"]):
    """Axes stand where they come first: that of b before those of c and k."""
    b, c, k = tw.grid(y, (2, 8, 4))
    y[b, c, k] = x[b, c, index[k, b]]


def _added_to_columns(a: Arrays) -> Mapping[str, np.ndarray]:
    y = a["y"].copy()
    for (m, k), n in np.ndenumerate(a["index"]):
        if 0 <= n < y.shape[1]:
            y[m, n] += a["x"][m, k]
    return {"y": y}


@case(
    lambda rng: {"x": floats(rng, 9, 7), "index": _places(rng, 20, 9, 7), "y": stale(9, 20)},
    _added_to_columns,
    within=1e-5,
)
@tw.kernel
def added_to_columns(x: tw.Tensor["M", "K"], index: tw.Tensor["M", "K"], y: tw.Tensor["M", "N"]):
    m, k = tw.grid(x, (4, 8))
    tw.reduce_add(y, (m, index[m, k]), x[m, k])


def _added_flat(a: Arrays) -> Mapping[str, np.ndarray]:
    y = a["y"].copy()
    inside = (a["index"] >= 0) & (a["index"] < y.size)
    np.add.at(y.reshape(-1), a["index"][inside], a["x"][inside])
    return {"y": y}


@case(
    lambda rng: {"index": _places(rng, 9 * 7, 40), "x": floats(rng, 40), "y": floats(rng, 9, 7)},
    _added_flat,
    within=1e-5,
)
@tw.kernel
def added_flat(index: tw.Tensor["K"], x: tw.Tensor["K"], y: tw.Tensor["M", "N"]):
    """Into dimensions that are merged by an extent which launches know."""
    k = tw.grid(x, 16)
    tw.reduce_add(y.reshape(-1), index[k], x[k])


def _turned(a: Arrays) -> Mapping[str, np.ndarray]:
    x = a["x"].copy()
    even, odd = a["x"][:, ::2], a["x"][:, 1::2]
    x[:, ::2], x[:, 1::2] = even * a["cos"] - odd * a["sin"], odd * a["cos"] + even * a["sin"]
    return {"x": x}


@case(
    lambda rng: {"x": floats(rng, 9, 16), "cos": floats(rng, 9, 8), "sin": floats(rng, 9, 8)},
    _turned,
    within=1e-5,
)
@tw.kernel
def turned_in_place(x: tw.Tensor["T", 16], cos: tw.Tensor["T", 8], sin: tw.Tensor["T", 8]):
    """Even and odd elements are read and written as two tensors."""
    t = tw.grid(x.shape[0], 4)
    even, odd = x[t, ::2], x[t, 1::2]
    x[t, ::2] = even * cos[t, :] - odd * sin[t, :]
    x[t, 1::2] = odd * cos[t, :] + even * sin[t, :]


# -- stores that positions alone tell apart ----------------------------------------------------------------------------
def _appended(a: Arrays) -> Mapping[str, np.ndarray]:
    cache = a["cache"].copy()
    for b, at in enumerate(a["lengths"]):
        if 0 <= at < cache.shape[1]:
            cache[b, at] = a["k"][b]
    return {"cache": cache}


@case(
    lambda rng: {
        "lengths": np.array([0, 3, 9, 3, -1], np.int64),
        "k": floats(rng, 5, 2, 24),
        "cache": floats(rng, 5, 9, 2, 24),
    },
    _appended,
)
@tw.kernel
def appended(lengths: tw.Tensor["B"], k: tw.Tensor["B", "H", "D"], cache: tw.Tensor["B", "L", "H", "D"]):
    """Lengths that are alike name rows of different sequences: nothing has to be promised."""
    b, h, d = tw.grid(k, (None, 2, 16))
    cache[b, lengths[b], h, d] = k[b, h, d]


@case(
    lambda rng: {"index": _places(rng, 6, 13), "x": floats(rng, 13), "cache": stale(13, 6)},
    lambda a: _appended({"lengths": a["index"], "k": a["x"], "cache": a["cache"]}),
)
@tw.kernel
def one_of_each_row(index: tw.Tensor["M"], x: tw.Tensor["M"], cache: tw.Tensor["M", "N"]):
    m = tw.grid(x, 8)
    cache[m, index[m]] = x[m]


# -- a program for each group of offsets -------------------------------------------------------------------------------
def _of_groups(a: Arrays, group: Callable[[np.ndarray], np.ndarray]) -> Mapping[str, np.ndarray]:
    """Rows in no group stay as they were."""
    y = a["y"].copy()
    for low, high in pairwise(a["offsets"]):
        if high > low:
            y[low:high] = group(a["x"][low:high])
    return {"y": y}


def _softmax(x: np.ndarray) -> np.ndarray:
    shifted = np.exp(x - x.max(0))
    return shifted / shifted.sum(0)


def _recurrence(x: np.ndarray) -> np.ndarray:
    rows, state = [], np.zeros(x.shape[1])
    for row in x:
        rows.append(state := state / 2 + row)
    return np.stack(rows)


@case(
    lambda rng: {"offsets": OFFSETS, "x": floats(rng, 37, 5), "y": stale(37, 5)},
    lambda a: _of_groups(a, _softmax),
    within=1e-5,
)
@tw.kernel
def softmax_of_groups(offsets: tw.Offsets["G + 1"], x: tw.Tensor["T", "H"], y: tw.Tensor["T", "H"]):
    g, h = tw.grid((offsets.shape[0] - 1, x.shape[1]), (None, 8))
    top, total = tw.full((h,), -tw.inf, tw.f32), tw.zeros((h,), tw.f32)
    for t in tw.stream(x.shape[0], 8, start=offsets[g], until=offsets[g + 1]):
        new = tw.maximum(top, x[t, h].max(0))
        total.set(total * tw.exp(top - new) + tw.exp(x[t, h] - new).sum(0))
        top.set(new)
    for t in tw.stream(x.shape[0], 8, start=offsets[g], until=offsets[g + 1]):
        y[t, h] = tw.exp(x[t, h] - top) / total


@case(
    lambda rng: {"offsets": OFFSETS.astype(np.int64), "x": floats(rng, 37, 20), "y": stale(37, 20)},
    lambda a: _of_groups(a, _recurrence),
    within=1e-5,
)
@tw.kernel
def recurrence_of_groups(offsets: tw.Offsets["G + 1"], x: tw.Tensor["T", "D"], y: tw.Tensor["T", "D"]):
    g, d = tw.grid((offsets.shape[0] - 1, x.shape[1]), (None, 16))
    state = tw.zeros((d,), tw.f32)
    for t in tw.stream(x.shape[0], start=offsets[g], until=offsets[g + 1]):
        state.set(state / 2 + x[t, d])
        y[t, d] = state


@case(
    lambda rng: {"offsets": OFFSETS, "x": floats(rng, 37), "y": stale(37)},
    lambda a: _of_groups(a, lambda x: x - x.mean()),
    within=1e-5,
)
@tw.kernel
def centred_groups(offsets: tw.Offsets["G + 1"], x: tw.Tensor["T"], y: tw.Tensor["T"]):
    g = tw.grid(offsets.shape[0] - 1)
    t = tw.axis(x.shape[0], start=offsets[g], until=offsets[g + 1], upto=64)
    y[t] = x[t] - x[t].mean()


def _rows_and_sums(a: Arrays) -> Mapping[str, np.ndarray]:
    y, total = np.zeros_like(a["y"]), a["total"].copy()
    for g, (low, high) in enumerate(pairwise(a["offsets"])):
        y[low:high] = a["x"][low:high] + g
        total[g] += a["x"][low:high].sum()
    return {"y": y, "total": total}


@case(
    lambda rng: {"offsets": OFFSETS, "x": floats(rng, 37, 8), "y": stale(37, 8), "total": floats(rng, 5)},
    _rows_and_sums,
    within=1e-5,
)
@tw.kernel
def rows_one_by_one(offsets: tw.Offsets["G + 1"], x: tw.Tensor["T", 8], y: tw.Tensor["T", 8], total: tw.Tensor["G"]):
    """A tile of one row has none in the programs that no group needs, also where its elements lose their axis."""
    g, t = tw.ragged_grid(offsets, x.shape[0], 1)
    tile = x[t, tw.axis(8)]
    y[t, tw.axis(8)] = tile + g
    tw.reduce_add(total, g, tile.reshape(-1).sum(0))


# -- slices of tiles ---------------------------------------------------------------------------------------------------
def _turned(a: Arrays) -> Mapping[str, np.ndarray]:
    cos, sin = (rows_at(a[n], a["position"])[:, None] for n in ("cos", "sin"))
    first, second = a["x"][..., :32], a["x"][..., 32:]
    return {"y": np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)}


@case(
    lambda rng: {
        "position": _places(rng, 50, 19),
        "x": floats(rng, 19, 3, 64),
        "cos": floats(rng, 50, 32),
        "sin": floats(rng, 50, 32),
        "y": stale(19, 3, 64),
    },
    _turned,
    within=1e-5,
)
@tw.kernel
def turned_by_position(
    position: tw.Tensor["T"],
    x: tw.Tensor["T", "H", 64],
    cos: tw.Tensor["P", 32],
    sin: tw.Tensor["P", 32],
    y: tw.Tensor["T", "H", 64],
):
    """Both tables have the same rows: what is absent of one is absent of the other."""
    t, h = tw.grid(x, (8, 2))
    whole, at = x[t, h], position[t]
    c, s = cos[at][:, None, :], sin[at][:, None, :]
    first, second = whole[:, :, :32], whole[:, :, 32:]
    y[t, h, :32] = first * c - second * s
    y[t, h, 32:] = second * c + first * s


@case(
    lambda rng: {"x": floats(rng, 9, 48), **{n: stale(9, k) for n, k in zip("abcd", (24, 47, 48, 5), strict=True)}},
    lambda a: {
        "a": 2 * a["x"][:, 1::2],
        "b": 2 * np.diff(a["x"]),
        "c": 2 * a["x"][:, ::-1],
        "d": 2 * a["x"][:, -40:-10:7],
    },
    within=1e-6,
)
@tw.kernel
def sliced(
    x: tw.Tensor["M", 48], a: tw.Tensor["M", 24], b: tw.Tensor["M", 47], c: tw.Tensor["M", 48], d: tw.Tensor["M", 5]
):
    m = tw.grid(x.shape[0], 4)
    twice = x[m] * 2
    a[m] = twice[:, 1::2]
    b[m] = twice[:, 1:] - twice[:, :-1]
    c[m] = twice[:, ::-1]
    d[m] = twice[:, -40:-10:7]


# -- absent where the condition is -------------------------------------------------------------------------------------
def _pooled(a: Arrays) -> Mapping[str, np.ndarray]:
    x = np.pad(a["x"], ((1, 1), (1, 1)), constant_values=-np.inf)
    height, width = a["y"].shape
    parts = [x[r : r + 2 * height - 1 : 2, s : s + 2 * width - 1 : 2] for r in range(3) for s in range(3)]
    rows, columns = np.mgrid[:height, :width]
    best = np.argmax(parts, 0)
    return {
        "y": np.max(parts, 0),
        "place": (2 * rows + best // 3 - 1) * a["x"].shape[1] + 2 * columns + best % 3 - 1,
    }


@case(
    lambda rng: {"x": floats(rng, 13, 16), "y": stale(7, 8), "place": np.full((7, 8), 7, np.int32)},
    _pooled,
)
@tw.kernel
def pooled_with_places(x: tw.Tensor["H", "W"], y: tw.Tensor["P", "Q"], place: tw.Tensor["P", "Q"]):
    p, q = tw.grid(y, (4, 8))
    best, found = tw.full((p, q), -tw.inf, tw.f32), tw.full((p, q), -1, tw.i32)
    for r in range(3):
        for s in range(3):
            v = x[2 * p + r - 1, 2 * q + s - 1]
            better = v > best
            found.set(tw.where(better, (2 * p.index[:, None] + r - 1) * x.shape[1] + 2 * q.index + s - 1, found))
            best.set(tw.where(better, v, best))
    y[p, q], place[p, q] = best, found


# -- neighbours of these families --------------------------------------------------------------------------------------
@case(
    lambda rng: {
        "offsets": np.array([0, 5, 5, 40, 99], np.int32),
        "ids": rng.integers(0, 50, 60).astype(np.int32),
        "table": floats(rng, 50, 40),
        "y": stale(4, 40),
    },
    lambda a: {
        "y": np.stack(
            [a["table"][a["ids"][lo:hi]].sum(0) / max(hi - lo, 1) for lo, hi in pairwise(np.clip(a["offsets"], 0, 60))]
        )
    },
    within=1e-5,
)
@tw.kernel
def mean_of_bags(offsets: tw.Tensor["B + 1"], ids: tw.Tensor["T"], table: tw.Tensor["V", "D"], y: tw.Tensor["B", "D"]):
    b, d = tw.grid(y, (None, 16))
    total, count = tw.zeros((d,), tw.f32), tw.zeros((), tw.i32)
    for t in tw.stream(ids.shape[0], 16, start=offsets[b], until=offsets[b + 1]):
        total += table[ids[t], d].sum(0)
        count += (t.index >= 0).sum(0)
    y[b, d] = total / tw.maximum(count, 1)


def _latest_first(a: Arrays) -> Mapping[str, np.ndarray]:
    length = a["buffer"].shape[1]
    turned = []
    for buffer, new, at in zip(a["buffer"], a["new"], a["position"], strict=True):
        rows = buffer.copy()
        rows[at % length] = new
        turned.append(np.roll(rows, -(at % length) - 1, 0))
    return {"y": np.stack(turned)}


@case(
    lambda rng: {
        "position": np.array([0, 5, 31, -4], np.int32),
        "new": floats(rng, 4, 20),
        "buffer": floats(rng, 4, 9, 20),
        "y": stale(4, 9, 20),
    },
    _latest_first,
)
@tw.kernel
def ring_in_order(
    position: tw.Tensor["B"], new: tw.Tensor["B", "D"], buffer: tw.Tensor["B", "L", "D"], y: tw.Tensor["B", "L", "D"]
):
    b, age, d = tw.grid(buffer, (None, 8, 16))
    length = buffer.shape[1]
    last = position[b] % length
    at = (last + 1 + age.index) % length
    y[b, age, d] = tw.where((at == last)[:, None], new[b, d], buffer[b, at, d])


__all__ = ["CASES"]
