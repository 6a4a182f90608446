"""C[g] = A[g] B[g]^T for groups of rows whose lengths only the device knows, as in a mixture of experts: the text is
that of the dense product, over a grid of the groups' tiles.

Group g has the rows offsets[g] .. offsets[g + 1]; empty groups do nothing, rows in no group become 0. Offsets that do
not ascend from 0 to at most as many rows as there are keep the whole launch from storing, and are reported (RUN023)."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def grouped_matmul(
    offsets: Annotated[tw.Offsets, "G + 1"],
    a: Annotated[tw.Tensor, "M", "K"],
    b: Annotated[tw.Tensor, "G", "N", "K"],
    c: Annotated[tw.Tensor, "M", "N"],
    *,
    bm: int = tw.auto,
    bn: int = tw.auto,
    bk: int = 64,
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@tw.kernel
def scaled_rows(
    offsets: Annotated[tw.Offsets, "G + 1"],
    a: Annotated[tw.Tensor, "M", "K"],
    a_scale: Annotated[tw.Tensor, "M"],
    b: Annotated[tw.Tensor, "G", "N", "K"],
    b_scale: Annotated[tw.Tensor, "G", "N"],
    c: Annotated[tw.Tensor, "M", "N"],
    *,
    bm: int = tw.auto,
    bn: int = tw.auto,
    bk: int = 128,
):
    """Operands of 8 bits, with a scale for each row of both."""
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc * a_scale[m][:, None] * b_scale[g, n][None, :]


@tw.kernel
def scaled_blocks(
    offsets: Annotated[tw.Offsets, "G + 1"],
    a: Annotated[tw.Tensor, "M", "K"],
    a_scale: Annotated[tw.Tensor, "M", "J"],
    b: Annotated[tw.Tensor, "G", "N", "K"],
    b_scale: Annotated[tw.Tensor, "G", "I", "J"],
    c: Annotated[tw.Tensor, "M", "N"],
    *,
    bm: int = 128,
    bn: int = 128,
):
    """The same with a scale for each 128 elements of a row of ``a``, and for each 128 x 128 of ``b``."""
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 128):
        scale = a_scale[m, k.start // 128] * b_scale[g, n.start // 128, k.start // 128]
        acc += tw.dot(a[m, k], b[g, n, k].T) * scale[:, None]
    c[m, n] = acc
