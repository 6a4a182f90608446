"""Integers that programs load and bind to symbols: the tensor element of each, and how it was clipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import product

from xdsl.ir import SSAValue

from tilewright.base.expr import Const, Expr, Max, Sum, Sym, maximum, minimum
from tilewright.compiler.proofs.tile_numbers import extents_around, is_of_group
from tilewright.diag import fail
from tilewright.lang.axes import Span
from tilewright.lang.enums import BinaryFn
from tilewright.protocol.access import RaggedTiles
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations, program_index
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class Ascending:
    """The promise of offsets: they begin with 0, ascend, and do not exceed ``most``."""

    tensor: str
    extent: Expr
    most: Expr

    def __str__(self) -> str:
        return f"offsets({self.tensor})"


def tiles_of(kernel: tile.Kernel) -> dict[str, RaggedTiles]:
    """The integers at which tiles of ragged grids and groups of programs begin, read from the ops that compute them."""
    binds = [op for op in operations(kernel) if isinstance(op, tile.Bind)]
    loads = {op.symbol.data: load for op in binds if (load := _offset(op, kernel)) is not None}
    computed = {op.symbol.data: form for op in binds if (form := _computed(op)) is not None}
    groups = {op.symbol.data: op for op in binds if op.most is not None}
    order = {symbol: place for place, symbol in enumerate(loads)}
    programs = {program_index(i) for i in range(len(kernel.grid))}
    extents = extents_around(kernel)
    found: dict[str, RaggedTiles] = {}
    for (low, (offsets, group)), (high, (same, behind)) in product(loads.items(), reversed(loads.items())):
        if same != offsets or behind != group + 1 or not isinstance(group, Sym):
            continue
        if group.name in groups:
            known = {low, group.name}
            numbers = {n for n, op in groups.items() if _of_group(op, groups[group.name], known, offsets)}
            found |= _tiles(computed, offsets, Sym(low), known | numbers | extents, Sym(high), rest=False)
        elif group.name in programs and (low not in found or order[low] < order[high]):
            found[low] = RaggedTiles(f"{offsets}", group.name, high, None, False)
    for last, (offsets, place) in loads.items():
        if place == offsets.extent - 1:
            found |= _tiles(computed, offsets, Sym(last), {last} | extents, offsets.most, rest=True)
    return found


def _tiles(
    computed: Mapping[str, tuple[Expr, Expr]],
    offsets: Ascending,
    low: Sym,
    known: AbstractSet[str],
    end: Expr,
    *,
    rest: bool,
) -> dict[str, RaggedTiles]:
    """Of what was computed, the begins of tiles of the rows from ``low`` to ``end``, each clipped, as its end is; the
    number of the first tile is a function of what is ``known``, the same in all programs that have one."""
    program = Sym(program_index(0))
    found: dict[str, RaggedTiles] = {}
    for begin, (form, most) in computed.items():
        size, number = _numbered(form, low) or (0, program)
        if not size or most != offsets.most or not (program - number).symbols <= known:
            continue
        closed = (end * minimum(maximum(number + 1, 0), 1), most)
        stop = next((name for name, other in computed.items() if other == closed), None)
        if stop is not None:
            found[begin] = RaggedTiles(f"{offsets}, {size}", program.name, stop, size, rest)
    return found


def _numbered(form: Expr, low: Sym) -> tuple[int, Expr] | None:
    """``size`` and ``number`` of ``low + max(number, 0) * size``."""
    if not isinstance(form, Sum) or form.offset or len(form.terms) != 2 or (low, 1) not in form.terms:
        return None
    ((node, size),) = (term for term in form.terms if term[0] != low)
    if not isinstance(node, Max) or size <= 0:
        return None
    numbers = [x for x in node.args if x != Const(0)]
    return (size, numbers[0]) if len(node.args) == 2 and len(numbers) == 1 else None


def _of_group(number: tile.Bind, group: tile.Bind, known: AbstractSet[str], offsets: Ascending) -> bool:
    """Whether a number, clipped, is a function of a group, clipped to those there are."""
    first, second = _clipped(group.value), _clipped(number.value)
    groups = offsets.extent - 1
    if first is None or second is None or first[1] != groups - 1:
        return False
    return is_of_group(_widened(second[0]), _widened(first[0]), known, offsets.tensor, groups)


def offsets_of(kernel: tile.Kernel) -> tuple[Ascending, ...]:
    """The offsets that a kernel's ragged grid and its loaded bounds rely on, directly or through a minimum or
    maximum."""
    binds = (op for op in operations(kernel) if isinstance(op, tile.Bind))
    clipped = (found for op in binds if (found := _clipped(op.value)) is not None)
    elements = (_element(value, most, kernel) for x, most in clipped for value in _chosen(x))
    return tuple(dict.fromkeys(found[0] for found in elements if found is not None))


def _chosen(value: SSAValue) -> Iterator[SSAValue]:
    """The operands of a minimum or maximum; the value itself for others."""
    op = _widened(value).owner
    if isinstance(op, tile.Binary) and op.fn.data in (BinaryFn.MIN, BinaryFn.MAX):
        yield from (*_chosen(op.a), *_chosen(op.b))
        return
    yield value


def _computed(op: tile.Bind) -> tuple[Expr, Expr] | None:
    """An expression, and the bounds to which it was clipped."""
    clipped = _clipped(op.value)
    scalar = None if clipped is None else _widened(clipped[0]).owner
    return (scalar.expr.expr, clipped[1]) if clipped is not None and isinstance(scalar, tile.ScalarExpr) else None


def _offset(op: tile.Bind, kernel: tile.Kernel) -> tuple[Ascending, Expr] | None:
    """The offsets of which a value is a loaded and clipped element, and its index."""
    clipped = _clipped(op.value)
    return None if clipped is None else _element(*clipped, kernel)


def _element(value: SSAValue, most: Expr, kernel: tile.Kernel) -> tuple[Ascending, Expr] | None:
    """The offsets of which a value is an element, and its index; they divide ``most`` rows."""
    load = _widened(value).owner
    if not isinstance(load, tile.Load) or len(load.coords) != 1:
        return None
    kind = tile.tensor_type(load.tensor)
    (place,), (extent,) = (c.data for c in load.coords), (d.expr for d in kind.dims)
    name = kind.tensor_name.data
    if isinstance(place, Span) or name not in {n.data for n in kernel.ascending or ()}:
        return None
    return Ascending(name, extent, most), place


def clips_of(kernel: tile.Kernel) -> dict[str, Expr]:
    """What each loaded integer that becomes a symbol is clipped to, from 0 on, by the ops before it."""
    binds = (op for op in operations(kernel) if isinstance(op, tile.Bind))
    found = ((op.symbol.data, _clipped(op.value)) for op in binds)
    return {symbol: clipped[1] for symbol, clipped in found if clipped is not None}


def require_clipped(kernel: tile.Kernel, lowered: t.Kernel) -> None:
    """CRT009 for an assumed bound on a loaded integer that the ops before it do not enforce."""
    found = {op.symbol.data: op for op in operations(kernel) if isinstance(op, tile.Bind)}
    for op in operations(lowered):
        if not isinstance(op, t.Bind) or op.most is None:
            continue
        clipped = _clipped(found[op.symbol.data].value) if op.symbol.data in found else None
        if clipped is None or clipped[1] != op.most.expr:
            where = tile.begins_at(kernel)
            fail("CRT009", where=where, found=f"{op.symbol.data} up to {op.most.expr}", required="clipped to that")


def _clipped(value: SSAValue) -> tuple[SSAValue, Expr] | None:
    """The value that was clipped to ``0 .. most``, and ``most``."""
    upper = _operand(value, BinaryFn.MAX)
    if upper is None or not _is_zero(upper[1]):
        return None
    lower = _operand(upper[0], BinaryFn.MIN)
    if lower is None:
        return None
    most = _integer(lower[1])
    return (lower[0], most) if most is not None else None


def _integer(value: SSAValue) -> Expr | None:
    """A scalar argument of the launch, or a constant."""
    op = _widened(value).owner
    if isinstance(op, tile.Constant) and isinstance(op.value.data, int):
        return Const(op.value.data)
    return op.expr.expr if isinstance(op, tile.ScalarExpr) else None


def _operand(value: SSAValue, fn: BinaryFn) -> tuple[SSAValue, SSAValue] | None:
    op = value.owner
    return (op.a, op.b) if isinstance(op, tile.Binary) and op.fn.data is fn else None


def _is_zero(value: SSAValue) -> bool:
    op = _widened(value).owner
    return isinstance(op, tile.Constant) and op.value.data == 0


def _widened(value: SSAValue) -> SSAValue:
    """The operand of a widening integer cast."""
    op = value.owner
    if not isinstance(op, tile.Cast) or not tile.tile_type(op.x).element.is_int:
        return value
    return _widened(op.x) if op.dtype.holds(tile.tile_type(op.x).element) else value
