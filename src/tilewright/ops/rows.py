"""Operators over whole rows: softmax and normalisations, each row in one tile."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel(numerics="fast")
def softmax(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, upto: int = 65536):
    """y = softmax of each row of x, of up to ``upto`` elements."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel(numerics="fast")
def rms_norm(
    x: tw.Tensor["M", "N"],
    w: tw.Tensor["N"],
    y: tw.Tensor["M", "N"],
    *,
    eps: tw.f32 = 1e-6,
    bm=tw.auto,
    upto: int = 16384,
):
    """y = x / sqrt(mean(x^2) + eps) * w, along rows."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    scale = tw.rsqrt((row * row).mean(1) + eps)
    y[m, n] = row * scale[:, None] * w[n].to(tw.f32)


@tw.kernel(numerics="fast")
def layer_norm(
    x: tw.Tensor["M", "N"],
    w: tw.Tensor["N"],
    b: tw.Tensor["N"],
    y: tw.Tensor["M", "N"],
    *,
    eps: tw.f32 = 1e-5,
    bm=tw.auto,
    upto: int = 16384,
):
    """y = (x - mean(x)) / sqrt(var(x) + eps) * w + b, along rows."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    centred = row - row.mean(1)[:, None]
    scale = tw.rsqrt((centred * centred).mean(1) + eps)
    y[m, n] = centred * scale[:, None] * w[n].to(tw.f32) + b[n].to(tw.f32)
