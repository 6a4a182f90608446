"""The order in which the CTAs take the programs of a grid, each of which computes a tile of the result.

A ``transport.Programs`` states it: bands of row tiles that find operands in L2, or, where programs differ in length,
long ones first. The emitted walk (``codegen.cuda``), the simulator (``simulate.execute``) and validation
(``validate.transport_ir.control``) each read the op.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.base.expr import Expr
from tilewright.hw.target import Target
from tilewright.schedule.hopper.clusters import Cluster, origins
from tilewright.schedule.hopper.program_sums import program_sums
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import chained, filled, owner

GROUP = 16
"""Bands of so many row tiles, walked column by column, so that operands are found in L2."""
LOADED_GROUP = 8
"""The same where programs load what they read: a band of several groups reads a weight for each (8 groups of 1024 rows,
H200: 4096 x 14336 1233 us, with bands of 16 1247; 14336 x 4096 1297 and 1306; one group 1235 and 1233)."""
LONG_GROUP, FEW_PRODUCTS = 2, 2
"""Bands where programs of a row read alike instead (attention: of a head), and a step multiplies more than the few that
need none. Full attention, 4 x 16 heads of 128 and 4096 tokens (H200): a row after the other 782 us, bands of 2 and 16
789 and 811; its gradients, of three and four products, 2720, 2675 and 2719."""
SHARERS = 4
"""CTAs that read the same tiles at one time, where programs differ in length. A band is that share of a round, so that
a round holds whole lengths. Causal attention, 4 x 16 heads of 128 (H200): bands of 16 in every batch and rounds dealt
alike 520 us for 4096 queries, 70 for 1024; one band of all heads and alternating rounds 494 and 53."""
FEW_LENGTHS = 8
"""Lengths of programs up to which a row of them comes after the other, the longest first: all programs of a row, which
read the same, run at one time. Causal attention of 512 and 1024 queries, heads of 128 (H200): 98.9 and 148.7 us, in the
bands above 102.2 and 150.0; of 64 145.7 and 224.5, 149.6 and 225.0. With more lengths the last rounds are uneven (1 x
16 heads of 16384 queries: 2221 and 1622 us)."""

_SOME_EXTENT = 4096


@dataclass(frozen=True)
class ProgramOrder:
    """Attributes of ``transport.Programs``; ``extents`` are multiples of the cluster's."""

    extents: list[Expr]
    group: int | None = None
    descending: str | None = None
    ascending: str | None = None


def program_order(
    kernel: tile.Kernel, target: Target, cluster: Cluster | None, *, loads: bool, few_lengths: bool = False
) -> ProgramOrder:
    """The order of a kernel's programs, which may load bounds of what they read (``loads``)."""
    grid = [g.expr for g in kernel.grid]
    summed = bool(program_sums(kernel))  # whose last axis is the cluster's alone
    if cluster is not None:
        return ProgramOrder(cluster.extents(grid), None if summed else max(1, GROUP // cluster.rows))
    longer = lengthening(kernel)
    shorter = shortening(kernel) if longer is None else None
    if longer is not None or shorter is not None:
        band = 1 if few_lengths else target.sm_count // SHARERS
        return ProgramOrder(grid, None if summed else band, longer, shorter)
    if len(grid) < 2 or summed:
        return ProgramOrder(grid, None)
    if loads:  # heads one after the other were timed where nothing is loaded; 8-bit pages spilled with it
        return ProgramOrder(grid, LOADED_GROUP)
    if _share_columns(kernel):
        return ProgramOrder(grid, GROUP)
    products = sum(isinstance(op, tile.Dot) for op in kernel.walk())
    return ProgramOrder(grid, LONG_GROUP if products > FEW_PRODUCTS else None)


def _share_columns(kernel: tile.Kernel) -> bool:
    """Whether programs of a column read the same in a stream: a tile that the last coordinate places and the next to
    last one does not. If none do, those of a row may, which are neighbours without bands: of attention, of a head."""
    row, column = (program_index(len(kernel.grid) - n) for n in (2, 1))
    streamed = (op for stream in kernel.walk() if isinstance(stream, tile.StreamLoop) for op in stream.walk())
    placed = (origins(op) for op in streamed if isinstance(op, tile.Load))
    return any(column in symbols and row not in symbols for symbols in placed)


def lengthening(kernel: tile.Kernel) -> str | None:
    """The program coordinate with which a stream gets longer, or on which its length depends: that of the tiles of a
    ragged grid, where streams of chained products end at loaded bounds.

    Only the order depends on it, so it is evaluated at medium extents.
    """
    ragged = _ragged(kernel)
    if ragged:
        return None if all(map(_begins_at_tile, ragged)) else program_index(0)
    return _differing(kernel, 0, 4)


def shortening(kernel: tile.Kernel) -> str | None:
    """The program coordinate with which a stream gets shorter: it begins at the program's tile."""
    ragged = _ragged(kernel)
    if ragged and all(map(_begins_at_tile, ragged)):
        return program_index(0)
    return _differing(kernel, 4, 0)


def _ragged(kernel: tile.Kernel) -> list[tile.StreamLoop]:
    """Streams of chained products over a ragged grid that end at loaded bounds."""
    streams = [op for op in kernel.walk() if isinstance(op, tile.StreamLoop)]
    loaded = {op.symbol.data for op in kernel.walk() if isinstance(op, tile.Bind)}
    return [
        op
        for op in streams
        if kernel.ascending is not None and chained(op) and not loaded.isdisjoint(op.axis.data.stop.symbols)
    ]


def _begins_at_tile(stream: tile.StreamLoop) -> bool:
    """Whether the rows that a program fills say where a stream begins, and not where it ends."""
    places = {name for rows in filled(stream) for name in rows.origin.symbols}
    begin, end = (_computed_from(stream, e) for e in (stream.axis.data.origin, stream.axis.data.stop))
    return not places.isdisjoint(begin) and places.isdisjoint(end)


def _computed_from(stream: tile.StreamLoop, place: Expr) -> set[str]:
    """The symbols of an expression, and those that its loaded symbols are computed from."""
    kernel = stream.get_toplevel_object()
    binds = {op.symbol.data: op.value for op in kernel.walk() if isinstance(op, tile.Bind)}
    found, values = set(place.symbols), set[SSAValue]()
    pending = [binds[name] for name in found if name in binds]
    while pending:
        value = pending.pop()
        op = owner(value)
        if value in values or op is None:
            continue
        values.add(value)
        fresh = (op.expr.expr.symbols if isinstance(op, tile.ScalarExpr) else frozenset[str]()) - found
        found |= fresh
        pending += [*op.operands, *(binds[name] for name in fresh if name in binds)]
    return found


def _differing(kernel: tile.Kernel, shorter: int, longer: int) -> str | None:
    """The program coordinate for which a stream has fewer steps at ``shorter`` than at ``longer``."""
    trips = [op.trip.expr for op in kernel.walk() if isinstance(op, tile.StreamLoop)]
    names = [program_index(i) for i in range(len(kernel.grid))]
    return next((n for n in names if any(_at(x, {n: shorter}) < _at(x, {n: longer}) for x in trips)), None)


def _at(trip: Expr, known: dict[str, int]) -> int:
    return int(trip.evaluate({**dict.fromkeys(trip.symbols, _SOME_EXTENT), **known}))
