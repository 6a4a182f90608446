"""Softmax and its logarithm along rows: a row in one tile, or, for long rows, in two passes."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


def finite(top):
    """The number to subtract from elements whose maximum is ``top``: 0 where all are -inf."""
    return tw.where(top == -tw.inf, 0.0, top)


def sums_of_rows(x, m, bn, everything=False):
    """The maxima of the rows ``m`` and the sums of exp(x - maximum) in one pass, and with ``everything`` those of x
    (else None)."""
    top = tw.full(m, -tw.inf, tw.f32)
    total = tw.zeros(m, tw.f32)
    plain = tw.zeros(m, tw.f32) if everything else None
    for n in tw.stream(x.shape[1], bn):
        v = x[m, n].to(tw.f32)
        new = tw.maximum(top, v.max(1))
        base = finite(new)
        total.set(total * tw.exp(top - base) + tw.exp(v - base[:, None]).sum(1))
        top.set(new)
        if plain is not None:
            plain += v.sum(1)
    return top, total, plain


@tw.kernel(numerics="fast")
def softmax(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, upto: int = 65536):
    """y = softmax of each row of x, of up to ``upto`` elements."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel(numerics="fast")
def softmax_long(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, log: bool = False, bm=tw.auto, bn=tw.auto):
    """y = softmax of each row of x, or its logarithm, of any length: read twice."""
    m = tw.grid(x.shape[0], bm)
    top, total, _ = sums_of_rows(x, m, bn)
    for n in tw.stream(x.shape[1], bn):
        v = x[m, n].to(tw.f32) - top[:, None]
        y[m, n] = v - tw.log(total)[:, None] if log else tw.exp(v) / total[:, None]


@tw.kernel(numerics="fast")
def log_softmax(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, upto: int = 65536):
    """y = log(softmax) of each row of x, of up to ``upto`` elements."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    centred = row - row.max(1)[:, None]
    y[m, n] = centred - tw.log(tw.exp(centred).sum(1))[:, None]


@tw.kernel(numerics="fast")
def softmax_backward(
    y: tw.Tensor["M", "N"], dy: tw.Tensor["M", "N"], dx: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto
):
    """dx = y * (dy - sum(y * dy)), along rows of any length."""
    m = tw.grid(y.shape[0], bm)
    dot = tw.zeros(m, tw.f32)
    for n in tw.stream(y.shape[1], bn):
        dot += (y[m, n].to(tw.f32) * dy[m, n].to(tw.f32)).sum(1)
    for n in tw.stream(y.shape[1], bn):
        dx[m, n] = y[m, n].to(tw.f32) * (dy[m, n].to(tw.f32) - dot[:, None])


@tw.kernel(numerics="fast")
def log_softmax_backward(
    y: tw.Tensor["M", "N"], dy: tw.Tensor["M", "N"], dx: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto
):
    """dx = dy - exp(y) * sum(dy), along rows of any length."""
    m = tw.grid(y.shape[0], bm)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(y.shape[1], bn):
        total += dy[m, n].to(tw.f32).sum(1)
    for n in tw.stream(y.shape[1], bn):
        dx[m, n] = dy[m, n].to(tw.f32) - tw.exp(y[m, n].to(tw.f32)) * total[:, None]
