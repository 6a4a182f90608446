"""alpha * x + y with a row broadcast over a matrix, and a scalar given at launch."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def axpy(x: tw.Tensor["N"], y: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"], *, alpha: tw.f32, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(z, (bm, bn))
    z[m, n] = alpha * x[n] + y[m, n]
