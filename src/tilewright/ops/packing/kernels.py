"""Kernels of plans and of what executes them: counts, offsets, stable ranks, and rows that move.

Pairs, a token and one of its k choices, are numbered token * k + choice. ``BLOCK`` pairs share one row of the table of
counts: as many earlier pairs chose a bucket as earlier blocks counted and the pair's own block holds before it.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw

BLOCK = 512
PLACED = 32
"""Pairs of one program that places them."""


@tw.kernel
def count_buckets(
    ids: tw.Tensor["N"],
    counts: tw.Tensor["B", "E"],
    rows: tw.Tensor["B", "S"],
    pairs: tw.Tensor["B", "S"],
    *,
    be: int = 128,
    block: int = BLOCK,
):
    """How many of each block's pairs chose each bucket; invalid ids are not counted. Also writes -1 for all packed
    rows, shared between the blocks."""
    b = tw.grid(counts.shape[0], None)
    for e in tw.stream(counts.shape[1], be):
        found = tw.zeros((e,), tw.i32)
        for n in tw.stream(ids.shape[0], block // 2, start=b * block, until=b * block + block):
            found += (ids[n][:, None] == e.index).to(tw.i32).sum(0).to(tw.i32)
        counts[b, e] = found
    for s in tw.stream(rows.shape[1], 512):
        rows[b, s] = -1
        pairs[b, s] = -1


@tw.kernel
def lay_out_buckets(
    counts: tw.Tensor["B", "E"],
    before: tw.Tensor["B", "E"],
    kept: tw.Tensor["E"],
    offsets: tw.Tensor["E + 1"],
    *,
    capacity: tw.i32,
    align: int = 1,
    most: int = 128,
):
    """In one program: the counts of earlier blocks, the pairs kept by each bucket, and the begin of its rows."""
    tw.grid(1, None)
    e = tw.axis(counts.shape[1], upto=most)
    seen = tw.zeros((e,), tw.i64)
    for b in tw.stream(counts.shape[0], max(2, 4096 // most)):
        before[b, e] = tw.cumsum(counts[b, e], 0, exclusive=True, carry=seen)
    rows = tw.minimum(seen, capacity)
    kept[e] = rows
    offsets[0] = 0
    offsets[e + 1] = tw.cumsum((rows + (align - 1)) // align * align)


@tw.kernel
def place_pairs(
    ids: tw.Tensor["N"],
    before: tw.Tensor["B", "E"],
    offsets: tw.Tensor["E + 1"],
    slots: tw.Tensor["N"],
    rows: tw.Tensor["P"],
    pairs: tw.Tensor["P"],
    blocks: tw.Tensor["C", "S"],
    *,
    capacity: tw.i32,
    choices: tw.i32,
    align: int = 1,
    most: int = 128,
    block: int = BLOCK,
    bn: int = PLACED,
    step: int = PLACED,
    bs: int = 8,
):
    """The packed row of each pair, -1 where it has none; and of each packed row its token and its pair, which are -1
    before. No two pairs share a row, so each sum has one term. And the bucket of each block of ``align`` rows, -1
    behind the last one: the programs share them."""
    n = tw.grid(ids.shape[0], bn)
    e = tw.axis(offsets.shape[0] - 1, upto=most)
    for s in tw.stream(blocks.shape[1], bs):
        begin = (n.start // bn * blocks.shape[1] + s.index) * align
        ended = (offsets[e + 1] <= begin[:, None]).to(tw.i32).sum(1).to(tw.i32)
        blocks[n.start // bn, s] = tw.where(ended < offsets.shape[0] - 1, ended, -1)
    own = ids[n]
    b = n.start // block
    found = tw.zeros((n,), tw.f32)  # of a block: counts are exact
    for m in tw.stream(ids.shape[0], step, start=b * block, until=n.start):
        found += (own[:, None] == ids[m]).to(tw.f32).sum(1)
    for m in tw.stream(ids.shape[0], bn, start=n.start, until=n.stop):
        found += ((own[:, None] == ids[m]) & (m.index < n.index[:, None])).to(tw.f32).sum(1)
    earlier = before[b, own]
    within = earlier.fill(0) + found.to(tw.i32)
    slot = tw.where(tw.present(earlier) & (within < capacity), offsets[own].fill(0) + within, -1)
    slots[n] = slot
    tw.reduce_add(rows, slot, n.index // choices + 1)
    tw.reduce_add(pairs, slot, n.index + 1)


@tw.kernel
def pack_rows(rows: tw.Tensor["P"], x: tw.Tensor["T", "D"], y: tw.Tensor["P", "D"], *, bp=tw.auto, bd=tw.auto):
    """y[p] = x[rows[p]]; 0 where there is no such row."""
    p, d = tw.grid(y, (bp, bd))
    y[p, d] = x[rows[p], d]


@tw.kernel
def spread_rows(
    slots: tw.Unique["T", "K"],
    x: tw.Tensor["T", "D"],
    y: tw.Tensor["P", "D"],
    *,
    choices: int,
    bt: int = 1,
    bd: int = 2048,
):
    """y[slots[t, j]] = x[t] for each choice j: a row is read once, to however many places it goes."""
    t, d = tw.grid(x, (bt, bd))
    j = tw.axis(choices)
    y[slots[t, j], d] = x[t, d][:, None, :]


@tw.kernel
def fill_padding(rows: tw.Tensor["Q", "R"], y: tw.Tensor["Q", "R", "D"], *, part: int, bd: int = 2048):
    """Writes 0 to the rows without a token, which follow those with one in each part of a block."""
    q, d = tw.grid((y.shape[0], y.shape[2]), (None, bd))
    held = tw.where(rows[q, tw.axis(part)] >= 0, 1.0, 0.0).sum(0)  # exact: they are few
    for r in tw.stream(y.shape[1], None, start=held.to(tw.i32)):
        y[q, r, d] = 0


@tw.kernel
def unpack_rows(
    slots: tw.Tensor["T", "K"],
    y: tw.Tensor["P", "D"],
    weights: tw.Tensor["T", "K"] | None,
    added: tw.Tensor["T", "D"] | None,
    out: tw.Tensor["T", "D"],
    *,
    choices: int,
    bt=tw.auto,
    bd=tw.auto,
):
    """out[t] = added[t] + the sum of weights[t, j] * y[slots[t, j]] over the choices j, in their order, in f32."""
    t, d = tw.grid(out, (bt, bd))
    total = tw.zeros((t, d), tw.f32)
    if added is not None:
        total += added[t, d].to(tw.f32)
    for j in range(choices):
        row = y[slots[t, j], d].to(tw.f32)
        total += row if weights is None else row * weights[t, j].to(tw.f32)[:, None]
    out[t, d] = total


@tw.kernel
def unpack_gradient(
    rows: tw.Tensor["P"],
    pairs: tw.Tensor["P"],
    dout: tw.Tensor["T", "D"],
    y: tw.Tensor["P", "D"],
    weights: tw.Tensor["N"],
    dy: tw.Tensor["P", "D"],
    dweight: tw.Tensor["P"],
    *,
    bp: int = 2,
    bd: int = 1024,
):
    """The gradient of ``unpack_rows`` with weights: of each packed row, and of its pair's weight, in f32. Rows without
    a pair have 0."""
    p = tw.grid(y.shape[0], bp)
    own, weight, total = rows[p], weights[pairs[p]].fill(0).to(tw.f32), tw.zeros((p,), tw.f32)
    for d in tw.stream(y.shape[1], bd):
        g = dout[own, d].fill(0).to(tw.f32)
        dy[p, d] = g * weight[:, None]
        total += (g * y[p, d].to(tw.f32)).sum(1)
    dweight[p] = total
