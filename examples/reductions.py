"""Reductions over rows and columns of a matrix: sum, max, argmax."""

from typing import Annotated

import tilewright as tw

Matrix = Annotated[tw.Tensor, "M", "N"]
Rows = Annotated[tw.Tensor, "M"]
Columns = Annotated[tw.Tensor, "N"]


@tw.kernel
def row_sum(x: Matrix, y: Rows, *, bm: int = tw.auto, bn: int = tw.auto):
    m = tw.grid(y, bm)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        total += x[m, n].to(tw.f32).sum(1)
    y[m] = total


@tw.kernel
def row_max(x: Matrix, y: Rows, *, bm: int = tw.auto, bn: int = tw.auto):
    m = tw.grid(y, bm)
    top = tw.full(m, -tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        top.set(tw.maximum(top, x[m, n].max(1)))
    y[m] = top


@tw.kernel
def column_sum(x: Matrix, y: Columns, *, bm: int = tw.auto, bn: int = tw.auto):
    n = tw.grid(y, bn)
    total = tw.zeros(n, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        total += x[m, n].to(tw.f32).sum(0)
    y[n] = total


@tw.kernel
def column_max(x: Matrix, y: Columns, *, bm: int = tw.auto, bn: int = tw.auto):
    n = tw.grid(y, bn)
    top = tw.full(n, -tw.inf, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        top.set(tw.maximum(top, x[m, n].max(0)))
    y[n] = top


@tw.kernel
def argmax(x: Matrix, y: Rows, *, bm: int = tw.auto, bn: int = tw.auto):
    """The first of equals, the first NaN if there is one."""
    m = tw.grid(y, bm)
    top = tw.full(m, -tw.inf, tw.f32)
    place = tw.zeros(m, tw.i32)
    for n in tw.stream(x.shape[1], bn):
        v = x[m, n].to(tw.f32)
        best = v.max(1)
        # A NaN is greater than all numbers, and stays.
        better = (top == top) & ((best > top) | (best != best))
        place.set(tw.where(better, v.argmax(1) + n.start, place))
        top.set(tw.where(better, best, top))
    y[m] = place
