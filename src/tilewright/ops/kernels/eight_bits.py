"""Floats of 8 bits: rows and blocks of them divided by their greatest number, and products that multiply it back."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw
from tilewright.ops.kernels.products import activated

GREATEST = 448.0
"""The greatest number of e4m3."""
BLOCK = 128
"""Elements along the rows, and of weights also rows, that share a scale."""


def _divided(wide):
    """Rows divided so that the greatest number of each is that of e4m3, and what each was divided by."""
    top = tw.abs(wide).max(1)
    top = tw.where(top == 0, 1.0, top)
    return wide * (GREATEST / top)[:, None], top * (1 / GREATEST)


@tw.kernel
def pack_in_eight_bits(
    rows: tw.Tensor["P"],
    x: tw.Tensor["T", "D"],
    y: tw.Tensor["P", "D"],
    scale: tw.Tensor["P"],
    *,
    bp=tw.auto,
    upto: int = 32768,
):
    """y[p] = x[rows[p]] / scale[p] in e4m3, whose greatest number is that of the row, of up to ``upto`` elements; 0
    where there is no such row."""
    p = tw.grid(y.shape[0], bp)
    d = tw.axis(x.shape[1], upto=upto)
    y[p, d], scale[p] = _divided(x[rows[p], d].fill(0.0).to(tw.f32))


@tw.kernel
def quantize_rows(
    x: tw.Tensor["M", "K"], y: tw.Tensor["M", "K"], scale: tw.Tensor["M"], *, bm=tw.auto, upto: int = 65536
):
    """y = x / scale in e4m3, whose greatest number is that of the row, of up to ``upto`` elements."""
    m = tw.grid(x.shape[0], bm)
    k = tw.axis(x.shape[1], upto=upto)
    y[m, k], scale[m] = _divided(x[m, k].to(tw.f32))


@tw.kernel
def quantize_long_rows(
    x: tw.Tensor["M", "K"], y: tw.Tensor["M", "K"], scale: tw.Tensor["M"], *, bp: int = 4, bd: int = 1024
):
    """y = x / scale in e4m3, whose greatest number is that of the row, of any length: read twice."""
    p = tw.grid(y.shape[0], bp)
    top = tw.zeros((p,), tw.f32)
    for d in tw.stream(x.shape[1], bd):
        top.set(tw.maximum(top, tw.abs(x[p, d].to(tw.f32)).max(1)))
    divisor = tw.where(top == 0, 1.0, top)
    scale[p] = divisor * (1 / GREATEST)
    for d in tw.stream(x.shape[1], bd):
        y[p, d] = x[p, d].to(tw.f32) * (GREATEST / divisor)[:, None]


@tw.kernel
def quantize_blocks(
    x: tw.Tensor["M", "K"],
    y: tw.Tensor["M", "K"],
    scale: tw.Tensor["M", "(K + 127) // 128"],
    *,
    bm: int = 16,
):
    """y = x / scale in e4m3, whose greatest number is that of each 128 elements of a row."""
    m, k = tw.grid(x, (bm, BLOCK))
    y[m, k], scale[m, k.start // BLOCK] = _divided(x[m, k].fill(0.0).to(tw.f32))


@tw.kernel(numerics="fast")
def scaled_linear(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    a_scale: tw.Tensor["M", "P"],
    b_scale: tw.Tensor["Q", "P"],
    bias: tw.Tensor["N"] | None,
    residual: tw.Tensor["M", "N"] | None,
    c: tw.Tensor["M", "N"],
    *,
    activation: str = "none",
    blocks: bool = False,
    bm: int = 128,
    bn: int = BLOCK,
    bk: int = BLOCK,
):
    """``linear`` of what was divided by scales: of rows (P is 1, Q is N), or of ``blocks`` of 1 x 128 elements of a and
    128 x 128 of b, whose products are scaled and added in f32, 128 elements of K at a time."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        if blocks:
            i = k.start // BLOCK
            acc += tw.dot(a[m, k], b[n, k].T) * (a_scale[m, i] * b_scale[n.start // BLOCK, i])[:, None]
        else:
            acc += tw.dot(a[m, k], b[n, k].T)
    z = acc if blocks else acc * (a_scale[m, 0][:, None] * b_scale[n, 0][None, :])
    z = activated(z if bias is None else z + bias[n].to(tw.f32)[None, :], activation)
    c[m, n] = z if residual is None else z + residual[m, n].to(tw.f32)
