"""Cross-entropy of rows of logits against the index of the wanted column."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw
from tilewright.ops.kernels.softmaxes import sums_of_rows


def _logs_of_rows(x, m, bn, smoothed):
    """log(sum(exp(x))) of the rows ``m``, and with ``smoothed`` the sums of x, else None."""
    top, total, everything = sums_of_rows(x, m, bn, smoothed)
    return top + tw.log(total), everything


@tw.kernel(numerics="fast")
def cross_entropy(
    x: tw.Tensor["M", "N"],
    target: tw.Tensor["M"],
    loss: tw.Tensor["M"],
    lse: tw.Tensor["M"],
    *,
    ignored: tw.i32 = -100,
    smoothing: tw.f32 = 0.0,
    smoothed: bool = True,
    bm=tw.auto,
    bn=tw.auto,
):
    """lse = log(sum(exp(x))) of each row; loss = lse - x[target], ``smoothed`` towards the mean of the row; 0 where the
    target is ``ignored``, NaN where it is no column."""
    m = tw.grid(loss, bm)
    wanted = target[m]
    whole, everything = _logs_of_rows(x, m, bn, smoothed)
    lse[m] = whole
    found = whole - x[m.index, wanted].to(tw.f32).fill(tw.nan)
    if smoothed:
        mean = everything / (tw.zeros(m, tw.f32) + x.shape[1])
        found = (1 - smoothing) * found + tw.where(smoothing == 0.0, 0.0, smoothing * (whole - mean))
    loss[m] = tw.where(wanted == ignored, 0.0, found)


@tw.kernel(numerics="fast")
def cross_entropy_backward(
    x: tw.Tensor["M", "N"],
    target: tw.Tensor["M"],
    lse: tw.Tensor["M"],
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
    p = tw.exp(x[m, n].to(tw.f32) - lse[m][:, None])
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
    whole, everything = _logs_of_rows(x, m, bn, smoothed)
    found = whole - x[m.index, wanted].to(tw.f32).fill(tw.nan)
    share = smoothing / (tw.zeros(m, tw.f32) + x.shape[1])
    if smoothed:
        mean = everything / (tw.zeros(m, tw.f32) + x.shape[1])
        found = (1 - smoothing) * found + tw.where(smoothing == 0.0, 0.0, smoothing * (whole - mean))
    loss[m] = tw.where(wanted == ignored, 0.0, found)
    weight = tw.where(wanted == ignored, 0.0, dloss[m])
    for n in tw.stream(x.shape[1], bn):
        p = tw.exp(x[m, n].to(tw.f32) - whole[:, None])
        aim = tw.where(n.index[None, :] == wanted.to(tw.i32)[:, None], 1 - smoothing, 0.0) + share[:, None]
        dx[m, n] = tw.where(weight[:, None] == 0.0, 0.0, (p - aim) * weight[:, None])
