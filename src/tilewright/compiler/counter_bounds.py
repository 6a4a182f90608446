"""Bounds of the counters of persistent kernels: programs, and the uses of a pipeline by one CTA."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import TRUE, Const, Expr, Interval, ceildiv, minimum, simplify
from tilewright.compiler.launch_recipe import ctas_at_once, programs_of
from tilewright.compiler.planned import PlannedKernel
from tilewright.schedule.placement import loaded_of
from tilewright.tile import dialect as tile
from tilewright.tile.limits import Limits
from tilewright.tile.ops import program_index
from tilewright.transport import dialect as transport


def counters_fit(planned: PlannedKernel) -> tuple[Expr, ...]:
    """Predicates over extents and scalars under which no counter of the kernel overflows."""
    ctas = ctas_at_once(planned.transport)
    if ctas is None:
        return ()
    if planned.collapsed:  # dispatch asks that the elements of a single row fit
        return ()
    kinds = [arg.type for arg in planned.tile.body.block.args if isinstance(arg.type, tile.TensorType)]
    dims = frozenset[str]().union(*(d.expr.symbols for kind in kinds for d in kind.dims))
    known: dict[str, Interval] = dict.fromkeys(dims, (0, MAX_EXTENT))
    found = (simplify(count <= MAX_EXTENT, known) for count in _counts(planned, ctas, dims))
    return tuple(dict.fromkeys(p for p in found if p != TRUE))


def _counts(planned: PlannedKernel, ctas: int, dims: frozenset[str]) -> Iterator[Expr]:
    """The number of programs, and for each stream the steps of all programs of one CTA. With ping-pong, roles also
    count the programs of the other roles."""
    limits, total = Limits(dims), programs_of(planned.transport)
    walks = [op for op in planned.transport.walk() if isinstance(op, transport.Programs)]
    walked = ceildiv(total, ctas) + max(op.interleaving[1] for op in walks) - 1
    if any(op.drawn is not None for op in walks):  # one CTA may draw them all; its counters are periodic
        walked = Const(1)
    for axis, extent in enumerate(planned.tile.grid):
        limits.add(program_index(axis), extent.expr)
    for bound in loaded_of(planned.tile):
        limits.add(bound, Const(MAX_EXTENT + 1))
    yield total
    steps: dict[tile.StreamLoop, Expr] = {}
    for stream in (op for op in planned.tile.walk() if isinstance(op, tile.StreamLoop)):
        limits.add(stream.counter.data, stream.trip.expr)
        around, most = stream.parent_op(), limits.upper(stream.trip.expr)
        own = Const(MAX_EXTENT) if most is None else minimum(most, MAX_EXTENT)  # its positions stay in a tensor
        steps[stream] = own * (steps[around] if isinstance(around, tile.StreamLoop) else Const(1))
        yield walked * steps[stream]
