"""Scatters that rely on an index tensor's promise: which of its elements lead where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Const, Expr, FloorDiv, Mod, Sum, Sym
from tilewright.lang.axes import Span, axis_symbol
from tilewright.lang.enums import BinaryFn
from tilewright.lang.values import ON_INTEGERS
from tilewright.tile.elements import Binary, Broadcast, Cast, Constant, Expand, Select, Transpose
from tilewright.tile.indirect import Gather, Scatter, ScatterReduce, index_symbol
from tilewright.tile.ops import tensor_type, tile_type
from tilewright.tile.structure import Load

_LOADED = "coordinates computed from what was loaded, otherwise than by // and % of constants"
_COMPUTED = "coordinates that are no sums, products, // and % by constants of positions"


@dataclass(frozen=True)
class IndexedAccess:
    """An access whose loaded coordinates are functions of elements of index tensors alone.

    Place ``axis_symbol``s of its tile takes the element at ``element`` of each of the ``tensors``, of the same extents
    ``dims``. ``keys`` are the loaded coordinates by dimension, over the tensors' names; ``rest`` the others. Of a
    scatter that is told apart by these alone there are no tensors.
    """

    tensors: tuple[str, ...]
    dims: tuple[Expr, ...]
    element: tuple[Expr, ...]
    keys: Mapping[int, Expr]
    rest: Mapping[int, Expr]


@dataclass(frozen=True)
class _Element:
    """What a tile of indices holds at a place: ``value``, over the tensor's name, of the tensor's element ``at``."""

    tensor: str
    dims: tuple[Expr, ...]
    at: tuple[Expr, ...]
    value: Expr


def promised_access(op: Scatter) -> IndexedAccess | str:
    """The promise that a scatter at loaded coordinates relies on; a phrase for the coordinates where there is none."""
    if op.apart is not None:
        return IndexedAccess((), (), (), {}, _positions(op))
    return indexed_access(op)


def indexed_access(op: Gather | Scatter | ScatterReduce) -> IndexedAccess | str:
    """The index-tensor elements that give an access's coordinates, and the places they name; a phrase with the reason
    if that is undecided."""
    elements: dict[str, _Element] = {}
    coords = [c.expr for c in op.coords]
    for number, index in enumerate(op.indices):
        symbol = index_symbol(number)
        element = _element(index, alone=all(c == Sym(symbol) or symbol not in c.symbols for c in coords))
        if element is None:
            return _LOADED if _loads(index) else _COMPUTED
        elements[symbol] = element
    if not elements:
        return _COMPUTED
    first, *others = elements.values()
    if any((more.dims, more.at) != (first.dims, first.at) for more in others):
        return "coordinates loaded at different places of their tensors"
    values = {symbol: element.value for symbol, element in elements.items()}
    keys: dict[int, Expr] = {}
    rest: dict[int, Expr] = {}
    for dimension, coord in enumerate(coords):
        if elements.keys().isdisjoint(coord.symbols):
            rest[dimension] = coord
        elif coord.symbols <= elements.keys() and _simple(coord):
            keys[dimension] = coord.substitute(values)
        else:
            return "coordinates of what was loaded and of positions in the tile"
    names = tuple(dict.fromkeys(element.tensor for element in elements.values()))
    return IndexedAccess(names, first.dims, first.at, keys, rest)


def apart_by_position(op: Scatter, varying: Sequence[str]) -> bool:
    """Whether the elements of a scatter are distinct by position alone, also across programs and steps ``varying``:
    each axis of its tile, and each of these, is a coordinate of its own. ``distinct`` proves it."""
    axes = {axis_symbol(d): a for d, a in enumerate(tile_type(op.value).axes_tuple) if isinstance(a, Span)}
    separated: set[str] = set()
    for coord in _positions(op).values():
        name = next((n for n in coord.symbols if (coord - Sym(n)).constant is not None), None)
        if name is not None:
            separated |= {name} | (axes[name].origin.symbols if name in axes else set())
    return separated >= axes.keys() | set(varying)


def _positions(op: Scatter) -> dict[int, Expr]:
    """The coordinates that are not loaded, by dimension."""
    loaded = {index_symbol(number) for number in range(len(op.indices))}
    return {d: c.expr for d, c in enumerate(op.coords) if loaded.isdisjoint(c.expr.symbols)}


def _loads(value: SSAValue) -> bool:
    """Whether a tile of indices depends on an element of a tensor."""
    owner = value.owner
    return isinstance(owner, Load | Gather) or (isinstance(owner, Operation) and any(map(_loads, owner.operands)))


def _simple(coord: Expr) -> bool:
    """Made of what values of the language are made of too."""
    return isinstance(coord, Sum | FloorDiv | Mod | Sym) and all(
        _simple(c) for c in coord.children if c.constant is None
    )


def _element(value: SSAValue, *, alone: bool) -> _Element | None:
    """The element of a tensor that a tile of indices holds at each place.

    ``alone``: the index is a coordinate as it is, so that a negative one leads outside.
    """
    match value.owner:
        case Load() as op:
            kept = iter(range(tile_type(value).rank))
            at = [Sym(axis_symbol(next(kept))) if isinstance(c.data, Span) else c.data for c in op.coords]
            return _loaded(op.tensor, at)
        case Gather() as op if not op.indices:
            return _loaded(op.tensor, [c.expr for c in op.coords])
        case Cast() as op if _widens(op):
            return _element(op.x, alone=alone)
        case Broadcast() as op:
            return _element(op.x, alone=alone)
        case Expand() as op:
            inserted = {p.data for p in op.positions}
            return _renumbered(op.x, [d for d in range(tile_type(value).rank) if d not in inserted], alone=alone)
        case Transpose() as op:
            order = [p.data for p in op.perm]
            return _renumbered(op.x, [order.index(d) for d in range(len(order))], alone=alone)
        case Select() as op if alone and (_constant(op.b) or 0) < 0:  # what stands for an index that is absent itself
            return _element(op.a, alone=alone)
        case Binary() as op if op.fn.data in (BinaryFn.FLOORDIV, BinaryFn.MOD):
            divisor, element = _constant(op.b) or 0, _element(op.a, alone=False)
            if element is None or divisor <= 0:
                return None
            combine = ON_INTEGERS[op.fn.data]
            return replace(element, value=combine(element.value, Const(divisor)))
        case _:
            return None


def _loaded(tensor: SSAValue, at: Sequence[Expr]) -> _Element:
    kind = tensor_type(tensor)
    name = kind.tensor_name.data
    return _Element(name, tuple(d.expr for d in kind.dims), tuple(at), Sym(name))


def _widens(op: Cast) -> bool:
    """Every integer of the operand is one of the result."""
    return tile_type(op.x).element.is_int and op.dtype.holds(tile_type(op.x).element)


def _renumbered(value: SSAValue, axes: Sequence[int], *, alone: bool) -> _Element | None:
    """The same with axis d of the operand renumbered to ``axes[d]``."""
    found = _element(value, alone=alone)
    if found is None:
        return None
    moved = {axis_symbol(d): Sym(axis_symbol(axis)) for d, axis in enumerate(axes)}
    return replace(found, at=tuple(c.substitute(moved) for c in found.at))


def _constant(value: SSAValue) -> int | None:
    """The constant value of all elements; None where there is none."""
    match value.owner:
        case Constant() as op:
            return int(op.value.data)
        case Broadcast() | Expand() as op:
            return _constant(op.x)
        case Cast() as op if _widens(op):
            return _constant(op.x)
        case _:
            return None
