"""A mixture of experts over packed rows: the choice of experts, the gated first product and the second one.

Rows are packed by expert in blocks of ``bm`` rows (``ops.packing``), so that a tile of rows has one expert, and the
products read like dense ones. Blocks behind the last row have expert -1: nothing is multiplied or stored."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportOptionalSubscript=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def choose(
    logits: tw.Tensor["T", "E"],
    weights: tw.Tensor["T", "K"],
    experts: tw.Tensor["T", "K"],
    *,
    k: int,
    normalise: bool = True,
    most: int = 128,
    bt: int = 4,
):
    """The k experts of each token by the softmax of its logits; their weights add up to 1 if ``normalise``."""
    t = tw.grid(logits.shape[0], bt)
    e, j = tw.axis(logits.shape[1], upto=most), tw.axis(k)
    score = logits[t, e]
    p = tw.exp(score - score.max(1, keepdims=True))
    best, chosen = tw.topk(p / p.sum(1, keepdims=True), k, 1)
    experts[t, j] = chosen
    weights[t, j] = best / best.sum(1, keepdims=True) if normalise else best


@tw.kernel(numerics="fast")
def gated_experts(
    blocks: tw.Tensor["Q"],
    rows: tw.Tensor["P"] | None,
    x: tw.Tensor["T", "D"],
    gate_up: tw.Tensor["E", 2, "I", "D"],
    halves: tw.Tensor["P", 2, "I"] | None,
    h: tw.Tensor["P", "I"],
    x_scale: tw.Tensor["P"] | None = None,
    gate_up_scale: tw.Tensor["E", 2, "I"] | None = None,
    *,
    bm: int = 128,
    bn: int = 128,
    bk: int = 64,
):
    """h = silu(a) * b of a = x gate[e]^T and b = x up[e]^T, e the expert of a block of rows. With ``rows`` packed row p
    is token ``rows[p]`` where it lies, and 0 where there is none. ``halves``, where they are given, keep a and b for
    the gradients. Rows and weights of 8 bits are divided by the scales of their rows."""
    m, n = tw.grid(h, (bm, bn))
    e = blocks[m.start // bm]
    for _ in tw.stream(1, None, until=tw.where(e >= 0, 1, 0)):
        a, b = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[1], bk):
            own = x[m if rows is None else rows[m], k]
            a += tw.dot(own, gate_up[e, 0, n, k].T)
            b += tw.dot(own, gate_up[e, 1, n, k].T)
        if x_scale is not None:
            a, b = (_rescaled(acc, x_scale[m], gate_up_scale[e, i, n]) for i, acc in enumerate((a, b)))
        if halves is not None:
            halves[m, 0, n] = a
            halves[m, 1, n] = b
        h[m, n] = a * tw.sigmoid(a) * b


@tw.kernel
def down_experts(
    blocks: tw.Tensor["Q"],
    h: tw.Tensor["P", "I"],
    down: tw.Tensor["E", "D", "I"],
    y: tw.Tensor["P", "D"],
    h_scale: tw.Tensor["P"] | None = None,
    down_scale: tw.Tensor["E", "D"] | None = None,
    *,
    bm: int = 128,
    bn: int = 256,
    bk: int = 64,
):
    """y = h down[e]^T, e the expert of a block of rows. With the last axes of weights exchanged, their
    inputs' gradient. Rows and weights of 8 bits are divided by the scales of their rows."""
    m, n = tw.grid(y, (bm, bn))
    e = blocks[m.start // bm]
    for _ in tw.stream(1, None, until=tw.where(e >= 0, 1, 0)):
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(h.shape[1], bk):
            acc += tw.dot(h[m, k], down[e, n, k].T)
        y[m, n] = acc if h_scale is None else _rescaled(acc, h_scale[m], down_scale[e, n])


def _rescaled(acc, rows, columns):
    return acc * (rows[:, None] * columns.fill(0.0)[None, :])


@tw.kernel
def scales_of_rows(rows: tw.Tensor["P"], scale: tw.Tensor["T"], y: tw.Tensor["P"], *, bp: int = 1024):
    """y[p] = scale[rows[p]], 0 where there is no such row: gathered behind a product they would take its registers."""
    p = tw.grid(y.shape[0], bp)
    y[p] = scale[rows[p]].fill(0.0)


@tw.kernel(numerics="fast")
def gated_experts_backward(
    pairs: tw.Tensor["P"],
    weights: tw.Tensor["N"],
    halves: tw.Tensor["P", 2, "I"],
    dh: tw.Tensor["P", "I"],
    dhalves: tw.Tensor["P", 2, "I"],
    h: tw.Tensor["P", "I"],
    dweights: tw.Tensor["P"],
    *,
    bp: int = 4,
    bi: int = 1024,
):
    """Gradients of silu(a) * b weighed by each row's pair, of which ``dh`` is that before the weight; ``h`` is the
    weighed result again, ``dweights`` the weight's gradient. Rows without a pair give 0."""
    p = tw.grid(dh.shape[0], bp)
    weight = weights[pairs[p]].fill(0.0)[:, None]
    total = tw.zeros((p,), tw.f32)
    for i in tw.stream(dh.shape[1], bi):
        a, b, d = halves[p, 0, i].to(tw.f32), halves[p, 1, i].to(tw.f32), dh[p, i].to(tw.f32)
        s = tw.sigmoid(a)
        silu = a * s
        total += (d * silu * b).sum(1)
        dhalves[p, 0, i] = d * weight * b * (s + silu * (1 - s))
        dhalves[p, 1, i] = d * weight * silu
        h[p, i] = silu * b * weight
    dweights[p] = total


@tw.kernel
def expert_weight_gradient(
    offsets: tw.Tensor["E + 1"],
    y: tw.Tensor["S", 64, "M"],
    x: tw.Tensor["S", 64, "N"],
    dw: tw.Tensor["E", "M", "N"],
    *,
    bm: int = 128,
    bn: int = 256,
):
    """dw[e] = y^T x over the rows from offsets[e] to offsets[e + 1], multiples of 64: blocks of 64 rows are whole, so
    that tensor copies bring them. An expert without rows has 0."""
    e, m, n = tw.grid(dw, (None, bm, bn))
    row = tw.axis(64)
    acc = tw.zeros((m, n), tw.f32)
    for s in tw.stream(x.shape[0], None, start=offsets[e] // 64, until=offsets[e + 1] // 64):
        acc += tw.dot(y[s, row, m].T, x[s, row, n])
    dw[e, m, n] = acc
