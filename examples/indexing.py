"""Computed and loaded coordinates: rows of a table, sums by index, a convolution, rotary embedding, labels, rows that
are stored where an index says, groups of rows."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def embedding(
    index: Annotated[tw.Tensor, "T"],
    table: Annotated[tw.Tensor, "V", "D"],
    y: Annotated[tw.Tensor, "T", "D"],
    *,
    bt: int = tw.auto,
    bd: int = tw.auto,
):
    """y = table[index]; rows of indices outside the table are 0."""
    t, d = tw.grid(y, (bt, bd))
    y[t, d] = table[index[t], d]


@tw.kernel
def index_add(
    index: Annotated[tw.Tensor, "T"],
    x: Annotated[tw.Tensor, "T", "D"],
    y: Annotated[tw.Tensor, "V", "D"],
    *,
    bt: int = tw.auto,
    bd: int = tw.auto,
):
    """y.index_add_(0, index, x), the gradient of an embedding: indices may repeat, those outside add nothing."""
    t, d = tw.grid(x, (bt, bd))
    tw.reduce_add(y, (index[t], d), x[t, d])


@tw.kernel
def causal_conv1d(
    x: Annotated[tw.Tensor, "T", "D"],
    w: Annotated[tw.Tensor, 4, "D"],
    y: Annotated[tw.Tensor, "T", "D"],
    *,
    bt: int = tw.auto,
    bd: int = tw.auto,
):
    """y[t] = sum over j of w[j] * x[t - j]: steps before the first count as nothing."""
    t, d = tw.grid(y, (bt, bd))
    total = tw.zeros((t, d), tw.f32)
    for j in range(4):
        total += x[t - j, d].to(tw.f32) * w[j, d]
    y[t, d] = total


@tw.kernel
def rotate_halves(
    x: Annotated[tw.Tensor, "T", "H", 128],
    cos: Annotated[tw.Tensor, "T", 64],
    sin: Annotated[tw.Tensor, "T", 64],
    y: Annotated[tw.Tensor, "T", "H", 128],
    *,
    bt: int = tw.auto,
):
    """Rotary embedding of the halves of a head, from tables of angles."""
    t, h = tw.grid((x.shape[0], x.shape[1]), (bt, None))
    first, second = x[t, h, :64], x[t, h, 64:]
    y[t, h, :64] = first * cos[t] - second * sin[t]
    y[t, h, 64:] = second * cos[t] + first * sin[t]


@tw.kernel
def label_loss(
    logits: Annotated[tw.Tensor, "M", "N"],
    label: Annotated[tw.Tensor, "M"],
    loss: Annotated[tw.Tensor, "M"],
    *,
    bm: int = tw.auto,
):
    """Cross-entropy by label; a label outside the row, -100 say, has a loss of 0."""
    m = tw.grid(loss, bm)
    n = tw.axis(logits.shape[1], upto=65536)
    row = logits[m, n].to(tw.f32)
    most = row.max(1)
    total = tw.log(tw.exp(row - most[:, None]).sum(1)) + most
    loss[m] = total - logits[m.index, label[m]]


@tw.kernel
def scatter_rows(
    index: Annotated[tw.Unique, "T"],
    x: Annotated[tw.Tensor, "T", "D"],
    y: Annotated[tw.Tensor, "V", "D"],
    *,
    bt: int = tw.auto,
    bd: int = tw.auto,
):
    """y[index] = x, of rows whose places differ: a launch checks that, and stores nothing where two are one."""
    t, d = tw.grid(x, (bt, bd))
    y[index[t], d] = x[t, d]


@tw.kernel
def append_to_pages(
    slots: Annotated[tw.Unique, "T"],
    k: Annotated[tw.Tensor, "T", "H", 128],
    pool: Annotated[tw.Tensor, "P", 64, "H", 128],
    *,
    bt: int = tw.auto,
):
    """Keys of new tokens to their slots of a paged cache, a page and a place in it; a slot of -1 is stored nowhere."""
    t, h = tw.grid(k, (bt, None))
    slot = slots[t]
    pool[slot // 64, slot % 64, h] = k[t, h]


@tw.kernel
def grouped_rmsnorm(
    offsets: Annotated[tw.Offsets, "G + 1"],
    x: Annotated[tw.Tensor, "T", "D"],
    w: Annotated[tw.Tensor, "G", "D"],
    y: Annotated[tw.Tensor, "T", "D"],
    *,
    bt: int = 4,
):
    """RMS norm of rows, with weights of their group: rows offsets[g] to offsets[g + 1]; rows in no group are 0."""
    g, t = tw.ragged_grid(offsets, x.shape[0], bt)
    d = tw.axis(x.shape[1], upto=8192)
    row = x[t, d].to(tw.f32)
    y[t, d] = row * tw.rsqrt((row * row).mean(1) + 1e-6)[:, None] * w[g, d]
