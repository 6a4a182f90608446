"""Split-K variants: for which launches, with which tiles, and whether a cluster or a second kernel adds the parts.

If a product has few tiles and a long stream, splitting it occupies the SMs that its tiles leave idle. Up to 4 parts are
added by the CTAs of a cluster, in one kernel; more by a second kernel, from workspaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from tilewright.base.expr import Const, Expr, all_of, any_of, ceildiv, maximum, minimum, negate
from tilewright.hw.target import Target
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.operands import COLUMNS, ROWS
from tilewright.schedule.hopper.product_variant import ProductVariant
from tilewright.schedule.hopper.tile_prices import Price
from tilewright.schedule.transforms.split_k import FEW, PARTS, NotSplitError, Split, split
from tilewright.tile import dialect as tile

WIDTH, PRICE = 128, Price(421, 0, across=600)
"""Columns of a tile of 128 rows whose parts a second kernel adds, and its price."""
STEPS = 16
"""Steps of 128 bytes that such a part has at least (128 x 128 x 65536, H200: 32, 64 and 128 parts 22, 17 and 18 us)."""
_READ = 1000, 3_300_000
_SUMMED = 2000, 4_000_000
_ADDING = 6500
"""Nanoseconds and bytes: of what is read at least, of what parts write and read again; and of the second kernel (in one
kernel 384 x 384 x 4096 takes its steps and 1 us, 1024 x 1024 x 1024 3.9; in two kernels 8 us more than steps and sums,
H200)."""

CLUSTERED = (
    (64, 64, 4, Price(145, 2100)), (64, 96, 4, Price(168, 2090, across=283)),
    (64, 128, 4, Price(235, 2700, across=345)), (128, 128, 4, Price(356, 4300, across=440)),
    (64, 64, 2, Price(190, 1900, across=230)), (64, 96, 2, Price(228, 2500, across=265)),
    (128, 64, 2, Price(310, 3300, across=420)), (128, 128, 2, Price(437, 3300, across=626)),
    (128, 192, 2, Price(560, 5000, across=2000)),
)  # fmt: skip
"""Tiles whose parts a cluster adds: rows, columns, parts, their price. Beside its steps a tile takes the barriers of
the cluster and the additions. 128 x 192 is not for rows that begin inside of sectors (1704 x 408 x 7688, H200: 52 us,
128 x 128 43)."""
CLUSTERED_CTAS = {2: 132, 4: 120}
"""CTAs that run at one time, by those of a cluster (H200, cuOccupancyMaxActiveClusters; 128 in clusters of 4 took two
waves)."""
Trace = Callable[[Mapping[str, int]], tile.Kernel]


def split_variants(
    wide: Mapping[str, int],
    rows: Sequence[str],
    columns: Sequence[str],
    choices: Sequence[Mapping[str, int]],
    trace: Trace,
    target: Target,
    whole: Expr,
    sectors: Expr,
) -> Iterator[ProductVariant]:
    """A stream in parts, where tiles leave SMs without and the parts cost less than the time that they save. ``whole``
    are the nanoseconds of the kernel in one piece."""
    extents = {**wide, **dict.fromkeys(columns, WIDTH)}
    kernel = trace(extents)
    try:
        found = split(kernel, many=False)
    except NotSplitError:
        return
    steps, read = found.stream.trip.expr, _read(found)
    tiles = found.programs
    parts = minimum(maximum(target.sm_count // maximum(tiles, 1), 1), maximum(steps // STEPS, 1))
    waves = ceildiv(tiles * parts, target.sm_count)
    by_kernel = maximum(waves * PRICE.steps(ceildiv(steps, parts), sectors), read) + _sums(found, parts) + _ADDING
    alone = maximum(whole, read)
    priced = [
        (own, own.tiles * own.parts <= CLUSTERED_CTAS[own.parts],
         maximum(own.price.steps(ceildiv(steps, own.parts), sectors), read) + own.price.tile)
        for own in _clustered(wide, rows, columns, trace)
    ]  # fmt: skip
    for i, (own, fits, time) in enumerate(priced):
        rivals = [any_of([negate(room), time <= other]) for _, room, other in priced[i + 1 :]]
        best = all_of([fits, time <= alone, any_of([parts <= 1, time <= by_kernel]), *rivals])
        cluster = Candidate(own.rows // ROWS, cluster=(1, own.parts))
        yield ProductVariant(best, (own.extents,), (cluster,), narrow=own.narrow, one_wave=True, time=time)
    few = all_of([parts > 1, parts <= FEW, by_kernel <= alone])
    yield ProductVariant(few, (extents, *choices), parts=parts, one_wave=True, time=by_kernel)
    most = all_of([parts > FEW, by_kernel <= alone])
    yield ProductVariant(most, (extents, *choices), parts=parts, many=True, one_wave=True, time=by_kernel)


@dataclass(frozen=True)
class _Clustered:
    """A tile whose parts a cluster adds. ``narrow`` are the extents of a share, ``tiles`` the tiles of a launch."""

    rows: int
    extents: Mapping[str, int]
    narrow: Mapping[str, int]
    parts: int
    price: Price
    tiles: Expr


def _clustered(
    wide: Mapping[str, int], rows: Sequence[str], columns: Sequence[str], trace: Trace
) -> Iterator[_Clustered]:
    """Those of ``CLUSTERED``; of several products side by side each has its share of the columns."""
    beside = sum(isinstance(op, tile.Dot) for op in trace(wide).walk())
    for height, width, parts, price in CLUSTERED:
        own = width // beside
        if own % (parts * COLUMNS):
            continue
        extents = {**wide, **dict.fromkeys(rows, height), **dict.fromkeys(columns, own)}
        narrow = {**extents, **dict.fromkeys(columns, own // parts)}
        kernel = trace(extents)
        try:
            found = split(kernel, many=False)
            found.clustered(trace(narrow), parts)
        except NotSplitError:
            continue
        yield _Clustered(height, extents, narrow, parts, price, found.programs)


def _read(found: Split) -> Expr:
    """The time to read everything that the stream loads once."""
    loads = {op.tensor: op for op in found.stream.walk() if isinstance(op, tile.Load)}
    return sum((_bytes(op.tensor) for op in loads.values()), Const(0)) * _READ[0] // _READ[1]


def _sums(found: Split, parts: Expr) -> Expr:
    """The time to write and read partial sums."""
    sums = sum((prod(x.dims, start=Const(1)) * x.element.bytes for x in found.sums), Const(0))
    return sums.substitute({PARTS.name: parts}) * _SUMMED[0] // _SUMMED[1]


def _bytes(tensor: SSAValue) -> Expr:
    """The size of a tensor in bytes."""
    kind = tile.tensor_type(tensor)
    return prod((d.expr for d in kind.dims), start=Const(1)) * kind.element.bytes
