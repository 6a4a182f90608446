"""Views of an access with fewer, longer axes, found by equality saturation.

A tensor's axes are a list of terms; reordering them, and folding two whose strides nest, leaves the accessed elements
the same. Folding ``outer`` over ``inner`` needs ``stride(outer) == stride(inner) * extent(inner)``, and a tile that
takes all of ``inner`` (or one index of both). Folds compose. An axis too long for a tensor map is split first, into two
that are not folded again. The cheapest term of the saturated graph has the fewest axes; every extracted view is
planned, judged and priced like any other access.

Terms are axes only, because folds, splits and orders enable one another. Swizzles, element widths, row classes, padding
and boxes do not: after any of them the access is legal or the change is no repair, so ``repairs`` applies them to every
extracted view instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import egglog
from egglog import EGraph, i64Like, relation, rewrite, rule, vars_
from egglog.bindings import EggSmolError

from tilewright.base.expr import Expr, expr
from tilewright.hw.tensormap import MAX_EXTENT
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.tma import TileAccess

MAX_AXES = 8
"""Axes that are saturated; the graph holds at most 2^n lists of them."""
ITERATIONS = 16
EXTRACTED = 6
"""Views that are extracted and judged."""


class Axis(egglog.Expr):
    """A tensor axis, or a fold of several."""

    def __init__(self, number: i64Like) -> None: ...

    @egglog.method(cost=1)
    def over(self, inner: Axis) -> Axis: ...


class ViewTerm(egglog.Expr):
    """A list of axes; the empty one is ``View(0)``."""

    def __init__(self, size: i64Like) -> None: ...

    @egglog.method(cost=100)
    def add(self, axis: Axis) -> ViewTerm: ...


_nest = relation("nest", Axis, Axis)
_whole = relation("whole", Axis)
_single = relation("single", Axis)


def _rules() -> egglog.Ruleset:
    a, b, c = vars_("a b c", Axis)
    (rest,) = vars_("rest", ViewTerm)
    fold = a.over(b)
    return egglog.ruleset(
        rewrite(rest.add(a).add(b)).to(rest.add(b).add(a)),
        rewrite(rest.add(a).add(b)).to(rest.add(fold), _nest(a, b), _whole(b)),
        rewrite(rest.add(a).add(b)).to(rest.add(fold), _nest(a, b), _single(a), _single(b)),
        rule(fold, _nest(a, b), _whole(a), _whole(b)).then(_whole(fold)),
        rule(fold, _nest(a, b), _single(a), _single(b)).then(_single(fold)),
        rule(fold, _nest(a, b), _nest(b, c)).then(_nest(fold, c)),
        rule(fold, _nest(a, b), _nest(c, a)).then(_nest(c, fold)),
    )


@dataclass(frozen=True)
class FoldedView:
    """An access to the same elements through folded axes.

    ``axes`` lists, for each axis of ``access``, the tensor axes folded into it, outermost first; an axis in two lists
    is split, its outer part first. ``indices`` is the first index along each, over ``$index0, $index1, ...`` of the
    tensor's axes.
    """

    access: TileAccess
    axes: tuple[tuple[int, ...], ...]
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class _Folded:
    axes: tuple[int, ...]
    extent: Expr
    stride: Expr
    tile: int | None
    index: Expr
    part: int = 0
    """1 for the inner part of an axis that was split."""


def views(access: TileAccess, facts: Facts) -> Iterator[FoldedView]:
    """Views of ``access`` through other axes, fewest axes first. None if nothing folds, there are too many axes, or the
    graph fails: repairs by thread copies need no view, so a failure here never refuses an access."""
    leaves = _leaves(access, facts)
    if not 2 <= len(leaves) <= MAX_AXES or access.first_multiples:
        return
    graph = EGraph()
    root = ViewTerm(0)
    for number in range(len(leaves)):
        root = root.add(Axis(number))
    root = graph.let("root", root)
    for number, leaf in enumerate(leaves):
        if leaf.tile is None:
            graph.register(_single(Axis(number)))
        elif leaf.extent.constant == leaf.tile:
            graph.register(_whole(Axis(number)))
        for inner, other in enumerate(leaves):
            one = leaf.extent.constant == other.extent.constant == 1  # such axes nest both ways: one order is enough
            if one and number > inner:
                continue
            if leaf.axes != other.axes and facts.decide((leaf.stride - other.stride * other.extent).eq(0)):
                graph.register(_nest(Axis(number), Axis(inner)))
    try:
        graph.run(_rules() * ITERATIONS)
    except EggSmolError:
        return
    plain = tuple((i,) for i in range(len(access.shape)))
    seen: set[tuple[tuple[int, ...], ...]] = set()
    best: ViewTerm = graph.extract(root)  # pyright: ignore[reportUnknownMemberType]  cost model left open
    for term in (best, *graph.extract_multiple(root, EXTRACTED)):
        folded = sorted(_axes_of(term, leaves), key=lambda f: (min(f.axes), f.part))
        names = tuple(f.axes for f in folded)
        if names != plain and names not in seen:
            seen.add(names)
            yield FoldedView(
                replace(
                    access,
                    shape=tuple(f.extent for f in folded),
                    strides=tuple(f.stride for f in folded),
                    tile=tuple(f.tile for f in folded),
                ),
                names,
                tuple(f.index for f in folded),
            )


def _leaves(access: TileAccess, facts: Facts) -> list[_Folded]:
    leaves: list[_Folded] = []
    for i, (extent, stride, tile) in enumerate(zip(access.shape, access.strides, access.tile, strict=True)):
        leaf = _Folded((i,), facts.apply(expr(extent)), facts.apply(expr(stride)), tile, index_symbol(i))
        inner = _inner_extent(leaf)
        if inner is None:
            leaves.append(leaf)
            continue
        outer = replace(
            leaf, extent=leaf.extent // inner, stride=leaf.stride * inner, tile=None, index=leaf.index // inner
        )
        leaves += [outer, replace(leaf, extent=expr(inner), index=leaf.index % inner, part=1)]
    return leaves


def _inner_extent(leaf: _Folded) -> int | None:
    """The inner extent at which an axis too long for a map is split: a power of two that divides the axis and that no
    tile crosses."""
    extent = leaf.extent.constant
    if extent is None or extent <= MAX_EXTENT:
        return None
    inner = min(extent & -extent, MAX_EXTENT)
    fits = inner % (leaf.tile or 1) == 0 and extent // inner <= MAX_EXTENT
    return inner if fits else None


def _axes_of(term: ViewTerm, leaves: list[_Folded]) -> list[_Folded]:
    """The axes of an extracted list."""
    parts = egglog.get_callable_args(term, ViewTerm.add)
    if parts is None:
        return []
    rest, axis = parts
    return [*_axes_of(rest, leaves), _axis_of(axis, leaves)]


def _axis_of(term: Axis, leaves: list[_Folded]) -> _Folded:
    parts = egglog.get_callable_args(term, Axis.over)
    if parts is None:
        leaf = egglog.get_callable_args(term, Axis)
        assert leaf is not None, term
        return leaves[int(leaf[0])]
    outer, inner = (_axis_of(part, leaves) for part in parts)
    tile = None if outer.tile is None and inner.tile is None else (outer.tile or 1) * (inner.tile or 1)
    return _Folded(
        outer.axes + inner.axes,
        outer.extent * inner.extent,
        inner.stride,
        tile,
        outer.index * inner.extent + inner.index,
    )
