"""Sum of two vectors."""

from typing import Annotated

import tilewright as tw

Vector = Annotated[tw.Tensor, "M"]


@tw.kernel
def add(x: Vector, y: Vector, z: Vector, *, block: int = tw.auto):
    m = tw.grid(z, block)
    z[m] = x[m] + y[m]
