"""Tensor copies that end with the domain of their access, through a map with a ragged axis: the ``ragged`` obligation.

Such a map has two dimensions more, in which boxes have one element. For rows from o + k on, of a domain that ends
before s::

    dimension   extent    stride          coordinate
    rows        B         T               c = B - s + o + k
    end         more      T               s
    wrap        more      W - T           B                    B W is a multiple of 2^64

    address of row y of the box = base + T (c + y) + T s + B (W - T) = base + T (o + k + y) + B W

Addresses are numbers of 64 bits, so that is row o + k + y of the tensor, whose rows are T bytes apart. The hardware
writes what lies inside of all extents: with 0 <= c the rows with o + k + y < s, which is what the domain has of the
box; a load brings zeros for the others. Of the map that needs the extents and strides above, of the copies these
coordinates, and that they are 32-bit integers: bounds of all symbols show it, those of loaded integers for whatever
offsets hold, because the program clips them. The end of a domain inside of the tensor is a minimum with its
extent. Rows begin with 0, so an end that may be less can be max(s, 0) as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import Const, Expr, Interval, Min, interval, maximum
from tilewright.lang.axes import Span
from tilewright.legal.facts import Facts
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.tile.queries import coords_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import TmaNumbers

RAGGED = "ragged"
"""The obligation that copies through maps for all groups move what the domain has of a tile, and nothing else."""
METHOD = "addresses modulo 2^64"
_ADDRESSES = 1 << 64
_MOST = (1 << 31) - 1


def has_ragged_maps(lowered: t.Kernel) -> bool:
    """Whether copies through some map end before their tensor does."""
    return any(isinstance(op, a.TensorMap) and op.numbers.ragged_axis is not None for op in operations(lowered))


def bound_of(numbers: TmaNumbers) -> int:
    """Rows are counted up to this number; 0 where the extent is none."""
    assert numbers.ragged_axis is not None
    found = numbers.dims[numbers.axes.index(numbers.ragged_axis)].constant
    return 0 if found is None or found <= 0 else int(found)


def fault_of_map(numbers: TmaNumbers) -> str:
    """How the dimensions of a ragged axis fail to cancel, and to count further than coordinates do; empty if they
    don't."""
    assert numbers.ragged_axis is not None
    bound = bound_of(numbers)
    rows = numbers.axes.index(numbers.ragged_axis)
    if not bound or rows == 0:
        return f"rows of a ragged axis counted up to {numbers.dims[rows]}"
    step, (end, wrap) = numbers.strides_bytes[rows - 1], numbers.strides_bytes[-2:]
    together = (wrap + step).constant
    if end != step or together is None or together * bound % _ADDRESSES:
        return f"rows of {step} bytes, {end} to an end, and {wrap} that take {bound} of them back"
    if any(extent.constant is None or extent.constant <= bound for extent in numbers.dims[-2:]):
        return f"ends up to {numbers.dims[-2]}, {numbers.dims[-1]} for the bound {bound}"
    return "" if numbers.box[-2:] == (1, 1) else f"boxes of {numbers.box[-2:]} ends"


def places(numbers: TmaNumbers, coords: Sequence[Expr]) -> list[Expr]:
    """The coordinates in the tensor, along ``axes`` of the map, at which a copy at ``coords`` begins."""
    found = [*coords]
    if numbers.ragged_axis is None:
        return found
    rows = numbers.axes.index(numbers.ragged_axis)
    found[rows] = found[rows] + found[-2] - bound_of(numbers)
    return found[:-2]


