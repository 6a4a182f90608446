"""A mixture of experts: route, plan, two products over packed rows, of which the first gathers them, and a weighted sum
by token.

Buckets begin at multiples of a tile's rows, so that a tile has one expert and the products are dense ones whose weight
is chosen by a loaded integer. Nothing waits for the host, and the same ids give the same bits."""

from typing import Annotated, Any

import tilewright as tw


@tw.kernel
def route(
    x: Annotated[tw.Tensor, "T", "D"],
    router: Annotated[tw.Tensor, "E", "D"],
    weight: Annotated[tw.Tensor, "T", 2],
    expert: Annotated[tw.Tensor, "T", 2],
    *,
    bt: int = 64,
):
    """The 2 experts of each token, weighed by the softmax of their logits."""
    t = tw.grid(x.shape[0], bt)
    e = tw.axis(router.shape[0], upto=128)
    logits = tw.zeros((t, e), tw.f32)
    for d in tw.stream(x.shape[1], 64):
        logits += tw.dot(x[t, d], router[e, d].T)
    best, expert[t, :] = tw.topk(logits, 2, 1)
    p = tw.exp(best - best.max(1, keepdims=True))
    weight[t, :] = p / p.sum(1, keepdims=True)


@tw.kernel
def gated(
    blocks: Annotated[tw.Tensor, "Q"],
    rows: Annotated[tw.Tensor, "P"],
    x: Annotated[tw.Tensor, "T", "D"],
    gate: Annotated[tw.Tensor, "E", "I", "D"],
    up: Annotated[tw.Tensor, "E", "I", "D"],
    h: Annotated[tw.Tensor, "P", "I"],
    *,
    bm: int = 128,
    bn: int = 128,
):
    """h = silu(x gate[e]^T) * (x up[e]^T) of the tokens ``rows``, both products in one kernel; e is the expert of a
    block of rows. The producer copies each token's row into the pipeline from where it lies."""
    m, n = tw.grid(h, (bm, bn))
    e = blocks[m.start // bm]
    for _ in tw.stream(1, None, until=tw.where(e >= 0, 1, 0)):  # blocks behind the last row are left out
        a, b = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[1], 64):
            tokens = x[rows[m], k]
            a += tw.dot(tokens, gate[e, n, k].T)
            b += tw.dot(tokens, up[e, n, k].T)
        h[m, n] = a * tw.sigmoid(a) * b


@tw.kernel
def down(
    blocks: Annotated[tw.Tensor, "Q"],
    h: Annotated[tw.Tensor, "P", "I"],
    w: Annotated[tw.Tensor, "E", "D", "I"],
    y: Annotated[tw.Tensor, "P", "D"],
    *,
    bm: int = 128,
    bn: int = 256,
):
    """y = h w[e]^T."""
    m, n = tw.grid(y, (bm, bn))
    e = blocks[m.start // bm]
    for _ in tw.stream(1, None, until=tw.where(e >= 0, 1, 0)):
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(h.shape[1], 64):
            acc += tw.dot(h[m, k], w[e, n, k].T)
        y[m, n] = acc


def mixture(
    x: Any,
    router: Any,
    gate_weights: Any,
    up_weights: Any,
    down_weights: Any,
    weight: Any,
    expert: Any,
    *,
    bm: int = 128,
):
    """The layer on arrays or tensors; ``weight`` of f32 and ``expert`` of i32, (tokens, 2), receive the routing."""
    route(x, router, weight, expert)
    plan = tw.build_pack_plan(expert, router.shape[0], tw.PackPolicy(align=bm))
    h = gated(plan.blocks, plan.rows, x, gate_weights, up_weights, bm=bm)
    return tw.unpack(plan, down(plan.blocks, h, down_weights, bm=bm), weight)
