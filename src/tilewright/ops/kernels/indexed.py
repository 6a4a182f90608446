"""Rows of a table by index, sums by index, running sums."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def embedding(index: tw.Tensor["T"], table: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"], *, bt=tw.auto, bd=tw.auto):
    """y[t] = table[index[t]]; 0 where there is no such row."""
    t, d = tw.grid(y, (bt, bd))
    y[t, d] = table[index[t], d]


@tw.kernel
def index_add(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], y: tw.Tensor["V", "D"], *, bt=tw.auto, bd=tw.auto):
    """y[index[t]] += x[t], in no order; rows of indices outside of y add nothing."""
    t, d = tw.grid(x, (bt, bd))
    tw.reduce_add(y, (index[t], d), x[t, d])


@tw.kernel
def cumsum(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, reverse: bool = False, bm=tw.auto, bn=tw.auto):
    """Running sums of rows, from the last element on if ``reverse``; in f32."""
    m = tw.grid(x.shape[0], bm)
    last = x.shape[1] - 1
    total = tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[1], bn):
        place = last - n if reverse else n
        y[m, place] = tw.cumsum(x[m, place], 1, carry=total)
