"""Proof that a view of a tensor addresses the elements that were asked for.

The byte addresses of a tile element, in the view and in the tensor, are compared as polynomials over the symbols. The
construction of the view is not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.expr import Const, Expr, expr, own, sym
from tilewright.base.verdict import Discharged, Proof, Proved, Refuted, Unknown
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.tma import TileAccess


@dataclass(frozen=True)
class PlanMismatch:
    """The address polynomials that differ: of the plan or view, and of the request."""

    planned: str
    asked: str


Folds = tuple[tuple[int, ...], ...]


def prove_view(
    view: TileAccess, indices: Sequence[Expr], access: TileAccess, facts: Facts, folds: Folds
) -> Proof[PlanMismatch]:
    """Prove that ``view``, from ``indices`` on, reads the elements of ``access``, or say where it does not."""
    if len({axis for group in folds for axis in group}) < sum(map(len, folds)):
        return Unknown("addresses", "an axis of the view is split", "compare the addresses at every index")
    steps = [facts.apply(expr(stride)) * access.dtype.bytes for stride in view.strides]
    dimensions = tuple(zip(indices, steps, folds, strict=True))
    wrong = same_addresses(facts.apply(view.address), dimensions, access, facts)
    return Proved((Discharged("addresses", "polynomial identity"),)) if wrong is None else wrong


def same_addresses(
    first: Expr, dimensions: Sequence[tuple[Expr, Expr, tuple[int, ...]]], access: TileAccess, facts: Facts
) -> Refuted[PlanMismatch] | None:
    """Compare ``first`` and the dimensions, each a coordinate, a step in bytes and the tensor axes folded into it, with
    the addresses of ``access``."""
    size = access.dtype.bytes
    planned = first
    for coordinate, step, group in dimensions:
        inside: Expr = Const(0)
        for axis in group:
            inside = inside * facts.apply(expr(access.shape[axis])) + _offset(access, axis)
        planned = planned + (coordinate + inside) * step
    asked: Expr = facts.apply(access.address)
    for axis, (stride, tile) in enumerate(zip(access.strides, access.tile, strict=True)):
        extent = facts.apply(expr(access.shape[axis])).constant
        index: Expr = Const(0) if tile is None and extent == 1 else index_symbol(axis)
        asked = asked + (index + _offset(access, axis)) * facts.apply(expr(stride)) * size
    if planned == asked:
        return None
    return Refuted("addresses", PlanMismatch(str(planned), str(asked)))


def _offset(access: TileAccess, axis: int) -> Expr:
    """The element's offset inside the tile along ``axis``: a symbol, 0 where the tile has one element."""
    return Const(0) if access.tile[axis] in (None, 1) else sym(own(f"x{axis}"))
