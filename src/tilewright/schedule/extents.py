"""Chooses tile extents: what ``tw.auto`` becomes, and for which sizes an ``upto`` axis gets kernels of its own.

The kernel is traced with extents of 1 and again with a distinct prime for every auto, so that the ranges each one sizes
are known by their growth; then sizes are chosen from how much one CTA should move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from tilewright.base.expr import Expr
from tilewright.lang.axes import Span
from tilewright.schedule.classes import Classes, classify
from tilewright.schedule.facts import Facts
from tilewright.schedule.tiles import coords_of, is_tile, moved, spans_of
from tilewright.tile import dialect as tile

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
_TILE_BYTES = 8192
"""Bytes of one tensor that a CTA moves at a time: 256 threads with two 16-byte vectors each (measured on H200: add,
softmax and SwiGLU reach the copy's bandwidth with it; larger tiles lose occupancy, smaller ones have too little in
flight)."""
_COLUMN_BYTES = 128
"""Width of a tile that streams down its columns: one cache line, so that narrow tensors still give every SM a CTA."""
_COLUMN_TILE_BYTES = 65536
"""Bytes in flight of such a CTA; it is alone on its SM."""
_SMALLEST_BOUND = 128
_NOMINAL = 64


@dataclass(frozen=True)
class _Auto:
    """One ``tw.auto``: its classes, whether a stream steps by it, and whether some tensor is contiguous along it."""

    name: str
    classes: frozenset[object]
    streams: bool
    contiguous: bool


def choose_extents(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel], facts: Facts
) -> dict[str, int]:
    """Tile extents for the autos of a kernel without matrix products."""
    if not autos:
        return {}
    probes = dict(zip(autos, _PRIMES, strict=False))
    kernel = trace(probes)
    classes = classify(kernel)
    values = [r for op in kernel.walk() for r in op.results if is_tile(r)]
    smallest = [r for op in trace(dict.fromkeys(autos, 1)).walk() for r in op.results if is_tile(r)]
    counters = {s.counter.data for s in kernel.walk() if isinstance(s, tile.Stream)}
    sizes: dict[object, int] = {}
    owners: dict[object, str] = {}
    streamed: set[str] = set()
    for value, small in zip(values, smallest, strict=True):
        for root, span, base in zip(classes.of(value), spans_of(value), spans_of(small), strict=True):
            if root is None or span is None or base is None:
                continue
            sizes[root] = max(sizes.get(root, 1), span.size)
            for name, prime in probes.items():
                if span.size == base.size * prime:
                    owners[root] = name
                    if span.origin.symbols & counters:
                        streamed.add(name)
    unit = _unit_classes(kernel, classes, facts, owners)
    found = {
        name: _Auto(
            name,
            frozenset(c for c, o in owners.items() if o == name),
            name in streamed,
            any(owners.get(c) == name for c in unit),
        )
        for name in autos
    }
    narrowest = min(
        (a.type.element.bytes for a in kernel.body.block.args if isinstance(a.type, tile.TensorType)), default=4
    )
    choice: dict[str, int] = {}
    for value in values:
        roots = [c for c in classes.of(value) if c is not None]
        here = list(dict.fromkeys(found[owners[c]].name for c in roots if c in owners))
        fixed = prod(sizes[c] for c in roots if c not in owners)
        for name, size in _share([found[n] for n in here], fixed, narrowest).items():
            choice[name] = min(choice.get(name, size), size)
    return {name: choice.get(name, 1) for name in autos}


def _share(autos: Sequence[_Auto], fixed: int, element_bytes: int) -> dict[str, int]:
    """Extents of the autos of one value, whose other axes have ``fixed`` elements."""
    budget = max(1, _TILE_BYTES // element_bytes // fixed)
    if not autos:
        return {}
    if len(autos) == 1:
        return {autos[0].name: _floor_power(budget)}
    contiguous = [a for a in autos if a.contiguous]
    others = [a for a in autos if not a.contiguous]
    if len(contiguous) >= 2:
        side = _floor_power(isqrt(budget))
        return {a.name: side for a in contiguous[-2:]} | {a.name: 1 for a in (*others, *contiguous[:-2])}
    main = contiguous[0] if contiguous else autos[-1]
    rest = [a for a in autos if a is not main]
    stepping = [a for a in rest if a.streams]
    if stepping and not main.streams:
        width = _COLUMN_BYTES // element_bytes
        depth = max(1, _COLUMN_TILE_BYTES // element_bytes // width // fixed)
        return {main.name: width, stepping[0].name: depth} | {a.name: 1 for a in rest if a is not stepping[0]}
    width = min(_floor_power(budget), _TILE_BYTES // element_bytes // (1 if main.streams else 4))
    left = max(1, budget // width)
    result = {main.name: width}
    for auto in reversed(rest):
        result[auto.name] = _floor_power(left)
        left = max(1, left // result[auto.name])
    return result


def _unit_classes(kernel: tile.Kernel, classes: Classes, facts: Facts, owners: Mapping[object, str]) -> set[object]:
    """Classes along which a tensor is contiguous that makes up a good part of the traffic."""
    found: list[tuple[int, object]] = []
    for op in kernel.walk():
        if not isinstance(op, tile.Load | tile.Store | tile.ReduceAdd):
            continue
        tensor, coords = tile.tensor_type(op.tensor), coords_of(op)
        unit = facts.of(tensor.tensor_name.data).unit_axis
        roots = classes.of(moved(op))
        spans = [c for c in coords if isinstance(c, Span)]
        # an auto's extent is not known yet; all count the same
        sizes = [_NOMINAL if root in owners else span.size for root, span in zip(roots, spans, strict=True)]
        weight = prod(sizes) * tensor.element.bytes
        if unit is None or not isinstance(coords[unit], Span):
            continue
        root = roots[sum(isinstance(c, Span) for c in coords[:unit])]
        if root is not None:
            found.append((weight, root))
    heaviest = max((weight for weight, _ in found), default=0)
    return {root for weight, root in found if weight * 4 >= heaviest}


def _floor_power(n: int) -> int:
    return 1 << (max(1, n).bit_length() - 1)


def bound_ladder(bounds: Sequence[tuple[Expr, int]]) -> list[tuple[tuple[Expr, int], ...]]:
    """Sizes for which an ``upto`` axis gets a kernel of its own, smallest first: the bound halved again and again.

    Several bounds shrink together, each no further than its own size allows.
    """
    if not bounds:
        return [()]
    steps = max((upto // _SMALLEST_BOUND).bit_length() for _, upto in bounds)
    ladder: list[tuple[tuple[Expr, int], ...]] = []
    for step in reversed(range(max(1, steps))):
        sizes = tuple((extent, max(min(upto, _SMALLEST_BOUND), -(-upto >> step))) for extent, upto in bounds)
        if sizes not in ladder:
            ladder.append(sizes)
    return ladder
