"""Cross-entropy over rows of logits, forward: -log softmax(x)[target]."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def cross_entropy(
    x: Annotated[tw.Tensor, "M", "N"],
    target: Annotated[tw.Tensor, "M"],
    loss: Annotated[tw.Tensor, "M"],
    *,
    bm: int = tw.auto,
    bn: int = tw.auto,
):
    m = tw.grid(loss, bm)
    wanted = target[m].to(tw.i32)
    top = tw.full(m, -tw.inf, tw.f32)
    total = tw.zeros(m, tw.f32)
    picked = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        v = x[m, n].to(tw.f32)
        new = tw.maximum(top, v.max(1))
        base = tw.where(new == -tw.inf, 0.0, new)
        total.set(total * tw.exp(top - base) + tw.exp(v - base[:, None]).sum(1))
        top.set(new)
        picked += tw.where(n.index[None, :] == wanted[:, None], v, 0.0).sum(1)
    loss[m] = top + tw.log(total) - picked
