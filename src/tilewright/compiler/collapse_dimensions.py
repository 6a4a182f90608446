"""Flattens pointwise programs over dense matrices to a single row.

Rows of 4099 bf16 elements start at multiples of 2 bytes only, so that threads move their elements one by one; all rows
together are one aligned vector. The flattened kernel is launched with 1 and ``M * N`` for ``M`` and ``N``
(``proofs.collapsed_dimensions``). Dispatch takes it where every matrix is dense and 16-byte aligned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.expr import Expr, Sym, all_of
from tilewright.compiler.proofs.collapsed_dimensions import (
    NotPointwiseError,
    dense,
    fits_a_row,
    matrix_extents,
    row_extents,
)
from tilewright.compiler.requests import Request, assumptions_of, tensors_of
from tilewright.compiler.staging import residual
from tilewright.schedule.extents import Structure, single_row
from tilewright.schedule.facts import CallFacts, contiguous
from tilewright.tile import dialect as tile


@dataclass(frozen=True)
class Collapse:
    """A flattened program: the tile extents ``choice`` for its autos, the ``extents`` that a launch passes for the
    tensors' dimensions, the ``facts`` that the kernel assumes, and the dispatch ``predicate``."""

    choice: Mapping[str, int]
    extents: Mapping[str, Expr]
    facts: CallFacts
    predicate: Expr


def collapse(request: Request, kernel: tile.Kernel, structure: Structure) -> Collapse | None:
    """How to flatten a program; None where it is not pointwise, its tensors are not row-major, or the tile extents are
    not the schedule's to choose."""
    try:
        rows, columns = matrix_extents(kernel)
    except NotPointwiseError:
        return None
    choice = single_row(structure, columns)
    names = list(tensors_of(kernel))
    if choice is None or any(request.facts.of(name).unit_axis != 1 for name in names):
        return None
    facts = CallFacts(tuple((name, contiguous(2)) for name in names), request.facts.index_bits)
    extents = row_extents(rows, columns)
    needs = residual(assumptions_of(kernel, facts), extents)
    addresses = (
        (Sym(f"{name}.address") % facts.of(name).align_bytes).eq(0)
        for name in names
        if request.facts.of(name).align_bytes < facts.of(name).align_bytes
    )
    predicate = all_of([*(dense(name, columns) for name in names), *addresses, needs, fits_a_row(rows, columns)])
    return Collapse(choice, extents, facts, predicate)
