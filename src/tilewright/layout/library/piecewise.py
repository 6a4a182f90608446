"""Piecewise layouts: disjoint Presburger domains with one quasi-affine map each.

The general form of every layout whose formula changes with the place: interior and edge tiles, groups, diagonals, and
an affine layout on any Presburger domain (one piece). isl is the semantics; what it decides holds for all parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr, ExprLike, all_of, expr, sym
from tilewright.diag import fail
from tilewright.layout.library.affine import AffineLayout
from tilewright.layout.library.domain import Domain, set_of
from tilewright.layout.library.presburger import condition_text, names, value_text


@dataclass(frozen=True)
class Piece:
    """On ``domain`` the outputs are ``values``, expressions in its dimensions and in parameters."""

    domain: Domain
    values: tuple[Expr, ...]

    @cached_property
    def map(self) -> isl.Map:
        """The isl map of this piece."""
        params = sorted({s for v in self.values for s in v.symbols} - set_of(self.domain.dims))
        outs = names(map(value_text, self.values))
        text = f"{names(params)} -> {{ {names(self.domain.dims)} -> {outs} }}"
        return isl.Map(text).intersect_domain(self.domain.set)


@dataclass(frozen=True)
class Conflict:
    """A point, as isl prints it, at which a statement fails."""

    point: str


@dataclass(frozen=True)
class PiecewiseLayout:
    """Pieces over the same dimensions, into ``outs``. LAY002 for other ranks, LAY021 for an empty piece, LAY024 where
    two pieces overlap."""

    dims: tuple[str, ...]
    outs: tuple[str, ...]
    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        if not self.pieces:
            fail("LAY021", found="no pieces", required="at least one piece", help="give at least one piece")
        for piece in self.pieces:
            if piece.domain.dims != self.dims or len(piece.values) != len(self.outs):
                fail(
                    "LAY002",
                    title="a piece has other dimensions",
                    found=f"{piece.domain.dims} -> {len(piece.values)} values",
                    required=f"{self.dims} -> {self.outs}",
                    help="write every piece over the same dimensions and outputs",
                )
            if piece.domain.is_empty:
                fail(
                    "LAY021",
                    found=str(piece.domain),
                    required="a coordinate in every piece",
                    help="drop the piece, or widen its condition",
                )
        for i, piece in enumerate(self.pieces):
            for other in self.pieces[:i]:
                if not piece.domain.disjoint(other.domain):
                    shared = piece.domain.set.intersect(other.domain.set).sample_point()
                    fail(
                        "LAY024",
                        title="two pieces overlap",
                        found=f"both hold {shared}",
                        required="disjoint domains",
                        help="subtract one domain from the other (Domain.minus)",
                    )

    @staticmethod
    def of(
        dims: Sequence[str], outs: Sequence[str], pieces: Sequence[tuple[Expr, Sequence[ExprLike]]]
    ) -> PiecewiseLayout:
        """From (condition, values) pairs (LAY023 where they are not Presburger)."""
        return PiecewiseLayout(
            tuple(dims),
            tuple(outs),
            tuple(Piece(Domain.of(dims, c), tuple(map(expr, values))) for c, values in pieces),
        )

    @staticmethod
    def from_affine(layout: AffineLayout, within: Domain | None = None) -> PiecewiseLayout:
        """An affine layout, on its box or on the part of it in ``within``."""
        box = Domain.box(dict(zip(layout.in_names, layout.shape, strict=True)))
        domain = box if within is None else box.intersect(within)
        values = tuple(map(expr, layout(*(sym(n) for n in layout.in_names))))
        return PiecewiseLayout(layout.in_names, layout.out_names, (Piece(domain, values),))

    @cached_property
    def map(self) -> isl.Map:
        """The isl map of all pieces."""
        total = self.pieces[0].map
        for piece in self.pieces[1:]:
            total = total.union(piece.map)
        return total

    @cached_property
    def domain(self) -> Domain:
        """All coordinates."""
        return self.pieces[0].domain.union(*(p.domain for p in self.pieces[1:]))

    def __call__(self, *coordinate: int, **parameters: int) -> tuple[int, ...]:
        """The image of a coordinate (LAY002, LAY005 outside all pieces)."""
        if len(coordinate) != len(self.dims):
            fail(
                "LAY002",
                title="one number per dimension",
                found=str(coordinate),
                required=str(self.dims),
                help="give one number for every dimension",
            )
        values = dict(zip(self.dims, coordinate, strict=True)) | parameters
        where = all_of([sym(d).eq(x) for d, x in sorted(values.items())])
        for piece in self.pieces:
            if self._holds(piece.domain, values, where):
                return tuple(int(v.evaluate(values)) for v in piece.values)
        return fail(
            "LAY005", found=str(values), required=str(self.domain), help="ask inside the domain, or add a piece there"
        )

    def _holds(self, domain: Domain, values: Mapping[str, int], where: Expr) -> bool:
        if domain.computed is None:
            return bool(domain.constraint.evaluate(values))
        params = names(sorted(set(values) - set_of(self.dims)))
        point = isl.Set(f"{params} -> {{ {names(self.dims)} : {condition_text(where)} }}")
        return not point.intersect(domain.set).is_empty()

    # -- algebra --------------------------------------------------------------------------------------------------
    def restrict(self, domain: Domain) -> PiecewiseLayout:
        """The same map on a subset of its coordinates (LAY021 if none are left)."""
        kept = tuple(Piece(p.domain.intersect(domain), p.values) for p in self.pieces)
        return PiecewiseLayout(self.dims, self.outs, tuple(p for p in kept if not p.domain.is_empty))

    def compose(self, outer: PiecewiseLayout) -> PiecewiseLayout:
        """``x -> outer(self(x))`` on the coordinates that ``outer`` holds; ``outer``'s dimensions are this one's
        outputs, in order (LAY002)."""
        if len(outer.dims) != len(self.outs):
            fail(
                "LAY002",
                title="ranks differ in compose",
                found=str(self.outs),
                required=str(outer.dims),
                help="let the outer layout take as many coordinates as the inner one gives",
            )
        pieces: list[Piece] = []
        for mine in self.pieces:
            put = dict(zip(outer.dims, mine.values, strict=True))
            for theirs in outer.pieces:
                back = mine.map.intersect_range(theirs.domain.set).domain()
                if not back.is_empty():
                    domain = Domain(self.dims, computed=back.coalesce())
                    pieces.append(Piece(domain, tuple(v.substitute(put) for v in theirs.values)))
        return PiecewiseLayout(self.dims, outer.outs, tuple(pieces))

    # -- questions ------------------------------------------------------------------------------------------------
    @property
    def is_injective(self) -> bool:
        """No two coordinates share an image."""
        return self.map.is_injective()

    def image(self, names_: Sequence[str] | None = None) -> Domain:
        """The values taken, as a domain over the outputs."""
        dims = self.outs if names_ is None else tuple(names_)
        taken = self.map.range()
        for i, name in enumerate(dims):
            taken = taken.set_dim_name(isl.dim_type.set, i, name)
        return Domain(dims, computed=taken.coalesce())

    def covers(self, domain: Domain) -> Conflict | None:
        """None if every value of ``domain`` (over the outputs) is taken; else one that is not."""
        missing = domain.set.subtract(self.image(domain.dims).set)
        return None if missing.is_empty() else Conflict(str(missing.sample_point()))

    def subset(self, other: PiecewiseLayout) -> Conflict | None:
        """None if ``other`` holds every coordinate of this layout with the same values; else where not (LAY002 for
        other ranks)."""
        if (len(self.dims), len(self.outs)) != (len(other.dims), len(other.outs)):
            fail(
                "LAY002",
                title="piecewise layouts of other ranks",
                found=f"{len(other.dims)} dimensions to {len(other.outs)} outputs",
                required=f"{len(self.dims)} to {len(self.outs)}",
                help="compare by kinds.equal or kinds.subset, which go by indices",
            )
        mine = self.map.subtract(other.map)
        return None if mine.is_empty() else Conflict(str(mine.sample()))

    def __str__(self) -> str:
        return "; ".join(f"{p.domain}: ({', '.join(map(str, p.values))})" for p in self.pieces)
