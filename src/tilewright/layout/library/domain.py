"""Domains: finite sets of integer coordinates with symbolic bounds, decided by isl.

A ``Domain`` is a Presburger set over named dimensions; every other name in its constraints is a parameter, and an
answer such as ``is_empty`` holds for all values of the parameters that the domain's constraints allow. Boxes also keep
their bounds as expressions, so that cutting them into tiles yields expressions a code generator can print::

    0        core_stop          M          core_tails over one axis, tile t, vectors of a:
    |--t--|--t--|--a-|-a-|..|              core_stop = M // t * t
         core       tail   rest            tail: whole vectors; rest: what is left

Source of the semantics: isl manual (S. Verdoolaege), sets, maps and parametric emptiness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import islpy as isl

from tilewright.base.cached import cached_property
from tilewright.base.expr import TRUE, Expr, ExprLike, all_of, ceildiv, expr, maximum, minimum, sym
from tilewright.diag import fail
from tilewright.layout.checks import extent
from tilewright.layout.library.presburger import condition_text, names, set_text, value_text

Bounds: TypeAlias = tuple[tuple[Expr, Expr], ...]
"""Per dimension the first coordinate and one past the last."""


@dataclass(frozen=True, eq=False)
class Domain:
    """Coordinates over ``dims`` that satisfy ``constraint``; ``bounds`` when that is a box of expressions.

    ``shape`` is the isl set where it was computed rather than written down; ``constraint`` is then only part of it.
    """

    dims: tuple[str, ...]
    constraint: Expr = TRUE
    bounds: Bounds | None = None
    computed: isl.Set | None = None

    # -- construction ---------------------------------------------------------------------------------------------
    @staticmethod
    def of(dims: Sequence[str], constraint: Expr) -> Domain:
        """The coordinates that satisfy a condition (LAY023 when it is not Presburger); other names are parameters."""
        condition_text(constraint)
        return Domain(_distinct(dims), constraint)

    @staticmethod
    def box(extents: Mapping[str, ExprLike | tuple[ExprLike, ExprLike]]) -> Domain:
        """0 <= dim < extent, or start <= dim < stop, per dimension."""
        pairs = {n: e if isinstance(e, tuple) else (0, e) for n, e in extents.items()}
        return _box(_distinct(tuple(extents)), tuple((expr(a), expr(b)) for a, b in pairs.values()))

    @cached_property
    def set(self) -> isl.Set:
        """The isl set."""
        if self.computed is not None:
            return self.computed
        params = sorted(self.constraint.symbols - set_of(self.dims))
        return isl.Set(set_text(self.dims, params, condition_text(self.constraint)))

    def _with(self, computed: isl.Set) -> Domain:
        return Domain(self.dims, TRUE, None, computed.coalesce())

    # -- algebra --------------------------------------------------------------------------------------------------
    def union(self, *others: Domain) -> Domain:
        """Coordinates of any."""
        total = self.set
        for other in others:
            total = total.union(self._aligned(other))
        return self._with(total)

    def intersect(self, other: Domain) -> Domain:
        """Coordinates of both."""
        if self.bounds is not None and other.bounds is not None and self.dims == other.dims:
            pairs = zip(self.bounds, other.bounds, strict=True)
            return _box(self.dims, tuple((maximum(a, c), minimum(b, d)) for (a, b), (c, d) in pairs))
        return self._with(self.set.intersect(self._aligned(other)))

    def minus(self, other: Domain) -> Domain:
        """Coordinates of this one only."""
        return self._with(self.set.subtract(self._aligned(other)))

    def assume(self, facts: Expr) -> Domain:
        """The same coordinates, with parameters restricted to those that satisfy ``facts``."""
        params = sorted(facts.symbols)
        context = isl.Set(f"{names(params)} -> {{ : {condition_text(facts)} }}")
        return self._with(self.set.intersect_params(context))

    def _aligned(self, other: Domain) -> isl.Set:
        if self.dims != other.dims:
            fail(
                "LAY002",
                title="domains over other dimensions",
                found=str(other.dims),
                required=str(self.dims),
                help="name the same dimensions in the same order",
            )
        return other.set

    # -- questions ------------------------------------------------------------------------------------------------
    @property
    def is_empty(self) -> bool:
        """No coordinates, whatever the parameters."""
        return self.set.is_empty()

    def subset(self, other: Domain) -> bool:
        """Every coordinate lies in ``other``, for all parameters."""
        return self.set.is_subset(self._aligned(other))

    def equal(self, other: Domain) -> bool:
        """True if both have the same coordinates for all parameters."""
        return self.set.is_equal(self._aligned(other))

    def disjoint(self, other: Domain) -> bool:
        """No coordinate in common, for all parameters."""
        return self.set.is_disjoint(self._aligned(other))

    def at(self, **values: int) -> Domain:
        """Numbers for parameters."""
        if self.computed is None:
            put = {k: v for k, v in values.items() if k not in self.dims}
            bounds = self.bounds
            if bounds is not None:
                bounds = tuple((a.substitute(put), b.substitute(put)) for a, b in bounds)
            return Domain(self.dims, self.constraint.substitute(put), bounds)
        facts = all_of([sym(k).eq(v) for k, v in sorted(values.items())])
        fixed = self.assume(facts).set
        for name in values:
            fixed = fixed.project_out(isl.dim_type.param, fixed.find_dim_by_name(isl.dim_type.param, name), 1)
        return self._with(fixed)

    def points(self, **values: int) -> Iterator[tuple[int, ...]]:
        """All coordinates for given parameters (LAY022 if there are infinitely many)."""
        whole = self.at(**values).set
        if not whole.is_bounded() or whole.dim(isl.dim_type.param):
            left = [str(whole.get_dim_name(isl.dim_type.param, i)) for i in range(whole.dim(isl.dim_type.param))]
            fail(
                "LAY022",
                found=f"{self}, free: {', '.join(left)}" if left else str(self),
                required="both bounds on every dimension, a number for every parameter",
                help="bound the dimension, or intersect with a box",
            )
        found: list[tuple[int, ...]] = []

        def visit(point: isl.Point) -> None:
            values = (point.get_coordinate_val(isl.dim_type.set, i) for i in range(len(self.dims)))
            found.append(tuple(int(v.to_python()) for v in values))

        whole.foreach_point(visit)
        yield from sorted(found)

    # -- tiles ----------------------------------------------------------------------------------------------------
    def whole(self, tile: Sequence[int], origin: Sequence[ExprLike] | None = None) -> Domain:
        """The coordinates whose whole tile lies in the domain; tiles start at ``origin`` (0) plus multiples."""
        sizes, start = self._tiling(tile, origin)
        if self.bounds is not None:
            cut = [_whole(a, b, t, o) for (a, b), t, o in zip(self.bounds, sizes, start, strict=True)]
            return _box(self.dims, tuple(cut), [a <= b for a, b in self.bounds])
        params = sorted(_symbols(start))
        there = [f"{d}_" for d in self.dims]
        same = " and ".join(
            f"floor(({d} - {value_text(o)})/{t}) = floor(({e} - {value_text(o)})/{t})"
            for d, e, t, o in zip(self.dims, there, sizes, start, strict=True)
        )
        neighbours = isl.Map(f"{names(params)} -> {{ {names(self.dims)} -> {names(there)} : {same} }}")
        holes = self.set.apply(neighbours).subtract(self.set)
        return self._with(self.set.subtract(holes.apply(neighbours)))

    def core_tails(
        self, tile: Sequence[int], *, align: Sequence[int] | None = None, origin: Sequence[ExprLike] | None = None
    ) -> CoreTails:
        """Whole tiles, whole vectors of ``align`` coordinates beside them, and the rest: disjoint, together the domain.

        Boxes are cut by expressions, an axis at a time (each piece a box); other domains by isl, in one piece each.
        """
        sizes, start = self._tiling(tile, origin)
        vectors, _ = self._tiling(align or [1] * len(self.dims), origin)
        for t, v in zip(sizes, vectors, strict=True):
            if t % v:
                fail(
                    "LAY002",
                    title="the alignment does not divide the tile",
                    found=f"{v} in {t}",
                    required="a divisor",
                    help="align to a divisor of the tile",
                )
        if self.bounds is None:
            core = self.whole(sizes, start)
            outside = self.minus(core)
            tails = outside.whole(vectors, start)
            rests = outside.minus(tails)
            beside, single = (() if d.is_empty else (d,) for d in (tails, rests))
            return CoreTails(self, core, beside, single)
        return _cut_box(self, self.bounds, sizes, vectors, start)

    def groups(self, axis: str, ends: Sequence[ExprLike]) -> tuple[Domain, ...]:
        """Ragged groups along ``axis``: group g holds ``ends[g-1] <= axis < ends[g]`` of this box (LAY021 for no ends).

        They are disjoint and cover the box when the ends do not decrease and the last is the axis's end.
        """
        if not ends or self.bounds is None:
            fail(
                "LAY021",
                found=f"{len(ends)} ends over {self}",
                required="a box and at least one group",
                help="end the groups along an axis of a box",
            )
        place = self._place(axis)
        stops = [self.bounds[place][0], *map(expr, ends)]
        result: list[Domain] = []
        for a, b in pairwise(stops):
            bounds = [*self.bounds]
            bounds[place] = (a, b)
            result.append(_box(self.dims, tuple(bounds)))
        return tuple(result)

    def bands(self, condition: Expr, tile: Sequence[int]) -> Bands:
        """Where ``condition`` (affine, a causal mask) cuts this domain's tiles: full tiles, those it crosses, edges."""
        inside = self.intersect(Domain.of(self.dims, condition))
        tiles = self.whole(tile)
        full = inside.whole(tile)
        return Bands(full, tiles.intersect(inside).minus(full), inside.minus(tiles))

    def _tiling(self, tile: Sequence[int], origin: Sequence[ExprLike] | None) -> tuple[list[int], list[Expr]]:
        start = [0] * len(self.dims) if origin is None else list(origin)
        if len(tile) != len(self.dims) or len(start) != len(self.dims):
            fail(
                "LAY002",
                title="one tile size and origin per dimension",
                found=str(tuple(tile)),
                required=str(self.dims),
                help="give one tile size and one origin for every dimension",
            )
        return [extent(t, "tile") for t in tile], [expr(o) for o in start]

    def _place(self, dim: str) -> int:
        if dim not in self.dims:
            fail(
                "LAY002",
                title=f"no dimension {dim}",
                found=str(self.dims),
                required=f"a dimension {dim}",
                help="name a dimension of the domain",
            )
        return self.dims.index(dim)

    def __str__(self) -> str:
        return str(self.set) if self.computed is not None else f"{{ {names(self.dims)} : {self.constraint} }}"


