"""Kernels in their first wording that interpolate between clamped coordinates, interleave columns, and insert axes."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from itertools import product

import numpy as np

import tilewright as tw
from support.generality import Arrays, Case


@tw.kernel
def interpolated(x: tw.Tensor["N"], xp: tw.Tensor["K"], fp: tw.Tensor["K"], y: tw.Tensor["N"]):
    """np.interp: of K points at least 2 are asked."""
    n = tw.grid(y, 32)
    i = tw.clamp(tw.searchsorted(xp, x[n], right=True) - 1, 0, xp.shape[0] - 2)
    x0, x1, f0, f1 = xp[i], xp[i + 1], fp[i], fp[i + 1]
    y[n] = f0 + tw.clamp((x[n] - x0) / (x1 - x0), 0.0, 1.0) * (f1 - f0)


@tw.kernel
def second_difference(table: tw.Tensor["V"], index: tw.Tensor["N"], y: tw.Tensor["N"]):
    n = tw.grid(y, 16)
    i = tw.clamp(index[n], 1, table.shape[0] - 2)
    y[n] = table[i + 1] - 2 * table[i] + table[i - 1]


@tw.kernel
def trilinear(volume: tw.Tensor["D", "H", "W"], p: tw.Tensor["N", 3], y: tw.Tensor["N"]):
    n = tw.grid(y, 16)
    low, part = [], []
    for axis in range(3):
        place = p[n, axis] * (volume.shape[axis] - 1)
        low.append(tw.minimum(tw.maximum(tw.floor(place).to(tw.i32), 0), volume.shape[axis] - 2))
        part.append(place - low[axis].to(tw.f32))
    acc = 0.0
    for corner in product((0, 1), repeat=3):
        a, b, c = (part[axis] if up else 1 - part[axis] for axis, up in enumerate(corner))
        acc = acc + a * b * c * volume[low[0] + corner[0], low[1] + corner[1], low[2] + corner[2]]
    y[n] = acc


@tw.kernel
def looked_up(image: tw.Tensor["N"], wide: tw.Tensor[256], narrow: tw.Tensor["V"], y: tw.Tensor["N"]):
    """Bytes lie inside of 256 entries; their low bits inside of a table of which a launch is asked 16."""
    n = tw.grid(y, 64)
    y[n] = wide[image[n]] + narrow[image[n] & 15]


@tw.kernel
def unpack_3_bits(w: tw.Tensor["M", "3*G"], y: tw.Tensor["M", "8*G"]):
    m, g = tw.grid((w.shape[0], w.shape[1] // 3), (4, 8))
    word = w[m, 3 * g].to(tw.i32) | (w[m, 3 * g + 1].to(tw.i32) << 8) | (w[m, 3 * g + 2].to(tw.i32) << 16)
    for i in range(8):
        y[m, 8 * g + i] = (word >> (3 * i)) & 7


@tw.kernel
def distances(x: tw.Tensor["N", 3], y: tw.Tensor["M", 3], d: tw.Tensor["N", "M"]):
    n, m = tw.grid(d, (8, 16))
    d[n, m] = tw.sqrt(tw.square(x[n, None, :] - y[None, m, :]).sum(2))


@tw.kernel
def inserted(a: tw.Tensor["8*N"], y: tw.Tensor["N", 2, 8]):
    """None in the subscript of a view, beside a slice."""
    n = tw.grid(y.shape[0], 4)
    y[n, :, :] = a.reshape(-1, 8)[n, None, ::-1] + a.reshape(-1, 8)[n, 2, None, None]


def _second_difference(table: np.ndarray, index: np.ndarray) -> Arrays:
    i = np.clip(index, 1, len(table) - 2)
    return {"y": table[i + 1] - 2 * table[i] + table[i - 1]}


def _trilinear(volume: np.ndarray, p: np.ndarray) -> Arrays:
    place = p * (np.array(volume.shape) - 1)
    low = np.clip(np.floor(place).astype(int), 0, np.array(volume.shape) - 2)
    part, y = place - low, np.zeros(len(p))
    for corner in product((0, 1), repeat=3):
        weight = np.where(corner, part, 1 - part).prod(1)
        y += weight * volume[tuple((low + corner).T)]
    return {"y": y}


def _unpacked(w: np.ndarray) -> Arrays:
    a, b, c = np.moveaxis(w.reshape(len(w), -1, 3).astype(int), 2, 0)
    word = a | b << 8 | c << 16
    return {"y": np.stack([word >> 3 * i & 7 for i in range(8)], 2).reshape(len(w), -1)}


CLAMPED: dict[str, Case] = {
    c.kernel.name: c
    for c in (
        Case(
            interpolated,
            ((1, 2), (40, 9)),
            lambda rng, n, k: {"x": 2 * rng.normal(size=n), "xp": np.arange(k) - k / 2, "fp": rng.normal(size=k)},
            lambda x, xp, fp: {"y": np.interp(x, xp, fp)},
            {},
        ),
        Case(
            second_difference,
            ((3, 1), (9, 40)),
            lambda rng, v, n: {"table": rng.normal(size=v), "index": rng.integers(-(2**63), 2**63, n)},
            _second_difference,
            {"index": np.int64},
        ),
        Case(
            trilinear,
            ((2, 2, 2, 1), (5, 6, 7, 30)),
            lambda rng, d, h, w, n: {"volume": rng.normal(size=(d, h, w)), "p": rng.random((n, 3))},
            _trilinear,
            {},
            tolerance=1e-4,
        ),
        Case(
            looked_up,
            ((1,), (100,)),
            lambda rng, n: {
                "image": rng.integers(0, 256, n),
                "wide": rng.normal(size=256),
                "narrow": rng.normal(size=16),
            },
            lambda image, wide, narrow: {"y": wide[image] + narrow[image & 15]},
            {"image": np.uint8},
        ),
        Case(
            unpack_3_bits,
            ((1, 1), (5, 9)),
            lambda rng, m, g: {"w": rng.integers(0, 256, (m, 3 * g))},
            _unpacked,
            {"w": np.uint8, "y": np.int8},
        ),
        Case(
            distances,
            ((1, 1), (9, 20)),
            lambda rng, n, m: {"x": rng.normal(size=(n, 3)), "y": rng.normal(size=(m, 3))},
            lambda x, y: {"d": np.sqrt(((x[:, None] - y) ** 2).sum(2))},
            {},
        ),
        Case(
            inserted,
            ((1,), (5,)),
            lambda rng, n: {"a": rng.normal(size=8 * n)},
            lambda a: {"y": np.repeat(a.reshape(-1, 1, 8)[..., ::-1] + a.reshape(-1, 1, 8)[..., 2:3], 2, 1)},
            {},
        ),
    )
}
