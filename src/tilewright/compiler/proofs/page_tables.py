"""Coordinates of tensor copies that the producer loads: which integer of which table each is, and that it may be read.

A gather of a tile of the program names its pages through an index, of which every element is

    select(inside, table[.., x // page, ..], -1)        x: the position along one axis of the tile

where ``inside`` says just that the table's coordinates lie in the table. The lowered kernel loads one entry for each
box, under a guard that says the same and that x, the box's first row, lies in the tile's domain. So it reads no entry
that the program does not read; where the guard is false the box lies outside of the tensor, and brings zeros, as the
gather does where its index is -1 or leads outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.base import verdict
from tilewright.base.expr import TRUE, Const, Expr, FloorDiv, Mod, Sym, conjuncts, divisor, expr
from tilewright.base.verdict import Proof, Proved, Unknown
from tilewright.lang.axes import Coord, Span, axis_symbol
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations, ops_before, program_index
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

TABLES = "tables"
METHOD = "guards"
_ROW = axis_symbol(0)


@dataclass(frozen=True)
class Pages:
    """How the rows of a gathered tile lie in pages: row x of ``span``, axis ``axis`` of the tile, is element x % page
    along dimension ``slot`` of the page whose number ``table`` holds at ``entry`` where ``inside`` holds; the number is
    the index along dimension ``number``. ``dims`` are the dimensions of the tile's axes."""

    gather: tile.Gather
    table: str
    entry: tuple[Expr, ...]
    inside: tuple[Expr, ...]
    axis: int
    span: Span
    page: int
    number: int
    slot: int
    dims: tuple[int, ...]

    @property
    def coords(self) -> tuple[Coord, ...]:
        """The gather's coordinates, with a range for each that follows an axis."""
        found: list[Coord] = [c.expr for c in self.gather.coords]
        for dim, kind in zip(self.dims, tile.tile_type(self.gather.result).axes_tuple, strict=True):
            if isinstance(kind, Span):
                found[dim] = kind
        return tuple(found)

    def entry_of(self, row: Expr) -> tuple[Expr, ...]:
        """The coordinates in the table of a row's page."""
        return tuple(c.substitute({_ROW: row}) for c in self.entry)

    def may_read(self, row: Expr, stop: Expr) -> frozenset[Expr]:
        """The condition under which the program reads the entry of a row, for a domain that ends at ``stop``."""
        return frozenset((row < stop, *(test.substitute({_ROW: row}) for test in self.inside))) - {TRUE}


def pages_of(gather: tile.Gather, kernel: tile.Kernel) -> Pages | None:
    """How a gather's rows lie in pages; None where it is another gather."""
    axes, coords = tile.tile_type(gather.result).axes_tuple, [c.expr for c in gather.coords]
    symbols = [axis_symbol(d) for d in range(len(axes))]
    if len(gather.indices) != 1 or len(axes) != 2:
        return None
    (index,) = gather.indices
    along = [d for d, kind in enumerate(tile.tile_type(index).axes_tuple) if isinstance(kind, Span)]
    number = [d for d, c in enumerate(coords) if c == Sym(tile.index_symbol(0))]
    slots = [d for d, c in enumerate(coords) if isinstance(c, Mod) and c.numerator.text in symbols]
    if len(along) != 1 or len(number) != 1 or len(slots) != 1:
        return None
    (axis,), (slot,) = along, slots
    span, across, place = axes[axis], [d for d, c in enumerate(coords) if c == Sym(symbols[1 - axis])], coords[slot]
    fixed = [c for d, c in enumerate(coords) if d not in (*number, slot, *across)]
    named = {*symbols, tile.index_symbol(0)}
    if len(across) != 1 or not isinstance(span, Span) or any(not named.isdisjoint(c.symbols) for c in fixed):
        return None
    page = place.denominator.constant if isinstance(place, Mod) and place.numerator == Sym(symbols[axis]) else None
    table = None if page is None or page < 1 else _table(index)
    if page is None or table is None:
        return None
    load, condition = table
    entry, tests = tuple(c.expr for c in load.coords), _tests(load, kernel)
    by_page = FloorDiv(Sym(_ROW), Const(int(page)))
    if any(_ROW in c.symbols and c != by_page for c in entry) or by_page not in entry:
        return None
    if (frozenset[Expr]() if condition is None else _conditions(condition)) != frozenset(tests):
        return None
    dims = (slot, across[0]) if axis == 0 else (across[0], slot)
    name = tile.tensor_type(load.tensor).tensor_name.data
    return Pages(gather, name, entry, tests, axis, span, int(page), number[0], slot, dims)