@dataclass(frozen=True)
class CoreTails:
    """``core``: whole tiles; ``tails``: whole vectors beside them; ``rests``: single coordinates. All disjoint.

    A box is cut an axis at a time: ``lines`` are its axes, each with the parts it was cut into.
    """

    domain: Domain
    core: Domain
    tails: tuple[Domain, ...]
    rests: tuple[Domain, ...]
    lines: tuple[tuple[Domain, tuple[Domain, ...]], ...] = ()

    @property
    def pieces(self) -> tuple[Domain, ...]:
        """All, the core first."""
        return (self.core, *self.tails, *self.rests)

    def cover(self) -> Cover:
        """Whether the pieces are disjoint and fill the domain, by isl for all parameters.

        The pieces of a box are products: tiles of the axes before, one part of an axis, all of the axes behind. They
        cover the box exactly if the parts of every axis cover that axis exactly, which is asked instead.
        """
        if not self.lines:
            return exact_cover(self.pieces, self.domain)
        covers = (exact_cover(parts, line) for line, parts in self.lines)
        return next((c for c in covers if not c.is_exact), Cover(None, None, None))


@dataclass(frozen=True)
class Bands:
    """``full``: tiles inside the condition; ``diagonal``: the condition's part of tiles it crosses; ``edge``: its part
    of tiles that leave the domain."""

    full: Domain
    diagonal: Domain
    edge: Domain


