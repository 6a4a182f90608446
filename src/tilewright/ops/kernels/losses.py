"""Cross-entropy of rows of logits against the index of the wanted column."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw
from tilewright.ops.kernels.softmaxes import finite, sums_of_rows


def _losses_of_rows(x, target, m, bn, ignored, smoothing, smoothed):
    """The losses of the rows ``m``, their maxima, and the sums of exp(x - maximum). Sums are of distances from the
    maximum, beside which the logarithm of the sum would be lost where logits are great."""
    top, total, everything = sums_of_rows(x, m, bn, smoothed)
    wanted, log = target[m], tw.log(total)
    found = top - x[m.index, wanted].to(tw.f32).fill(tw.nan) + log
    if smoothed:
        mean = everything / (tw.zeros(m, tw.f32) + x.shape[1])
        found = (1 - smoothing) * found + tw.where(smoothing == 0.0, 0.0, smoothing * (top - mean + log))
    return tw.where(wanted == ignored, 0.0, found), top, total


@tw.kernel(numerics="fast")
def cross_entropy(
    x: tw.Tensor["M", "N"],
    target: tw.Tensor["M"],
    loss: tw.Tensor["M"],
    top: tw.Tensor["M"],
    total: tw.Tensor["M"],
    *,
    ignored: tw.i32 = -100,
    smoothing: tw.f32 = 0.0,
    smoothed: bool = True,
    bm=tw.auto,
    bn=tw.auto,
):
    """top = the maximum of each row, total = sum(exp(x - top)); loss = top + log(total) - x[target], ``smoothed``
    towards the mean of the row; 0 where the target is ``ignored``, NaN where it is no column."""
    m = tw.grid(loss, bm)
    loss[m], top[m], total[m] = _losses_of_rows(x, target, m, bn, ignored, smoothing, smoothed)


@tw.kernel(numerics="fast")
def cross_entropy_backward(
    x: tw.Tensor["M", "N"],
    target: tw.Tensor["M"],
    top: tw.Tensor["M"],
    total: tw.Tensor["M"],
    dloss: tw.Tensor["M"],
    dx: tw.Tensor["M", "N"],
    *,
    ignored: tw.i32 = -100,
    smoothing: tw.f32 = 0.0,
    bm=tw.auto,
    bn=tw.auto,
):
    """dx = (softmax(x) - the smoothed target) * dloss; 0 where the target is ``ignored``."""
    m, n = tw.grid(dx, (bm, bn))
    wanted = target[m].to(tw.i32)
    p = tw.exp(x[m, n].to(tw.f32) - finite(top[m])[:, None]) * (1 / total[m])[:, None]
    share = smoothing / (tw.zeros(m, tw.f32) + x.shape[1])
    aim = tw.where(n.index[None, :] == wanted[:, None], 1 - smoothing, 0.0) + share[:, None]
    weight = tw.where(wanted == ignored, 0.0, dloss[m])
    dx[m, n] = tw.where(weight[:, None] == 0.0, 0.0, (p - aim) * weight[:, None])


@tw.kernel(numerics="fast")
def cross_entropy_with_gradient(
    x: tw.Tensor["M", "N"],
    target: tw.Tensor["M"],
    dloss: tw.Tensor["M"],
    loss: tw.Tensor["M"],
    dx: tw.Tensor["M", "N"],
    *,
    ignored: tw.i32 = -100,
    smoothing: tw.f32 = 0.0,
    smoothed: bool = True,
    bm=tw.auto,
    bn=tw.auto,
):
    """``loss`` as ``cross_entropy`` has it, and ``dx``, the gradient of sum(loss * dloss): each row is read twice, the
    second time from the L2 cache."""
    m = tw.grid(loss, bm)
    wanted = target[m]
    loss[m], top, total = _losses_of_rows(x, target, m, bn, ignored, smoothing, smoothed)
    share = smoothing / (tw.zeros(m, tw.f32) + x.shape[1])
    weight = tw.where(wanted == ignored, 0.0, dloss[m])
    for n in tw.stream(x.shape[1], bn):
        p = tw.exp(x[m, n].to(tw.f32) - finite(top)[:, None]) * (1 / total)[:, None]
        aim = tw.where(n.index[None, :] == wanted.to(tw.i32)[:, None], 1 - smoothing, 0.0) + share[:, None]
        dx[m, n] = tw.where(weight[:, None] == 0.0, 0.0, (p - aim) * weight[:, None])