def fault_of_copy(
    copy: a.TmaLoad | a.TmaStore,
    numbers: TmaNumbers,
    access: tile.Load | tile.Store,
    known: Facts,
    clips: Mapping[str, Expr],
) -> str:
    """Why a copy at the places of ``access`` may not end where its domain does; empty if it does in all launches that
    ``known`` allows. ``clips`` are what the program clips loaded integers to (``loaded.clips_of``)."""
    axis = numbers.ragged_axis
    assert axis is not None
    span, extent = coords_of(access)[axis], tile.tensor_type(access.tensor).dims.data[axis].expr
    row, end, wrap = (copy.coords.data[i].expr for i in (numbers.axes.index(axis), -2, -1))
    if not isinstance(span, Span) or end not in (span.stop, maximum(span.stop, 0)):
        return f"copies end at {end}"
    if not (isinstance(span.stop, Min) and extent in span.stop.args):
        return f"{span.stop} may lie beyond {extent} rows"
    if wrap != Const(bound_of(numbers)):
        return f"{wrap} takes back what was added for {bound_of(numbers)}"
    bounds, high = _ranges(copy, known, clips), numbers.box[numbers.axes.index(axis)] - 1
    begin = places(numbers, [c.expr for c in copy.coords])[numbers.axes.index(axis)]
    for coordinate in (row, row + high, end, begin):
        least, most = interval(coordinate, bounds)
        if least is None or most is None or least < 0 or most > _MOST:
            return f"{coordinate} is not known to lie between 0 and {_MOST}"
    return ""


def _ranges(copy: a.TmaLoad | a.TmaStore, known: Facts, clips: Mapping[str, Expr]) -> dict[str, Interval]:
    """The values of symbols where a copy stands: extents, programs, loaded integers, counters of the loops around
    it."""
    around = [copy.parent_op()]
    while (outer := around[-1]) is not None and not isinstance(outer, t.Kernel):
        around.append(outer.parent_op())
    kernel = around[-1]
    assert isinstance(kernel, t.Kernel)
    kinds = (arg.type for arg in kernel.body.block.args)
    dims = (dim.expr for kind in kinds if isinstance(kind, tile.TensorType) for dim in kind.dims)
    ranges = {symbol: _within((0, MAX_EXTENT), known.bounds.get(symbol)) for dim in dims for symbol in dim.symbols}
    ranges[a.WARPGROUP] = 0, a.warpgroups_of(copy) - 1
    named: dict[str, Interval] = {}
    for op in operations(kernel):
        if isinstance(op, t.Bind | t.Let):
            name, found = op.symbol.data, _value(op, ranges | named, clips)
            named[name] = _hull(named[name], found) if name in named else found  # each role names it
    ranges |= named
    for op in reversed(around):
        if isinstance(op, t.Programs):
            for name, extent in zip(op.names, op.extents, strict=True):
                ranges[name.data] = _up_to((0, 0), interval(extent.expr, ranges))
        elif isinstance(op, t.For) and (op.step.expr.constant or 0) > 0:
            ranges[op.counter.data] = _up_to(interval(op.begin.expr, ranges), interval(op.end.expr, ranges))
    return ranges


def _value(op: t.Bind | t.Let, ranges: Mapping[str, Interval], clips: Mapping[str, Expr]) -> Interval:
    if isinstance(op, t.Let):
        return interval(op.value.expr, ranges)
    most = clips.get(op.symbol.data)
    return (None, None) if most is None else (0, interval(most, ranges)[1])


def _hull(one: Interval, other: Interval) -> Interval:
    lows, highs = zip(one, other, strict=True)
    low = None if None in lows else min(x for x in lows if x is not None)
    return low, None if None in highs else max(x for x in highs if x is not None)


def _within(one: tuple[int, int], other: Interval | None) -> Interval:
    low, high = other or (None, None)
    return one[0] if low is None else max(one[0], low), one[1] if high is None else min(one[1], high)


def _up_to(begin: Interval, end: Interval) -> Interval:
    """The values of a counter, where there are any."""
    return begin[0], None if end[1] is None else end[1] - 1


def ended(copies: Mapping[a.TmaLoad | a.TmaStore, TmaNumbers]) -> tuple[str, ...]:
    """What copies through ragged maps move, for a certificate: tensors and where they end."""
    found: dict[str, None] = {}
    for copy, numbers in copies.items():
        if numbers.ragged_axis is not None:
            kind = copy.map.owner.operands[0].type if isinstance(copy.map.owner, a.TensorMap) else None
            assert isinstance(kind, tile.TensorType)
            found[f"{kind.tensor_name.data} up to {copy.coords.data[-2].expr}, of {bound_of(numbers)} rows"] = None
    return tuple(found)
