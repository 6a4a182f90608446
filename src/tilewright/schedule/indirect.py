"""Gathers and scatters: the addresses of a thread's elements at computed and loaded coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from xdsl.ir import SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import TRUE, Const, Expr, Product, Sym, all_of
from tilewright.lang.axes import axis_symbol
from tilewright.schedule.placement import aligned, loaded_of
from tilewright.schedule.values import ValueLowering
from tilewright.tile import dialect as tile
from tilewright.tile.indirect import scatter_number
from tilewright.tile.limits import Limits
from tilewright.tile.ops import program_index
from tilewright.tile.queries import Indirect, element, moved, spans_of
from tilewright.transport import dialect as t

TID, R = Sym(t.THREAD), Sym(t.REGISTER)
_Moves = TypeVar("_Moves", t.Load, t.Store, t.Store | t.AtomicReduce)


class GatheredAddresses:
    """The addresses of a gather's or scatter's elements in a thread, in the home distribution."""

    def __init__(self, lowering: ValueLowering, op: Indirect):
        value, home = moved(op), lowering.placement.home
        axes, spans = lowering.axes_of[value], spans_of(value)
        places = home.coordinates(axes, TID, R)
        at = {
            axis_symbol(d): place if span is None else span.origin + place
            for d, (span, place) in enumerate(zip(spans, places, strict=True))
        }
        forms = [c.expr for c in op.coords]
        self.tensor = lowering.arguments[op.tensor]
        self.coords = [form.substitute(at) for form in forms]
        self.buffers = [lowering.materialise(index, op) for index in op.indices]
        self.reads = [home.register_of(held.axes, axes, R) - held.window for held in self.buffers]
        limits = _limits(lowering.kernel)
        for axis, span in enumerate(spans):
            if span is not None:
                limits.add(axis_symbol(axis), span.stop)
        dims = [d.expr for d in tile.tensor_type(op.tensor).dims]
        checks = [test for c, dim in zip(forms, dims, strict=True) for test in _tests(limits, c, dim)]
        within = lowering.valid(axes, spans, places)
        self.guard = all_of([within, *(test.substitute(at) for test in checks)])
        self.within = within
        self.scattered = None
        if not isinstance(op, tile.Gather) and tile.by_places(op):
            self.scattered = t.Scattered(scatter_number(op), tuple(at.values()))
        self.vector, self.axis = 1, 0
        facts = lowering.facts.of(tile.tensor_type(op.tensor).tensor_name.data)
        along = None if facts.unit_axis is None else tile.moves_along(op, facts.unit_axis)
        skew = lowering.placement.skew
        if along is not None and (skew is None or axes[along[0]] != skew.axis):
            axis, rest = along
            span = spans[axis]
            assert span is not None
            width = aligned(facts.vector(element(value)), rest + span.origin)
            self.vector = min(width, home.layout(axes).contiguous_registers(axis))
            self.axis = facts.unit_axis or 0

    def access(self, kind: Callable[..., _Moves], buffer: SSAValue, owner: Expr = TRUE, live: Expr = TRUE) -> _Moves:
        """The transport op, executed by the threads for which ``owner`` holds."""
        return kind(
            self.tensor,
            buffer,
            self.coords,
            all_of([owner, self.guard]),
            vector=self.vector,
            axis=self.axis,
            live=live,
            indices=[held.buffer for held in self.buffers],
            reads=self.reads,
            within=all_of([owner, self.within]),
            scattered=self.scattered,
        )


def _limits(kernel: tile.Kernel) -> Limits:
    """Bounds of program coordinates, counters and scalars."""
    arguments = list(zip(kernel.arg_names, kernel.body.block.args, strict=True))
    tensors = [arg.type for _, arg in arguments if isinstance(arg.type, tile.TensorType)]
    sizes = frozenset[str]().union(*(d.expr.symbols for tensor in tensors for d in tensor.dims))
    kinds = ((name.data, arg.type.element) for name, arg in arguments if isinstance(arg.type, tile.TileType))
    scalars = {name: dtype.integers for name, dtype in kinds if dtype.is_int}
    limits = Limits(sizes, scalars)
    for axis, extent in enumerate(kernel.grid):
        limits.add(program_index(axis), extent.expr)
    limits.known = {**limits.known, **dict.fromkeys(loaded_of(kernel), (0, MAX_EXTENT))}
    for op in kernel.walk():
        if isinstance(op, tile.StreamLoop):
            limits.add(op.counter.data, op.trip.expr)
    return limits


def _tests(limits: Limits, coord: Expr, dim: Expr) -> list[Expr]:
    """The tests by which a coordinate lies in a dimension. Products of symbols are always tested, because the proof
    knows nothing else about them."""
    if _multiplies(coord) or _multiplies(dim):
        return [coord >= 0, coord < dim]
    low = [] if limits.at_least(coord, Const(0)) else [coord >= 0]
    return low if limits.at_least(dim - 1, coord) else [*low, coord < dim]


def _multiplies(e: Expr) -> bool:
    """Whether symbols are multiplied with each other."""
    return isinstance(e, Product) or any(map(_multiplies, e.children))
