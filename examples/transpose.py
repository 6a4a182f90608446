"""Transposition of a matrix, and a copy that permutes four axes."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def transpose(x: tw.Tensor["M", "N"], y: tw.Tensor["N", "M"], *, bm=tw.auto, bn=tw.auto):
    n, m = tw.grid(y, (bn, bm))
    y[n, m] = x[m, n].T


@tw.kernel
def permute(x: tw.Tensor["A", "B", "C", "D"], y: tw.Tensor["A", "C", "B", "D"], *, bb=tw.auto, bd=tw.auto):
    """y = x.permute(0, 2, 1, 3), as attention does between (tokens, heads) and (heads, tokens)."""
    a, c, b, d = tw.grid(y, (None, None, bb, bd))
    y[a, c, b, d] = x[a, b, c, d]


@tw.kernel
def permute_inner(x: tw.Tensor["A", "B", "C", "D"], y: tw.Tensor["D", "B", "A", "C"], *, bc=tw.auto, bd=tw.auto):
    """y = x.permute(3, 1, 0, 2): the contiguous axis moves, so tiles are transposed on the way."""
    d, b, a, c = tw.grid(y, (bd, None, None, bc))
    y[d, b, a, c] = x[a, b, c, d].T