@dataclass(frozen=True)
class Cover:
    """Whether pieces are disjoint and fill a domain; ``overlap`` and ``gap`` are coordinates (with parameters) where
    they do not."""

    overlap: str | None
    gap: str | None
    outside: str | None

    @property
    def is_exact(self) -> bool:
        """Every coordinate lies in exactly one piece, and no piece leaves the domain."""
        return self.overlap is None and self.gap is None and self.outside is None


def exact_cover(pieces: Sequence[Domain], domain: Domain) -> Cover:
    """Decided by isl for all parameters; a failure comes with a witness."""
    total = isl.Set.empty(domain.set.get_space())
    overlap: str | None = None
    for piece in pieces:
        shared = total.intersect(piece.set)
        if overlap is None and not shared.is_empty():
            overlap = _witness(shared)
        total = total.union(piece.set)
    gap, outside = domain.set.subtract(total), total.subtract(domain.set)
    return Cover(
        overlap,
        None if gap.is_empty() else _witness(gap),
        None if outside.is_empty() else _witness(outside),
    )


def _witness(found: isl.Set) -> str:
    return str(found.sample_point()).replace("{ ", "").replace(" }", "")


def set_of(dims: Sequence[str]) -> frozenset[str]:
    """Names as a set."""
    return frozenset(dims)


