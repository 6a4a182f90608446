"""Sorts: a router that sends each token to its 8 best experts, rows in order, the median of each row."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def topk(
    x: Annotated[tw.Tensor, "T", "E"],
    values: Annotated[tw.Tensor, "T", 8],
    places: Annotated[tw.Tensor, "T", 8],
    *,
    bt: int = tw.auto,
    most: int = 256,
):
    """values, places = torch.topk(x, 8)."""
    t = tw.grid(x.shape[0], bt)
    e = tw.axis(x.shape[1], upto=most)
    values[t, :], places[t, :] = tw.topk(x[t, e], 8, 1)


@tw.kernel
def route(
    logits: Annotated[tw.Tensor, "T", "E"],
    weight: Annotated[tw.Tensor, "T", 8],
    expert: Annotated[tw.Tensor, "T", 8],
    *,
    bt: int = tw.auto,
    most: int = 256,
):
    """The 8 experts of each token, weighed by the softmax over all, so that their weights add up to 1."""
    t = tw.grid(logits.shape[0], bt)
    e = tw.axis(logits.shape[1], upto=most)
    x = logits[t, e].to(tw.f32)
    p = tw.exp(x - x.max(1, keepdims=True))
    best, expert[t, :] = tw.topk(p / p.sum(1, keepdims=True), 8, 1)
    weight[t, :] = best / best.sum(1, keepdims=True)


@tw.kernel
def sort_rows(
    x: Annotated[tw.Tensor, "M", "N"],
    y: Annotated[tw.Tensor, "M", "N"],
    order: Annotated[tw.Tensor, "M", "N"],
    *,
    bm: int = tw.auto,
    most: int = 1024,
):
    """y, order = torch.sort(x, stable=True)."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=most)
    y[m, n], order[m, n] = tw.sort(x[m, n], 1), tw.argsort(x[m, n], 1)


@tw.kernel
def median(x: Annotated[tw.Tensor, "M", "N"], y: Annotated[tw.Tensor, "M"], *, bm: int = tw.auto, most: int = 1024):
    """The lower median of each row, as torch.median gives."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=most)
    middle = n.index == (x.shape[1] - 1) // 2
    y[m] = tw.where(middle, tw.sort(x[m, n], 1), 0).sum(1)
