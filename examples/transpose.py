"""Transposition of a matrix, and a copy that permutes four axes."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def transpose(
    x: Annotated[tw.Tensor, "M", "N"], y: Annotated[tw.Tensor, "N", "M"], *, bm: int = tw.auto, bn: int = tw.auto
):
    n, m = tw.grid(y, (bn, bm))
    y[n, m] = x[m, n].T


@tw.kernel
def permute(
    x: Annotated[tw.Tensor, "A", "B", "C", "D"],
    y: Annotated[tw.Tensor, "A", "C", "B", "D"],
    *,
    bb: int = tw.auto,
    bd: int = tw.auto,
):
    """y = x.permute(0, 2, 1, 3), as attention does between (tokens, heads) and (heads, tokens)."""
    a, c, b, d = tw.grid(y, (None, None, bb, bd))
    y[a, c, b, d] = x[a, b, c, d]


@tw.kernel
def permute_inner(
    x: Annotated[tw.Tensor, "A", "B", "C", "D"],
    y: Annotated[tw.Tensor, "D", "B", "A", "C"],
    *,
    bc: int = tw.auto,
    bd: int = tw.auto,
):
    """y = x.permute(3, 1, 0, 2): the contiguous axis moves, so tiles are transposed on the way."""
    d, b, a, c = tw.grid(y, (bd, None, None, bc))
    y[d, b, a, c] = x[a, b, c, d].T
