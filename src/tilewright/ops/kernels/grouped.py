"""Products of groups of rows, whose lengths only the device knows: row t belongs to the group g with
offsets[g] <= t < offsets[g + 1]."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def grouped_matmul(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["G", "N", "K"],
    c: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
    bk: int = 64,
):
    """c = a b[g]^T of each row's group g; rows behind the last group are 0."""
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@tw.kernel
def grouped_scaled_rows(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["M", "K"],
    a_scale: tw.Tensor["M"],
    b: tw.Tensor["G", "N", "K"],
    b_scale: tw.Tensor["G", "N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
    bk: int = 128,
):
    """``grouped_matmul`` of 8-bit floats with a scale for each row of both."""
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc * a_scale[m].to(tw.f32)[:, None] * b_scale[g, n].to(tw.f32)[None, :]


@tw.kernel
def grouped_scaled_blocks(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["M", "K"],
    a_scale: tw.Tensor["M", "J"],
    b: tw.Tensor["G", "N", "K"],
    b_scale: tw.Tensor["G", "I", "J"],
    c: tw.Tensor["M", "N"],
    *,
    bm: int = 128,
    bn: int = 128,
):
    """The same with a scale for each 128 elements of a row of ``a``, and for each 128 x 128 of ``b``."""
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 128):
        scale = a_scale[m, k.start // 128].to(tw.f32) * b_scale[g, n.start // 128, k.start // 128].to(tw.f32)
        acc += tw.dot(a[m, k], b[g, n, k].T) * scale[:, None]
    c[m, n] = acc


@tw.kernel
def grouped_weight_gradient(
    offsets: tw.Tensor["G + 1"],
    y: tw.Tensor["T", "M"],
    x: tw.Tensor["T", "N"],
    dw: tw.Tensor["G", "M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
    bk: int = 64,
):
    """dw[g] = y^T x over the rows of group g; 0 of a group without rows."""
    g, m, n = tw.grid(dw, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for t in tw.stream(x.shape[0], bk, start=offsets[g], until=offsets[g + 1]):
        acc += tw.dot(y[t, m].T, x[t, n])
    dw[g, m, n] = acc
