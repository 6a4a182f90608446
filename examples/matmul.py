"""C = A B^T: both operands stored with k contiguous, accumulated in f32."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def matmul(
    a: Annotated[tw.Tensor, "M", "K"],
    b: Annotated[tw.Tensor, "N", "K"],
    c: Annotated[tw.Tensor, "M", "N"],
    *,
    bm: int = tw.auto,
    bn: int = tw.auto,
    bk: int = 64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc
