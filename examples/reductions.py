"""Reductions over rows and columns of a matrix: sum, max, argmax."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def row_sum(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bm=tw.auto, bn=tw.auto):
    m = tw.grid(y, bm)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        total += x[m, n].to(tw.f32).sum(1)
    y[m] = total


@tw.kernel
def row_max(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bm=tw.auto, bn=tw.auto):
    m = tw.grid(y, bm)
    top = tw.full(m, -tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        top.set(tw.maximum(top, x[m, n].max(1)))
    y[m] = top


@tw.kernel
def column_sum(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm=tw.auto, bn=tw.auto):
    n = tw.grid(y, bn)
    total = tw.zeros(n, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        total += x[m, n].to(tw.f32).sum(0)
    y[n] = total


@tw.kernel
def column_max(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm=tw.auto, bn=tw.auto):
    n = tw.grid(y, bn)
    top = tw.full(n, -tw.inf, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        top.set(tw.maximum(top, x[m, n].max(0)))
    y[n] = top


@tw.kernel
def argmax(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bm=tw.auto, bn=tw.auto):
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
