"""Operators that work element by element."""

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
def swiglu(gate: tw.Tensor["M", "N"], up: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    """y = silu(gate) * up."""
    m, n = tw.grid(y, (bm, bn))
    g = gate[m, n].to(tw.f32)
    y[m, n] = g * tw.sigmoid(g) * up[m, n].to(tw.f32)
