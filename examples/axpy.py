"""alpha * x + y with a row broadcast over a matrix, and a scalar given at launch."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def axpy(
    x: Annotated[tw.Tensor, "N"],
    y: Annotated[tw.Tensor, "M", "N"],
    z: Annotated[tw.Tensor, "M", "N"],
    *,
    alpha: Annotated[float, tw.f32],
    bm: int = tw.auto,
    bn: int = tw.auto,
):
    m, n = tw.grid(z, (bm, bn))
    z[m, n] = alpha * x[n] + y[m, n]
