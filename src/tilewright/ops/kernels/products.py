"""Matrix products, and what may follow one before it is stored."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def matmul(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto, bk=64):
    """c = a b^T, accumulated in f32: a linear layer whose weights are stored by output."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel(numerics="fast")
def linear(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    bias: tw.Tensor["N"] | None,
    residual: tw.Tensor["M", "N"] | None,
    c: tw.Tensor["M", "N"],
    kept: tw.Tensor["M", "N"] | None = None,
    *,
    activation: str = "none",
    bm=tw.auto,
    bn=tw.auto,
    bk: int = 64,
):
    """c = activation(a b^T + bias) + residual; ``kept`` is what comes before the activation."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    z = acc if bias is None else acc + bias[n].to(tw.f32)[None, :]
    if kept is not None:
        kept[m, n] = z
    z = activated(z, activation)
    c[m, n] = z if residual is None else z + residual[m, n].to(tw.f32)


def activated(z, activation):
    """One of ``none``, ``relu``, ``silu``, ``gelu`` and ``gelu_tanh`` of f32."""
    if activation == "relu":
        return tw.maximum(z, 0.0)
    if activation == "silu":
        return z * tw.sigmoid(z)
    if activation == "gelu":
        return 0.5 * z * (1 + tw.erf(z * 0.7071067812))
    if activation == "gelu_tanh":
        return 0.5 * z * (1 + tw.tanh(0.7978845608 * (z + 0.044715 * z * z * z)))
    return z
