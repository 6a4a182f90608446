"""Scans: running sums of long rows, a selective scan, sums by segment, ranks within bins, elements packed together."""

from typing import Annotated

import tilewright as tw

LOG2_E = 1.4426950408889634
Pair = tuple[tw.Tile, tw.Tile]


@tw.kernel
def running_sums(
    x: Annotated[tw.Tensor, "M", "N"], y: Annotated[tw.Tensor, "M", "N"], *, bm: int = tw.auto, bn: int = tw.auto
):
    """y = x.cumsum(1), over rows of any length."""
    m = tw.grid(x.shape[0], bm)
    total = tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[1], bn):
        y[m, n] = tw.cumsum(x[m, n], 1, carry=total)


def step(before: Pair, here: Pair) -> Pair:
    """h = a * h + b: maps that are applied one after the other."""
    (a, b), (c, d) = before, here
    return a * c, b * c + d


@tw.kernel
def recurrence(
    a: Annotated[tw.Tensor, "M", "N"],
    b: Annotated[tw.Tensor, "M", "N"],
    y: Annotated[tw.Tensor, "M", "N"],
    *,
    bm: int = tw.auto,
    bn: int = tw.auto,
):
    """y[m, n] = a[m, n] * y[m, n - 1] + b[m, n], over rows of any length."""
    m = tw.grid(a.shape[0], bm)
    decay, state = tw.full((m,), 1.0, tw.f32), tw.zeros((m,), tw.f32)
    for n in tw.stream(a.shape[1], bn):
        _, y[m, n] = tw.scan(step, (a[m, n].to(tw.f32), b[m, n].to(tw.f32)), 1, carry=(decay, state))


@tw.kernel(numerics="fast")
def selective_scan(
    x: Annotated[tw.Tensor, "T", "D"],
    dt: Annotated[tw.Tensor, "T", "D"],
    a: Annotated[tw.Tensor, "D", 16],
    b: Annotated[tw.Tensor, "T", 16],
    c: Annotated[tw.Tensor, "T", 16],
    y: Annotated[tw.Tensor, "T", "D"],
    *,
    bd: int = 8,
    bt: int = 32,
):
    """Mamba's recurrence: h[t] = exp(dt * a) * h[t - 1] + dt * x * b, y[t] = sum of c * h[t] over its 16 states."""
    d = tw.grid(x.shape[1], bd)
    n = tw.axis(16)
    rate = a[d, n] * LOG2_E
    decay, state = tw.full((d, n), 1.0, tw.f32), tw.zeros((d, n), tw.f32)
    for t in tw.stream(x.shape[0], bt):
        width = dt[t, d].to(tw.f32)
        keep = tw.exp2(width[:, :, None] * rate)
        new = (width * x[t, d])[:, :, None] * b[t, n][:, None, :]
        _, h = tw.scan(step, (keep, new), 0, carry=(decay, state))
        y[t, d] = (h * c[t, n][:, None, :]).sum(2)


@tw.kernel
def segment_sums(x: Annotated[tw.Tensor, "N"], begins: Annotated[tw.Tensor, "N"], y: Annotated[tw.Tensor, "N"]):
    """Running sums that begin again where ``begins`` is true."""

    def add(before: Pair, here: Pair) -> Pair:
        (begun, total), (begins, x) = before, here
        return begun | begins, tw.where(begins, x, total + x)

    begun, total = tw.full((), False, tw.bool), tw.zeros((), tw.f32)
    for n in tw.stream(x.shape[0], 1024):
        _, y[n] = tw.scan(add, (begins[n], x[n].to(tw.f32)), carry=(begun, total))


@tw.kernel
def rank_in_bin(bins: Annotated[tw.Tensor, "T"], rank: Annotated[tw.Tensor, "T"], counts: Annotated[tw.Tensor, 8]):
    """How many earlier elements are in the same of 8 bins (tokens of an expert, say), and how many each has."""
    e = tw.axis(8)
    seen = tw.zeros((e,), tw.i32)
    for t in tw.stream(bins.shape[0], 128):
        hit = bins[t][:, None] == e.index
        before = tw.cumsum(hit, 0, exclusive=True, carry=seen)
        rank[t] = tw.where(hit, before, 0).sum(1).to(tw.i32)
    counts[e] = seen


@tw.kernel
def pack(x: Annotated[tw.Tensor, "T"], y: Annotated[tw.Tensor, "T"], count: Annotated[tw.Tensor, 1]):
    """The positive elements side by side at the front of y, which is 0 behind them."""
    place = tw.zeros((), tw.i64)
    for t in tw.stream(x.shape[0], 1024):
        keep = x[t] > 0
        at = tw.cumsum(keep, exclusive=True, carry=place)
        tw.reduce_add(y, tw.where(keep, at, -1), x[t])
    count[0] = place.to(tw.i32)