def _symbols(values: Sequence[Expr]) -> frozenset[str]:
    return frozenset(s for v in values for s in v.symbols)


def _distinct(dims: Sequence[str]) -> tuple[str, ...]:
    if len(set_of(dims)) != len(dims):
        fail(
            "LAY002",
            title="a dimension occurs twice",
            found=str(tuple(dims)),
            required="distinct names",
            help="rename one of the dimensions",
        )
    return tuple(dims)


def _box(dims: tuple[str, ...], bounds: Bounds, facts: Sequence[Expr] = ()) -> Domain:
    limits = [c for d, (a, b) in zip(dims, bounds, strict=True) for c in (a <= sym(d), sym(d) < b)]
    return Domain(dims, all_of([*limits, *facts]), bounds)


def _whole(start: Expr, stop: Expr, tile: int, origin: Expr) -> tuple[Expr, Expr]:
    """First and last tile borders between ``start`` and ``stop``."""
    if tile == 1:
        return start, stop
    return ceildiv(start - origin, tile) * tile + origin, (stop - origin) // tile * tile + origin


def _cut_box(
    box: Domain, bounds: Bounds, sizes: Sequence[int], vectors: Sequence[int], start: Sequence[Expr]
) -> CoreTails:
    """An axis at a time: what lies beside the tiles of axis d is cut off for the tiles of the axes before and all of
    the axes behind."""
    # a box whose start is beyond its stop is empty, and so are its pieces
    facts = [a <= b for a, b in bounds]
    tails: list[Domain] = []
    rests: list[Domain] = []
    lines: list[tuple[Domain, tuple[Domain, ...]]] = []
    left = list(bounds)
    for d, ((a, b), t, v, o) in enumerate(zip(bounds, sizes, vectors, start, strict=True)):
        core = _whole(a, b, t, o)
        parts = [core]
        for low, high in _beside((a, b), core):
            inner = _whole(low, high, v, o)
            for target, piece in ((tails, inner), *((rests, p) for p in _beside((low, high), inner))):
                if piece[0] != piece[1]:
                    cut = [*left]
                    cut[d] = piece
                    target.append(_box(box.dims, tuple(cut), facts))
                    parts.append(piece)
        name = (box.dims[d],)
        lines.append((_box(name, ((a, b),)), tuple(_box(name, (part,), [facts[d]]) for part in parts)))
        left[d] = core
    return CoreTails(box, _box(box.dims, tuple(left), facts), tuple(tails), tuple(rests), tuple(lines))


def _beside(whole: tuple[Expr, Expr], core: tuple[Expr, Expr]) -> list[tuple[Expr, Expr]]:
    """What lies before and behind ``core``; where it is empty (start beyond stop) all lies before."""
    (a, b), (first, last) = whole, core
    sides: list[tuple[Expr, Expr]] = []
    middle = a
    if first != a:
        middle = minimum(first, b)
        sides.append((a, middle))
        last = maximum(last, middle)
    if last != b:
        sides.append((last, b))
    return sides
