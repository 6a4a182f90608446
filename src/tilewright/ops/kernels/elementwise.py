"""Operators that work element by element: sums, and gated linear units with their gradients."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def add(x: tw.Tensor["N"], y: tw.Tensor["N"], z: tw.Tensor["N"], *, block=tw.auto):
    """z = x + y."""
    n = tw.grid(z, block)
    z[n] = x[n] + y[n]


@tw.kernel
def scaled(x: tw.Tensor["N"], factor: tw.Tensor[1], y: tw.Tensor["N"], *, bn=tw.auto):
    """y = x * factor, a number that the device has."""
    n = tw.grid(y, bn)
    y[n] = x[n].to(tw.f32) * factor[0].to(tw.f32)


@tw.kernel
def swiglu(gate: tw.Tensor["M", "N"], up: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    """y = silu(gate) * up."""
    m, n = tw.grid(y, (bm, bn))
    g = gate[m, n].to(tw.f32)
    y[m, n] = g * tw.sigmoid(g) * up[m, n].to(tw.f32)


@tw.kernel(numerics="fast")
def swiglu_backward(
    gate: tw.Tensor["M", "N"],
    up: tw.Tensor["M", "N"],
    dy: tw.Tensor["M", "N"],
    dgate: tw.Tensor["M", "N"],
    dup: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
):
    """dgate = dy * up * silu'(gate), dup = dy * silu(gate)."""
    m, n = tw.grid(gate, (bm, bn))
    g, u, d = gate[m, n].to(tw.f32), up[m, n].to(tw.f32), dy[m, n].to(tw.f32)
    s = tw.sigmoid(g)
    dgate[m, n] = d * u * s * (1 + g * (1 - s))
    dup[m, n] = d * g * s


@tw.kernel(numerics="fast")
def geglu(
    gate: tw.Tensor["M", "N"],
    up: tw.Tensor["M", "N"],
    y: tw.Tensor["M", "N"],
    *,
    tanh: bool = False,
    bm=tw.auto,
    bn=tw.auto,
):
    """y = gelu(gate) * up; ``tanh`` takes its approximation."""
    m, n = tw.grid(y, (bm, bn))
    g = gate[m, n].to(tw.f32)
    cdf = 0.5 * (1 + (tw.tanh(0.7978845608 * (g + 0.044715 * g * g * g)) if tanh else tw.erf(g * 0.7071067812)))
    y[m, n] = g * cdf * up[m, n].to(tw.f32)


@tw.kernel(numerics="fast")
def geglu_backward(
    gate: tw.Tensor["M", "N"],
    up: tw.Tensor["M", "N"],
    dy: tw.Tensor["M", "N"],
    dgate: tw.Tensor["M", "N"],
    dup: tw.Tensor["M", "N"],
    *,
    tanh: bool = False,
    bm=tw.auto,
    bn=tw.auto,
):
    """dgate = dy * up * gelu'(gate), dup = dy * gelu(gate)."""
    m, n = tw.grid(gate, (bm, bn))
    g, u, d = gate[m, n].to(tw.f32), up[m, n].to(tw.f32), dy[m, n].to(tw.f32)
    if tanh:
        t = tw.tanh(0.7978845608 * (g + 0.044715 * g * g * g))
        cdf = 0.5 * (1 + t)
        slope = 0.3989422804 * g * (1 - t * t) * (1 + 0.134145 * g * g)
    else:
        cdf = 0.5 * (1 + tw.erf(g * 0.7071067812))
        slope = 0.3989422804 * g * tw.exp(-0.5 * g * g)
    dgate[m, n] = d * u * (cdf + slope)
    dup[m, n] = d * g * cdf


@tw.kernel(numerics="fast")
def activation_backward(
    z: tw.Tensor["M", "N"],
    dy: tw.Tensor["M", "N"],
    dz: tw.Tensor["M", "N"],
    *,
    activation: str = "silu",
    bm=tw.auto,
    bn=tw.auto,
):
    """dz = dy * f'(z), f one of ``relu``, ``silu``, ``gelu`` and ``gelu_tanh``."""
    m, n = tw.grid(z, (bm, bn))
    x, d = z[m, n].to(tw.f32), dy[m, n].to(tw.f32)
    dz[m, n] = d * slope(x, activation)


def slope(x, activation):
    """The derivative of an activation of f32."""
    if activation == "relu":
        return tw.where(x > 0, 1.0, 0.0)
    if activation == "silu":
        s = tw.sigmoid(x)
        return s * (1 + x * (1 - s))
    if activation == "gelu_tanh":
        t = tw.tanh(0.7978845608 * (x + 0.044715 * x * x * x))
        return 0.5 * (1 + t) + 0.3989422804 * x * (1 - t * t) * (1 + 0.134145 * x * x)
    return 0.5 * (1 + tw.erf(x * 0.7071067812)) + 0.3989422804 * x * tw.exp(-0.5 * x * x)
