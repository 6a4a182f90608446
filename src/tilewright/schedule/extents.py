"""Chooses tile extents: the values of ``tw.auto``, and the sizes for which an ``upto`` axis gets a kernel of its own.

The kernel is traced with extents of 1 and again with a distinct prime for every auto, which shows by the growth of each
axis which auto sizes it. Extents are then chosen from how many bytes one CTA should move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from tilewright.base.expr import FALSE, TRUE, Const, Expr, all_of
from tilewright.hw.target import MAX_VECTOR_BYTES, Target
from tilewright.schedule.classes import Classes, classify
from tilewright.schedule.distribute import floor_power
from tilewright.schedule.facts import CallFacts
from tilewright.tile import dialect as tile
from tilewright.tile.queries import Access, Indirect, contiguous_along, is_tile, moved, spans_of

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
_TILE_BYTES = 8192
"""Bytes of one tensor that a CTA moves at a time: 256 threads with two 16-byte vectors each (measured on H200: add,
softmax and SwiGLU reach the copy's bandwidth with it; larger tiles lose occupancy, smaller ones have too little in
flight)."""
_ROWS_BYTES = 4096
"""The same for whole rows that are reduced, several to a CTA: 128 threads with two vectors each. CTAs that wait for a
reduction overlap the better the more there are, and the last wave leaves less idle (H200, rows of 128, 256, 512, 1000
and 2048 elements of bf16: 2 to 6 % less time than with twice as many rows, at 8192 x 1000 and at 32768 x 2048 alike).
"""
_COLUMN_BYTES = 128
"""Width of a tile that streams down its columns: one cache line, so that narrow tensors still give every SM a CTA."""
_COLUMN_TILE_BYTES = 65536
"""Bytes in flight of such a CTA; it is alone on its SM."""
_SMALLEST_BOUND, _COARSE, _FINE = 128, 512, (12_000, 40_000)
_BARELY = (4096, 16384)
"""Sizes with a kernel for rows that are up to a quarter longer: in the kernel for twice the size they leave half of the
threads idle, which hold registers (H200, rows of 4104 to 4224 bf16: 0.73 of the copy's speed, 0.91 so)."""
_NOMINAL = 64
_LONG_STEP, _FEW_ROWS = 16384, 8
"""Elements of a step of a running sum where an SM has up to so many rows, and of sums in parts (running sums, H200, of
the copy's speed, beside steps of 1,024: 132 rows of 131,072 f32 0.83 and 0.31, of 1,048,576 bf16 0.77 and 0.16; 1,056
of 131,072 bf16 0.75 and 0.72)."""


_ROW_BYTES = 512
"""Contiguous bytes of one row in a tile of several rows: four cache lines."""
_ALONE = 2048
"""Elements from which a row has a CTA of its own, so that it can begin at its own 16-byte boundary."""
_NARROW = (64, 128)
"""Widths of rows that get a kernel of their own, so that narrow tensors don't leave most threads idle."""


@dataclass(frozen=True)
class ExtentChoice:
    """Tile extents for the autos, and the predicate over tensor extents under which they are used."""

    predicate: Expr
    extents: Mapping[str, int]


@dataclass(frozen=True)
class _Auto:
    """One ``tw.auto``: whether a stream steps by it, whether tensors are contiguous along it, the end of its axis."""

    name: str
    streams: bool
    contiguous: bool
    stop: Expr | None


@dataclass(frozen=True)
class Structure:
    """The structure of a kernel's values: per value the auto of each axis that has one, and end and size of its other
    axes."""

    autos: Mapping[str, _Auto]
    values: tuple[tuple[tuple[str, ...], tuple[tuple[Expr, int], ...]], ...]
    element_bytes: int
    reduces: bool
    carried: bool
    """Whether a scan begins with a state that a stream carries."""
    unaligned: Mapping[Expr, int]
    """Ends of axes along which a tensor is contiguous but its rows are not aligned: elements between 16-byte
    boundaries. Tiles along them start up to that many elements before the row (``schedule.misaligned_rows``)."""


def unaligned_ends(kernel: tile.Kernel, facts: CallFacts) -> dict[Expr, int]:
    """The extents of rows that do not start at multiples of 16 bytes, with the elements between two of those."""
    found: dict[Expr, int] = {}
    for arg in kernel.body.block.args:
        if isinstance(arg.type, tile.TensorType):
            own = facts.of(arg.type.tensor_name.data)
            if own.unit_axis is not None and own.align_bytes < MAX_VECTOR_BYTES:
                found[arg.type.dims.data[own.unit_axis].expr] = MAX_VECTOR_BYTES // arg.type.element.bytes
    return found


def choose_extents(structure: Structure, limits: Mapping[Expr, int], target: Target) -> list[ExtentChoice]:
    """Tile extents for the autos of a kernel without matrix products; the last choice fits every tensor.

    ``limits`` are the sizes of axes that the variant narrows. Tiles that stream down their columns are half a line wide
    where there are so few that every SM has one at most (H200, 16384 rows of about 4096: bf16 aligned to 2 bytes 52 us
    instead of 106, with a tile at the edge 48 instead of 66).
    """
    if not structure.autos:
        return [ExtentChoice(TRUE, {})]
    widest = _extents(structure, limits, None)
    choices = [ExtentChoice(TRUE, widest)]
    rows = [a for a in structure.autos.values() if a.contiguous and not a.streams and a.stop is not None]
    if len(structure.autos) > 1 and len(rows) == 1:
        (row,) = rows
        for width in reversed(_NARROW):
            predicate = row.stop <= width if row.stop is not None else FALSE
            if width < widest[row.name] and predicate != FALSE:
                choices.insert(0, ExtentChoice(predicate, _extents(structure, limits, width)))
        half = widest[row.name] // 2
        if half * structure.element_bytes * 2 == _COLUMN_BYTES and any(a.streams for a in structure.autos.values()):
            few = FALSE if row.stop is None else row.stop <= half * target.sm_count
            if few != FALSE:
                choices.insert(-1, ExtentChoice(few, _extents(structure, limits, half)))
    if structure.carried and (long := _long_rows(structure, target)) is not None:
        choices.insert(-1, long)
    known = [c for c in choices if c.predicate == TRUE]
    return known[:1] if len(known) > 1 else choices


def _long_rows(structure: Structure, target: Target) -> ExtentChoice | None:
    """Long steps for long rows that are scanned by one program each, because so few programs hide too little
    latency."""
    steps = [a for a in structure.autos.values() if a.streams and a.contiguous]
    rows = [a.stop for a in structure.autos.values() if not a.streams]
    if len(steps) != 1 or steps[0].stop is None or None in rows:
        return None
    programs = prod((stop for stop in rows if stop is not None), start=Const(1))
    few = all_of([steps[0].stop >= _LONG_STEP, programs <= _FEW_ROWS * target.sm_count])
    return None if few == FALSE else ExtentChoice(few, {**dict.fromkeys(structure.autos, 1), steps[0].name: _LONG_STEP})


def of_long_steps(structure: Structure, extents: Mapping[str, int]) -> Mapping[str, int]:
    """The extents with long steps of a stream along rows, for kernels of few programs."""
    steps = [a.name for a in structure.autos.values() if a.streams and a.contiguous]
    if len(steps) != 1:
        return extents
    return {**dict.fromkeys(structure.autos, 1), steps[0]: _LONG_STEP}


def single_row(structure: Structure, columns: Expr) -> dict[str, int] | None:
    """Tile extents for matrices of ``columns`` columns that are flattened to one row; None where the schedule does not
    choose the extent along it."""
    along = [a.name for a in structure.autos.values() if a.contiguous and not a.streams and a.stop == columns]
    if len(along) != 1:
        return None
    return {**dict.fromkeys(structure.autos, 1), along[0]: floor_power(_TILE_BYTES // structure.element_bytes)}


def probe(autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel], facts: CallFacts) -> Structure:
    """Finds the axes that each auto sizes, from two traces."""
    if not autos:
        return Structure({}, (), 1, False, False, {})
    probes = dict(zip(autos, _PRIMES, strict=False))
    kernel = trace(probes)
    classes = classify(kernel)
    values = [r for op in kernel.walk() for r in op.results if is_tile(r)]
    smallest = [r for op in trace(dict.fromkeys(autos, 1)).walk() for r in op.results if is_tile(r)]
    counters = {s.counter.data for s in kernel.walk() if isinstance(s, tile.StreamLoop)}
    sizes: dict[object, int] = {}
    owners: dict[object, str] = {}
    streamed: set[str] = set()
    stops: dict[str, Expr] = {}
    ends: dict[object, Expr] = {}
    for value, small in zip(values, smallest, strict=True):
        for root, span, base in zip(classes.of(value), spans_of(value), spans_of(small), strict=True):
            if root is None or span is None or base is None:
                continue
            sizes[root] = max(sizes.get(root, 1), span.size)
            ends[root] = span.stop
            for name, prime in probes.items():
                if span.size == base.size * prime:
                    owners[root] = name
                    stops[name] = span.stop
                    if span.origin.symbols & counters:
                        streamed.add(name)
    unit = {owners.get(c) for c in _unit_classes(kernel, classes, facts, owners)}
    found = {name: _Auto(name, name in streamed, name in unit, stops.get(name)) for name in autos}
    shapes: list[tuple[tuple[str, ...], tuple[tuple[Expr, int], ...]]] = []
    for value in values:
        roots = [c for c in classes.of(value) if c is not None]
        here = tuple(owners[c] for c in roots if c in owners)
        shapes.append((here, tuple((ends[c], sizes[c]) for c in roots if c not in owners)))
    tensors = [a.type for a in kernel.body.block.args if isinstance(a.type, tile.TensorType)]
    smallest_bytes = min((t.element.bytes for t in tensors), default=4)
    reduces = any(isinstance(op, tile.Reduce | tile.Scan | tile.Sort) for op in kernel.walk())
    carried = any(
        isinstance(op, tile.Scan) and op.before
        for s in kernel.walk()
        if isinstance(s, tile.StreamLoop)
        for op in s.walk()
    )
    return Structure(found, tuple(shapes), smallest_bytes, reduces, carried, unaligned_ends(kernel, facts))


def _extents(structure: Structure, limits: Mapping[Expr, int], narrow: int | None) -> dict[str, int]:
    """Per auto, the least extent that any value requires."""
    choice: dict[str, int] = {}
    for names, axes in structure.values:
        here = [structure.autos[n] for n in names]
        fixed = prod(min(size, limits.get(stop, size)) for stop, size in axes)
        sizes = _share(here, fixed, structure.element_bytes, narrow, reduces=structure.reduces)
        for name, size in _room_for_skew(structure, here, sizes).items():
            choice[name] = min(choice.get(name, size), size)
    return {name: choice.get(name, 1) for name in structure.autos}


def _room_for_skew(structure: Structure, autos: Sequence[_Auto], sizes: Mapping[str, int]) -> dict[str, int]:
    """One vector less along the row of a tile of one unaligned row, whose first vector reaches before it."""
    rows = [a for a in autos if sizes[a.name] > 1]
    if len(rows) == 1 and rows[0].contiguous and rows[0].stop in structure.unaligned:
        (row,), size = rows, sizes[rows[0].name]
        vector = structure.unaligned[row.stop] if row.stop is not None else 0
        if size >= _ALONE:
            return {**sizes, row.name: size - vector}
    return dict(sizes)


def _share(
    autos: Sequence[_Auto], fixed: int, element_bytes: int, narrow: int | None, *, reduces: bool
) -> dict[str, int]:
    """Extents of the autos of one value, whose other axes have ``fixed`` elements; ``narrow`` bounds the rows."""
    budget = max(1, _TILE_BYTES // element_bytes // fixed)
    if not autos:
        return {}
    if len(autos) == 1:
        whole_rows = reduces and fixed > 1 and not autos[0].contiguous
        return {autos[0].name: floor_power(_ROWS_BYTES // element_bytes // fixed if whole_rows else budget)}
    if len(set(autos)) < len(autos):  # one auto along several axes: a transpose most likely, as below
        side = floor_power(round((4 * budget) ** (1 / len(autos))))
        return dict.fromkeys((a.name for a in autos), side)
    contiguous = [a for a in autos if a.contiguous]
    others = [a for a in autos if not a.contiguous]
    if len(contiguous) >= 2:  # transposed on the way: whole lines along both
        side = floor_power(isqrt(4 * budget))
        first, last = sorted(contiguous[-2:], key=lambda a: a.name)
        sizes = {first.name: side, last.name: floor_power(4 * budget // side)}
        return sizes | {a.name: 1 for a in (*others, *contiguous[:-2])}
    main = contiguous[0] if contiguous else autos[-1]
    rest = [a for a in autos if a is not main]
    stepping = [a for a in rest if a.streams]
    if stepping and not main.streams:
        width = min(_COLUMN_BYTES // element_bytes, narrow or budget)
        depth = max(1, _COLUMN_TILE_BYTES // element_bytes // width // fixed)
        return {main.name: width, stepping[0].name: depth} | {a.name: 1 for a in rest if a is not stepping[0]}
    width = _TILE_BYTES if main.streams else min(_ROW_BYTES, (narrow or _ROW_BYTES) * element_bytes)
    result = {main.name: min(floor_power(budget), width // element_bytes)}
    left = max(1, budget // result[main.name])
    for auto in reversed(rest):
        result[auto.name] = floor_power(left)
        left = max(1, left // result[auto.name])
    return result


def _unit_classes(kernel: tile.Kernel, classes: Classes, facts: CallFacts, owners: Mapping[object, str]) -> set[object]:
    """Classes along which a tensor with a large share of the traffic is contiguous."""
    found: list[tuple[int, object]] = []
    for op in kernel.walk():
        if not isinstance(op, Access | Indirect):
            continue
        tensor = tile.tensor_type(op.tensor)
        along = contiguous_along(op, facts.of(tensor.tensor_name.data).unit_axis)
        roots = classes.of(moved(op))
        # an auto's extent is not known yet; all count the same
        sizes = [
            _NOMINAL if root in owners else span.size
            for root, span in zip(roots, spans_of(moved(op)), strict=True)
            if span is not None
        ]
        weight = prod(sizes) * tensor.element.bytes
        root = None if along is None else roots[along]
        if root is not None:
            found.append((weight, root))
    heaviest = max((weight for weight, _ in found), default=0)
    return {root for weight, root in found if weight * 4 >= heaviest}


def bound_ladder(
    bounds: Sequence[tuple[Expr, int]], unaligned: Mapping[Expr, int]
) -> list[tuple[tuple[Expr, int], ...]]:
    """Sizes for which an ``upto`` axis gets a kernel of its own, smallest first.

    Several bounds shrink together, each no further than its own size allows.
    """
    if not bounds:
        return [()]
    reaches = {extent: vector - 1 for extent, vector in unaligned.items()}
    largest = max(upto for _, upto in bounds)
    ladder: list[tuple[tuple[Expr, int], ...]] = []
    for rung, reaching in sorted(_rungs(largest, skewed=any(extent in reaches for extent, _ in bounds))):
        sizes = tuple(
            (extent, max(min(upto, _SMALLEST_BOUND), -(-upto * rung // largest) - reaches.get(extent, 0) * reaching))
            for extent, upto in bounds
        )
        if sizes not in ladder:
            ladder.append(sizes)
    return ladder


def _rungs(largest: int, *, skewed: bool) -> Iterator[tuple[int, bool]]:
    """Sizes for a bound of ``largest``: halves of halves, and some three quarters, where rows of that size leave room
    for another CTA on an SM (measured on H200: 24576 is 44 % slower in the next size's kernel, 12288 4 %; 5000 and
    49152 2 %, and 200 in one for 512 3 %).

    Unaligned rows that fill a CTA get five quarters instead: most often they are a few elements longer than a power of
    two. True beside those, whose first vector reaches before the row.
    """
    yield largest, False
    size = largest
    while size > _SMALLEST_BOUND:
        if not skewed and _FINE[0] <= size <= _FINE[1]:
            yield size * 3 // 4, False
        if not skewed and _BARELY[0] <= size <= _BARELY[1] and size * 5 // 4 < largest:
            yield size * 5 // 4, False
        size = size // 2 if size > _COARSE else max(size // 4, _SMALLEST_BOUND)
        yield (size * 5 // 4, True) if skewed and size >= _ALONE else (size, False)