def _tests(load: tile.Gather, kernel: tile.Kernel) -> tuple[Expr, ...]:
    """When the coordinates of an entry lie in the table; of programs' coordinates, and of integers that were clipped
    to its extent, it is known."""
    below = {program_index(i): g.expr for i, g in enumerate(kernel.grid)}
    binds = (op for op in operations(kernel) if isinstance(op, tile.Bind) and op.most is not None)
    below |= {op.symbol.data: op.most.expr + 1 for op in binds if op.most is not None}
    found: list[Expr] = []
    for coord, dim in zip((c.expr for c in load.coords), tile.tensor_type(load.tensor).dims.data, strict=True):
        if not (isinstance(coord, Sym) and below.get(coord.name) == dim.expr):
            found += [Const(0) <= coord, coord < dim.expr]
    return tuple(found)


# -- the index of a gather ---------------------------------------------------------------------------------------------
def _table(value: SSAValue) -> tuple[tile.Gather, SSAValue | None] | None:
    """The gather along one axis that an index is, where a condition holds; elsewhere it is negative."""
    op = value.owner
    match op:
        case tile.Expand():
            return _table(op.x)
        case tile.Cast() if _widens(op):
            return _table(op.x)
        case tile.Select():
            inner, below = _table(op.a), _integer(op.b)
            return (inner[0], op.cond) if inner and inner[1] is None and below is not None and below < 0 else None
        case tile.Gather() if tile.tile_type(op.result).rank == 1 and not op.indices:
            return op, None
        case _:
            return None


def _widens(op: tile.Cast) -> bool:
    source = tile.tile_type(op.x).element
    return source.is_int and op.dtype.is_int and op.dtype.holds(source)


def _conditions(value: SSAValue) -> frozenset[Expr] | None:
    """The comparisons of integers of which a tile of bools is the conjunction; None where it is another."""
    op = value.owner
    match op:
        case tile.Expand() | tile.Broadcast():
            return _conditions(op.x)
        case tile.Binary() if op.fn.data is BinaryFn.AND:
            sides = _conditions(op.a), _conditions(op.b)
            return None if sides[0] is None or sides[1] is None else sides[0] | sides[1]
        case tile.Compare() if op.fn.data in (CompareFn.LT, CompareFn.GE):
            left, right = _expression(op.a), _expression(op.b)
            if left is None or right is None:
                return None
            return frozenset(((left < right) if op.fn.data is CompareFn.LT else (right <= left),))
        case _:
            return None


def _expression(value: SSAValue) -> Expr | None:
    """The integers of a tile along one axis, over the position along it; they don't wrap: positions are coordinates,
    and quotients of them are smaller."""
    op = value.owner
    match op:
        case tile.Expand() | tile.Broadcast():
            return _expression(op.x)
        case tile.Cast() if _widens(op):
            return _expression(op.x)
        case tile.Index():
            return Sym(_ROW)
        case tile.ScalarExpr() if op.expr.expr.constant is not None or isinstance(op.expr.expr, Sym):
            return op.expr.expr
        case tile.Constant():
            number = _integer(value)
            return None if number is None else expr(number)
        case tile.Binary() if op.fn.data is BinaryFn.FLOORDIV:
            left, right = _expression(op.a), _expression(op.b)
            by = None if right is None or right.constant is None else int(right.constant)
            return left // by if left is not None and by is not None and by > 0 else None
        case _:
            return None


