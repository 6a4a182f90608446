"""Further algebra of F2 layouts, in the vocabulary of Triton's LinearLayout.

Division undoes the product, reshaping renames groups of bits, and ``invert_and_compose_local`` inverts without moving
data from one CTA to another.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.diag import fail
from tilewright.layout import axes, gf2_vectors
from tilewright.layout.axes import Axes
from tilewright.layout.checks import log2_size
from tilewright.layout.f2 import F2Layout, widened


def divide_left(layout: F2Layout, divisor: F2Layout) -> F2Layout | None:
    """The ``q`` with ``divisor * q == layout``; None when there is none."""
    return _divide(layout, divisor, low=True)


def divide_right(layout: F2Layout, divisor: F2Layout) -> F2Layout | None:
    """The ``q`` with ``q * divisor == layout``; None when there is none."""
    return _divide(layout, divisor, low=False)


def _divide(layout: F2Layout, divisor: F2Layout, low: bool) -> F2Layout | None:
    ins, outs = _remaining(layout.ins, divisor.ins), _remaining(layout.outs, divisor.outs)
    if ins is None or outs is None:
        return None
    shifts = dict(zip(layout.out_names, axes.shifts(layout.outs), strict=True))
    taken = dict(divisor.outs)
    fields = [(b, shifts[n] + (taken.get(n, 0) if low else 0)) for n, b in outs]
    columns: list[int] = []
    for name, n in ins:
        mine, used = layout.axis_columns(name), len(divisor.axis_columns(name))
        columns += (axes.extract(c, fields) for c in (mine[used:] if low else mine[:n]))
    quotient = F2Layout(ins, outs, tuple(columns))
    whole = divisor * quotient if low else quotient * divisor
    return quotient if _aligned(whole, layout) == layout else None


def _remaining(whole: Axes, part: Axes) -> Axes | None:
    """``whole`` minus the bits of ``part``, in order; None when ``part`` is no part of it."""
    sizes = dict(whole)
    for name, n in part:
        if sizes.get(name, -1) < n:
            return None
        sizes[name] -= n
    return tuple(sizes.items())


def _aligned(layout: F2Layout, like: F2Layout) -> F2Layout:
    """``layout`` with its axes in the order of ``like``, where the names agree."""
    if sorted(layout.in_names) != sorted(like.in_names) or sorted(layout.out_names) != sorted(like.out_names):
        return layout
    return layout.transpose_ins(like.in_names).transpose_outs(like.out_names)


def reshape_ins(layout: F2Layout, shape: Mapping[str, int]) -> F2Layout:
    """The same bits under other input axes (name to size), first axis fastest (LAY002 if the total size changes)."""
    return F2Layout(_reshaped(layout.ins, shape), layout.outs, layout.columns)


def reshape_outs(layout: F2Layout, shape: Mapping[str, int]) -> F2Layout:
    """The same bits under other output axes (name to size), first axis fastest (LAY002 if the total size changes)."""
    return F2Layout(layout.ins, _reshaped(layout.outs, shape), layout.columns)


def _reshaped(old: Axes, wanted: Mapping[str, int]) -> Axes:
    """Other axes (name to size) over the same number of bits (LAY002, LAY003)."""
    shape = tuple((n, log2_size(s, f"size of {n}")) for n, s in wanted.items())
    if sum(b for _, b in shape) != sum(b for _, b in old):
        fail(
            "LAY002",
            title="a reshape keeps the number of coordinates",
            found=axes.describe(shape),
            required=f"as many as {axes.describe(old)}",
            help="choose sizes with the same product",
        )
    return shape


def consecutive(layout: F2Layout) -> int:
    """The largest 2^k such that aligned runs of 2^k coordinates of the first input axis map to consecutive coordinates
    of the first output axis: their k lowest bits are equal, and no other input bit moves those."""
    limit = min(layout.ins[0][1], layout.outs[0][1]) if layout.ins and layout.outs else 0
    k = 0
    while k < limit and layout.columns[k] == 1 << k:
        k += 1
    while k and any(c & ((1 << k) - 1) for c in layout.columns[k:]):
        k -= 1
    return 1 << k


def invert_and_compose_local(inner: F2Layout, outer: F2Layout, name: str) -> F2Layout:
    """``inner.invert_and_compose(outer)`` in which axis ``name`` (a CTA of a cluster) maps to itself: no index of it
    reads what another one holds.

    LAY008 when a coordinate held by one index of ``name`` is not held by ``outer`` at the same index.
    """
    mine = inner if inner.outs == outer.outs else widened(inner, outer.outs)
    own, theirs = mine.axis_columns(name), outer.axis_columns(name)
    moved = tuple(a ^ b for a, b in zip(own, theirs, strict=True))
    columns = tuple(c for n in mine.in_names for c in (moved if n == name else mine.axis_columns(n)))
    rest = outer.sublayout([n for n in outer.in_names if n != name], outer.out_names)
    solved = gf2_vectors.solve(rest.columns, columns)
    if isinstance(solved, int):
        fail(
            "LAY008",
            title=f"data must cross from one {name} to another",
            found=f"no input of the same {name} maps to {outer.unpack(solved)}",
            required=f"every {name} holds what it reads",
            help="use invert_and_compose, and move the data between them",
        )
    local = F2Layout(mine.ins, rest.ins, solved)
    whole = local * F2Layout.zeros(1, name, name, 1 << len(own))
    shift = sum(b for n, b in whole.outs if n != name)
    start = sum(b for _, b in whole.ins[: whole.in_names.index(name)])
    kept = list(whole.columns)
    for i in range(len(own)):
        kept[start + i] |= 1 << (shift + i)
    return F2Layout(whole.ins, whole.outs, tuple(kept)).transpose_outs(outer.in_names)
