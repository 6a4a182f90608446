"""Operands of products at coordinates that a program loads once: ``w[expert[g], n, k]``.

An integer that is one for the whole tile becomes a symbol, as a loaded bound does, and the gather a load, which tensor
copies can bring::

    i = load expert[g]                     i = load expert[g]
    stream k:                              bind $b to min(i, E), or E where i is negative
        w = gather w[i, n, k]    becomes   stream k:
        dot(x, w)                              w = load w[$b, n, k]

Both kinds of outside become the extent, in 64 bits: there a load has no elements, as a gather has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import i64
from tilewright.base.expr import Expr, Sym, own
from tilewright.lang.axes import Coord, Span, axis_symbol
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.tile.elements import Binary, Cast, Compare, Constant, Dot, Expand, ScalarExpr, Select, Transpose
from tilewright.tile.indirect import Gather, index_symbol
from tilewright.tile.ops import tensor_type, tile_type
from tilewright.tile.structure import Bind, Kernel, Load, StreamLoop


def bind_coordinates(kernel: Kernel, inside: Callable[[Expr, Expr], bool]) -> None:
    """Turn gathers among the operands of a kernel's products into loads if their coordinates are known before its
    streams. ``inside`` says whether a computed coordinate is known to be at least 0 and below an extent."""
    gathers = dict.fromkeys(g for op in kernel.walk() if isinstance(op, Dot) for g in _gathers(op))
    bound: dict[tuple[SSAValue, Expr], str] = {}
    for gather in gathers:
        slices = {k: _invariant(index, kernel) for k, index in _indices(gather).items()}
        coords = _coords(gather, {k: k for k in slices})
        if coords is None or not slices or any(ops is None for ops in slices.values()):
            continue
        dims = [d.expr for d in tensor_type(gather.tensor).dims]
        computed = [(c, d) for c, d in zip(coords, dims, strict=True) if isinstance(c, Expr) and str(c) not in slices]
        if not all(inside(c, d) for c, d in computed):
            continue
        _replace(kernel, gather, {k: ops for k, ops in slices.items() if ops is not None}, bound)


def _gathers(dot: Dot) -> Iterator[Gather]:
    """Gathers that a product reads as they are, perhaps transposed."""
    for value in (dot.a, dot.b):
        source = value.owner
        while isinstance(source, Transpose):
            source = source.x.owner
        if isinstance(source, Gather):
            yield source


def _indices(gather: Gather) -> Mapping[str, SSAValue]:
    """The values of no axes among the index operands, by their symbols."""
    found: dict[str, SSAValue] = {}
    for number, index in enumerate(gather.indices):
        value: SSAValue = index
        while isinstance(value.owner, Expand):
            value = value.owner.x
        if tile_type(value).rank == 0:
            found[index_symbol(number)] = value
    return found


def _coords(gather: Gather, named: Mapping[str, str]) -> list[Coord] | None:
    """The coordinates as a load has them, loaded ones under the names given; None where it has no such."""
    axes = list(tile_type(gather.result).axes_tuple)
    along = {axis_symbol(d): axis for d, axis in enumerate(axes)}
    found: list[Coord] = []
    for coord in (c.expr for c in gather.coords):
        name = coord.name if isinstance(coord, Sym) else ""
        axis = along.get(name)
        if name in named:
            found.append(Sym(named[name]))
        elif isinstance(axis, Span):
            found.append(axis)
        elif coord.symbols.isdisjoint(along) and not any(c.startswith(_INDEX) for c in coord.symbols):
            found.append(coord)
        else:
            return None
    return found if [c for c in found if isinstance(c, Span)] == axes else None


_INDEX = index_symbol(0).rstrip("0")


def _invariant(value: SSAValue, kernel: Kernel) -> list[Operation] | None:
    """The ops that compute a value of no axes, in order, if all of them may stand before the streams of a kernel; None
    where what one does changes with their steps."""
    found: list[Operation] = []
    pending = [value]
    while pending:
        op = pending.pop().owner
        if not isinstance(op, Operation) or op in found:
            continue
        if not isinstance(op, _PURE) or _of_streams(op):
            return None
        found.append(op)
        pending += [v for v in op.operands if isinstance(v.owner, Operation)]
    order = {op: n for n, op in enumerate(kernel.walk())}
    return sorted(found, key=lambda op: order[op])


_PURE = (Load, Binary, Cast, Compare, Constant, ScalarExpr, Select)


def _of_streams(op: Operation) -> bool:
    """An op names a step of the streams around it, or what is loaded in them."""
    used: set[str] = set()
    if isinstance(op, Load):
        if op.spans:
            return True
        used = {s for c in op.coords if isinstance(c.data, Expr) for s in c.data.symbols}
    elif isinstance(op, ScalarExpr):
        used = set(op.expr.expr.symbols)
    around = op.parent_op()
    while isinstance(around, StreamLoop):
        inside = {b.symbol.data for b in around.walk() if isinstance(b, Bind)}
        if not used.isdisjoint({around.counter.data} | inside):
            return True
        around = around.parent_op()
    return False


def _replace(
    kernel: Kernel,
    gather: Gather,
    slices: Mapping[str, list[Operation]],
    bound: dict[tuple[SSAValue, Expr], str],
) -> None:
    """A load in place of a gather, its integers bound before the streams around it."""
    before: Operation = gather
    while before.parent_op() is not kernel:
        parent = before.parent_op()
        assert parent is not None, "the gather lies in the kernel"
        before = parent
    named: dict[str, str] = {}
    values = _indices(gather)
    dims = [d.expr for d in tensor_type(gather.tensor).dims]
    for coord, dim in zip((c.expr for c in gather.coords), dims, strict=True):
        symbol = coord.name if isinstance(coord, Sym) else ""
        if symbol in slices:
            key = values[symbol], dim
            if key not in bound:
                bound[key] = _bind(kernel, before, slices[symbol], values[symbol], dim)
            named[symbol] = bound[key]
    coords = _coords(gather, named)
    assert coords is not None, "it was found to be a load's"
    block = gather.parent_block()
    assert block is not None
    load = Load(gather.tensor, coords)
    load.attributes |= {k: v for k, v in gather.attributes.items() if k == "loc"}
    block.insert_op_before(load, gather)
    gather.result.replace_all_uses_with(load.result)
    _erase(gather)


def _bind(kernel: Kernel, before: Operation, ops: list[Operation], value: SSAValue, dim: Expr) -> str:
    """The symbol of an integer, bound before an op of the kernel's block, to the extent where it leads outside."""
    taken = {op.symbol.data for op in kernel.walk() if isinstance(op, Bind)}
    symbol = next(name for n in range(len(taken) + 1) if (name := own(f"b{n}")) not in taken)
    block = before.parent_block()
    assert block is not None
    mapped: dict[SSAValue, SSAValue] = {}
    made: list[Operation] = []
    for op in ops:
        if op.parent is block and op.is_before_in_block(before):
            continue
        made.append(op.clone(mapped))
    index = mapped.get(value, value)
    wide = Cast(index, i64) if tile_type(index).element != i64 else None
    extent, zero = ScalarExpr(dim, i64), Constant(0, i64)
    index = index if wide is None else wide.result
    begun, short = Compare(CompareFn.GE, index, zero.result), Compare(CompareFn.LT, index, extent.result)
    inside = Binary(BinaryFn.AND, begun.result, short.result)
    clipped = Select(inside.result, index, extent.result)
    bind = Bind(symbol, clipped.result)
    computed = [*([] if wide is None else [wide]), extent, zero, begun, short, inside, clipped, bind]
    for op in computed:
        op.attributes |= {k: v for k, v in before.attributes.items() if k == "loc"}
    block.insert_ops_before([*made, *computed], before)
    return symbol


def _erase(op: Operation) -> None:
    """An op that nothing uses, and what only it used."""
    operands = [v.owner for v in op.operands]
    if any(result.uses for result in op.results):
        return
    op.detach()
    op.erase()
    for owner in dict.fromkeys(operands):
        if isinstance(owner, (*_PURE, Expand)):
            _erase(owner)
