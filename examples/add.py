"""Sum of two vectors."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def add(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, block=tw.auto):
    m = tw.grid(z, block)
    z[m] = x[m] + y[m]
