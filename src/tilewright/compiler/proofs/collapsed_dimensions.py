"""Certifies kernels that take dense matrices for one row each.

``f`` applied element by element to tensors of one shape, whose rows follow each other without a gap, is ``f`` applied
to the same bytes as one row. A launch then passes 1 and ``M * N`` for the extents ``M`` and ``N``, and a kernel that is
right for all extents needs no edge but that of the last row:

    pointwise   every access is at the program's own place in all tensors, which have the same extents; values come of
                loaded ones, constants and scalars alone, and no place, extent or program is part of them
    dense       dispatch asks that ``x.stride0 == N`` of every tensor
    extents     1 and the product of both, of which dispatch asks that an extent may be as great
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, Protocol

from xdsl.ir import Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT, Obligation
from tilewright.base.expr import Const, Expr, Sym, conjuncts
from tilewright.diag import fail
from tilewright.lang.axes import Span
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_in
from tilewright.tile.queries import coords_of, is_arithmetic, spans_of

RANK = 2
COLLAPSED = "collapsed"


class NotPointwiseError(Exception):
    """Why a program is not pointwise."""


class CollapsedKernel(Protocol):
    """A launched kernel, with the extents that a launch passes for flattened matrices."""

    @property
    def tile(self) -> tile.Kernel: ...
    @property
    def collapsed(self) -> Mapping[str, Expr]: ...


def certify_collapsed(kernel: CollapsedKernel, predicate: Expr) -> tuple[Obligation, ...]:
    """The obligation of a kernel with flattened matrices where ``predicate`` holds, CRT003 where flattening may be
    wrong; none for other kernels."""
    if not kernel.collapsed:
        return ()
    try:
        rows, columns = matrix_extents(kernel.tile)
    except NotPointwiseError as why:
        _refuse(str(why))
    if dict(kernel.collapsed) != row_extents(rows, columns):
        _refuse(", ".join(f"{name} is {value}" for name, value in kernel.collapsed.items()))
    asked = set(conjuncts(predicate))
    for name in tensors_of(kernel.tile):
        if dense(name, columns) not in asked:
            _refuse(f"{name} may have gaps between its rows")
    if fits_a_row(rows, columns) not in asked:
        _refuse("a row may have more elements than an extent may be")
    return (Obligation(COLLAPSED, "identity", f"pointwise, {rows * columns} elements without a gap"),)


def row_extents(rows: Sym, columns: Sym) -> dict[str, Expr]:
    """The extents that a launch passes for matrices flattened to one row."""
    return {rows.name: Const(1), columns.name: rows * columns}


def fits_a_row(rows: Sym, columns: Sym) -> Expr:
    """The number of elements of a matrix is a valid extent."""
    return rows * columns <= MAX_EXTENT


def dense(name: str, columns: Expr) -> Expr:
    """The rows of a matrix are contiguous."""
    return Sym(f"{name}.stride0").eq(columns)


def tensors_of(kernel: tile.Kernel) -> dict[str, tile.TensorType]:
    """The kernel's tensors by name."""
    pairs = zip(kernel.arg_names, kernel.body.block.args, strict=True)
    return {name.data: arg.type for name, arg in pairs if isinstance(arg.type, tile.TensorType)}


def matrix_extents(kernel: tile.Kernel) -> tuple[Sym, Sym]:
    """The extents of the matrices of a pointwise program; ``NotPointwiseError`` for another one."""
    shapes = {tuple(dim.expr for dim in kind.dims) for kind in tensors_of(kernel).values()}
    if len(shapes) != 1:
        raise NotPointwiseError("tensors of several shapes")
    (shape,) = shapes
    match shape:
        case (Sym() as rows, Sym() as columns) if rows != columns:
            pass
        case _:
            raise NotPointwiseError(f"extents {', '.join(map(str, shape))}")
    if (
        kernel.gate is not None
        or kernel.bounds.data
        or any(not x.expr.symbols.isdisjoint(_own(rows, columns)) for x in kernel.requires)
    ):
        raise NotPointwiseError("the program asks something of its extents")
    _Pointwise(kernel, (rows, columns)).check()
    return rows, columns


def _own(*extents: Sym) -> set[str]:
    return {extent.name for extent in extents}


class _Pointwise:
    """Classifies the values of a program: uniform, or computed from elements at the program's own coordinates."""

    def __init__(self, kernel: tile.Kernel, shape: tuple[Sym, Sym]):
        self.kernel = kernel
        self.shape = shape
        self.scalars = {
            name.data
            for name, arg in zip(kernel.arg_names, kernel.body.block.args, strict=True)
            if not isinstance(arg.type, tile.TensorType)
        }
        self.uniform: set[SSAValue] = {a for a in kernel.body.block.args if not isinstance(a.type, tile.TensorType)}
        self.local: set[SSAValue] = set()
        self.place: tuple[Span, Span] | None = None

    def check(self) -> None:
        """``NotPointwiseError`` for an op whose result may depend on its coordinates."""
        for op in ops_in(self.kernel.body.block):
            match op:
                case tile.Load():
                    self.at(op, op.result)
                    self.local.add(op.result)
                case tile.Store() if op.value in self.local | self.uniform:
                    self.at(op, op.value)
                case tile.Constant():
                    self.uniform.add(op.result)
                case tile.ScalarExpr() if op.expr.expr.symbols <= self.scalars:
                    self.uniform.add(op.result)
                case tile.Expand() | tile.Broadcast() if op.x in self.uniform:
                    self.uniform.add(op.result)
                case _ if is_arithmetic(op):
                    self.computed(op)
                case _:
                    raise NotPointwiseError(f"{op.name} is not element by element")
        if self.place is None:
            raise NotPointwiseError("nothing is accessed")

    def at(self, op: tile.Load | tile.Store, value: SSAValue) -> None:
        """Requires that every access has the same coordinates, whose axes are those of the tensor in order, each to its
        end."""
        rows, columns = coords_of(op)
        if not isinstance(rows, Span) or not isinstance(columns, Span) or spans_of(value) != (rows, columns):
            raise NotPointwiseError(f"{op.name} moves no box of both axes")
        if (rows.stop, columns.stop) != self.shape or (self.place or (rows, columns)) != (rows, columns):
            raise NotPointwiseError(f"{op.name} is at another place")
        self.place = rows, columns

    def computed(self, op: Operation) -> None:
        """A computed value is uniform if all operands are."""
        if not set(op.operands) <= self.local | self.uniform:
            raise NotPointwiseError(f"{op.name} of something else")
        kind = self.uniform if set(op.operands) <= self.uniform else self.local
        kind |= set(op.results)


def _refuse(found: str) -> NoReturn:
    fail("CRT003", found=f"{COLLAPSED}: {found}", required="a pointwise program over dense matrices")
