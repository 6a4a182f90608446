"""SwiGLU: the product of a gate through SiLU and a linear part."""

from typing import Annotated

import tilewright as tw

Matrix = Annotated[tw.Tensor, "M", "N"]


@tw.kernel
def swiglu(gate: Matrix, up: Matrix, y: Matrix, *, bm: int = tw.auto, bn: int = tw.auto):
    m, n = tw.grid(y, (bm, bn))
    g = gate[m, n].to(tw.f32)
    y[m, n] = g * tw.sigmoid(g) * up[m, n].to(tw.f32)