def _integer(value: SSAValue) -> int | None:
    op = value.owner
    if isinstance(op, tile.Expand | tile.Broadcast):
        return _integer(op.x)
    return op.value.data if isinstance(op, tile.Constant) and type(op.value.data) is int else None


# -- the lowered kernel ------------------------------------------------------------------------------------------------
def loads_of(lowered: t.Kernel) -> list[a.LoadCoordinate]:
    """The coordinates that a kernel loads."""
    return [op for op in operations(lowered) if isinstance(op, a.LoadCoordinate)]


def prove_tables(lowered: t.Kernel) -> Proof[str]:
    """Whether every coordinate is loaded from inside of its table, and is used by tensor copies alone."""
    loads, inside = loads_of(lowered), operations(lowered)
    walks = [op for op in inside if isinstance(op, t.Programs)]
    below = {name.data: n.expr for op in walks[:1] for name, n in zip(op.names, op.extents, strict=True)}
    below |= {op.symbol.data: op.most.expr + 1 for op in inside if isinstance(op, t.Bind) and op.most is not None}
    for op in loads:
        where = f"{op.symbol.data} at {op.loc.data if op.loc is not None else 'no line'}"
        kind, tests = tile.tensor_type(op.tensor), set(conjuncts(op.guard.expr))
        for coord, dim in zip((c.expr for c in op.coords), kind.dims.data, strict=True):
            known = isinstance(coord, Sym) and below.get(coord.name) == dim.expr
            if not known and not {Const(0) <= coord, coord < dim.expr} - {TRUE} <= tests:
                return Unknown(TABLES, f"{where}: {coord} of {kind.tensor_name.data}", "a guard by the table's extents")
    names = {op.symbol.data for op in loads}
    for op in inside:
        if isinstance(op, t.Let | a.Counter | t.For | t.Bind) and _names(op) in names:
            return Unknown(TABLES, f"{_names(op)} names two things", "a name for each integer")
    symbols = ", ".join(dict.fromkeys(tile.tensor_type(op.tensor).tensor_name.data for op in loads))
    return Proved((verdict.Discharged(TABLES, METHOD, symbols),) if loads else ())


def _names(op: t.Let | a.Counter | t.For | t.Bind) -> str:
    return op.counter.data if isinstance(op, t.For) else op.symbol.data


def row_of(copy: a.TmaLoad, pages: Pages, number: Expr, slot: Expr, rows: int, begin: Expr, stop: Expr) -> int | None:
    """Which row of the tile a box of ``rows`` rows begins with, whose page is ``number`` and which begins with element
    ``slot`` of it, in a step whose domain is from ``begin`` to ``stop``; None where it is no part of the tile."""
    load = next(_loaded(copy, number), None)
    if load is None or pages.page % rows or tile.tensor_type(load.tensor).tensor_name.data != pages.table:
        return None
    extent = tile.tensor_type(pages.gather.tensor).dims.data[pages.number].expr
    for first in range(0, pages.span.size, rows):
        row = begin + first
        if (
            divisor(row, {}) % rows == 0
            and slot == row % pages.page
            and tuple(c.expr for c in load.coords) == pages.entry_of(row)
            and frozenset(conjuncts(load.guard.expr)) == pages.may_read(row, stop)
            and load.extent.expr == extent
        ):
            return first
    return None


def _loaded(copy: Operation, number: Expr) -> Iterator[a.LoadCoordinate]:
    """The op before a copy that loads its page number, in a block around it."""
    for op in ops_before(copy):
        if isinstance(op, a.LoadCoordinate) and Sym(op.symbol.data) == number:
            yield op
