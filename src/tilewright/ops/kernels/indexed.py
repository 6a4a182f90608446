"""Rows of a table by index, sums by index, running sums."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def embedding(index: tw.Tensor["T"], table: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"], *, bt=tw.auto, bd=tw.auto):
    """y[t] = table[index[t]]; 0 where there is no such row."""
    t, d = tw.grid(y, (bt, bd))
    y[t, d] = table[index[t], d]


@tw.kernel
def index_add(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], y: tw.Tensor["V", "D"], *, bt=tw.auto, bd=tw.auto):
    """y[index[t]] += x[t], in no order; rows of indices outside of y add nothing."""
    t, d = tw.grid(x, (bt, bd))
    tw.reduce_add(y, (index[t], d), x[t, d])


# -- sums by the rows that they go to ----------------------------------------------------------------------------------
ENTRIES = 512
"""Entries of an index that share a row of the table of counts."""


@tw.kernel
def count_entries(index: tw.Tensor["T"], counts: tw.Tensor["B", "V"], order: tw.Tensor["T"], *, most: int = 4096):
    """How many of each block's entries name each row; entries that are no row count nowhere. And clears ``order``."""
    b = tw.grid(counts.shape[0], None)
    found = tw.zeros((most,), tw.i32)
    for t in tw.stream(index.shape[0], ENTRIES // 2, start=b * ENTRIES, until=b * ENTRIES + ENTRIES):
        found += tw.histogram(index[t], most)
        order[t] = 0
    counts[b, tw.axis(most).index] = found


@tw.kernel
def count_earlier(
    counts: tw.Tensor["B", "V"], earlier: tw.Tensor["B", "V"], totals: tw.Tensor["V"], *, bv: int = 64, bb: int = 16
):
    """How many entries of earlier blocks name each row, and how many of all."""
    v = tw.grid(counts.shape[1], bv)
    seen = tw.zeros((v,), tw.i32)
    for b in tw.stream(counts.shape[0], bb):
        earlier[b, v] = tw.cumsum(counts[b, v], 0, exclusive=True, carry=seen)
    totals[v] = seen


@tw.kernel
def lay_out_rows(totals: tw.Tensor["V"], offsets: tw.Tensor["V + 1"], *, bv: int = 4096):
    """One program: where the entries of each row begin."""
    tw.grid(1, None)
    total = tw.zeros((), tw.i32)
    offsets[0] = 0
    for v in tw.stream(totals.shape[0], bv):
        offsets[v + 1] = tw.cumsum(totals[v], 0, carry=total)


@tw.kernel
def place_entries(
    index: tw.Tensor["T"],
    earlier: tw.Tensor["B", "V"],
    offsets: tw.Tensor["V + 1"],
    order: tw.Tensor["T"],
    *,
    bt: int = 64,
):
    """The entries in the order of the rows that they name, those of a row in their own order. ``order`` is 0 before,
    and no two entries share a place, so each sum has one term."""
    t = tw.grid(index.shape[0], bt)
    own, b = index[t], t.start // ENTRIES
    rank = tw.zeros((t,), tw.i32)
    for s in tw.stream(index.shape[0], bt, start=b * ENTRIES, until=t.stop):
        rank += ((own[:, None] == index[s]) & (s.index < t.index[:, None])).to(tw.i32).sum(1).to(tw.i32)
    before = earlier[b, own]
    place = tw.where(tw.present(before), offsets[own].fill(0) + before.fill(0) + rank, -1)
    tw.reduce_add(order, place, t.index)


@tw.kernel
def sum_entries(
    offsets: tw.Tensor["V + 1"],
    order: tw.Tensor["T"],
    x: tw.Tensor["T", "D"],
    base: tw.Tensor["V", "D"],
    y: tw.Tensor["V", "D"],
    *,
    bd: int = 1024,
):
    """y[v] = base[v] + the rows of x whose entries name v, in f32, in an order that the index alone decides."""
    v, d = tw.grid(y, (None, bd))
    total = tw.zeros((d,), tw.f32)
    total.set(base[v, d])
    for t in tw.stream(order.shape[0], 1, start=offsets[v], until=offsets[v + 1]):
        total += x[order[t], d].sum(0)
    y[v, d] = total


CHUNK = 64
"""Entries, in the order of the rows that they name, whose sum is made once where they all name one row."""


@tw.kernel
def sum_chunks(
    index: tw.Tensor["T"],
    order: tw.Tensor["T"],
    x: tw.Tensor["T", "D"],
    sums: tw.Tensor["C", "D"],
    *,
    bd: int = 1024,
):
    """The sum of each whole chunk of entries that name one row, in f32, and 0 of the others."""
    c, d = tw.grid(sums, (None, bd))
    begin = c * CHUNK
    first, last = index[order[begin]].fill(-1), index[order[begin + (CHUNK - 1)]].fill(-2)
    total = tw.zeros((d,), tw.f32)
    for t in tw.stream(order.shape[0], 1, start=begin, until=tw.where(first == last, begin + CHUNK, begin)):
        total += x[order[t], d].to(tw.f32).sum(0)
    sums[c, d] = total


@tw.kernel
def sum_rows(
    offsets: tw.Tensor["V + 1"],
    order: tw.Tensor["T"],
    x: tw.Tensor["T", "D"],
    sums: tw.Tensor["C", "D"],
    y: tw.Tensor["V", "D"],
    *,
    bd: int = 2048,
):
    """y[v] = the rows of x whose entries name v, added in f32 in an order that the index alone decides, whole chunks of
    them as ``sum_chunks`` added them: a row that many name takes no longer than the others together."""
    v, d = tw.grid(y, (None, bd))
    begin, end = offsets[v], offsets[v + 1]
    head = tw.minimum((begin + (CHUNK - 1)) // CHUNK * CHUNK, end)
    tail = tw.maximum(end // CHUNK * CHUNK, head)
    total = tw.zeros((d,), tw.f32)
    for t in tw.stream(order.shape[0], 1, start=begin, until=head):
        total += x[order[t], d].to(tw.f32).sum(0)
    for c in tw.stream(sums.shape[0], 1, start=head // CHUNK, until=tail // CHUNK):
        total += sums[c, d].sum(0)
    for t in tw.stream(order.shape[0], 1, start=tail, until=end):
        total += x[order[t], d].to(tw.f32).sum(0)
    y[v, d] = total


# -- running sums ------------------------------------------------------------------------------------------------------
@tw.kernel
def cumsum(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    """Running sums of rows, in f32."""
    m = tw.grid(x.shape[0], bm)
    total = tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[1], bn):
        y[m, n] = tw.cumsum(x[m, n], 1, carry=total)


@tw.kernel
def cumsum_reverse(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn: int = 2048):
    """The same from the last element on: tiles from the end, each in the order of its memory."""
    m = tw.grid(x.shape[0], bm)
    total = tw.zeros((m,), tw.f32)
    last = (x.shape[1] + (bn - 1)) // bn * bn - bn
    for n in tw.stream(x.shape[1], bn):
        place = last - n.start + tw.axis(bn).index
        y[m, place] = tw.cumsum(x[m, place], 1, reverse=True, carry=total)
