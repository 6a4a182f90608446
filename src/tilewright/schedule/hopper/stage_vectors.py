"""Vectors and single elements that a stream's body loads at each step, brought to the stages of its pipeline.

The consumers would wait for them in every step; the producer copies them stages ahead, with the same full barrier as
the tiles: its one thread by tensor copies where these are legal, else all of its threads by cp.async::

    producer    wait empty . copies of tiles . cp.async of vectors . arrive on full when these are done
    consumers   wait full . vectors to registers . wait for the turn . product . arrive empty

Scales of blocks are such vectors (docs/measured/products.md, "Other layouts, 8-bit floats, batches, an epilogue"), and
the sums of rows in the gradients of attention (the same, "Gradients of attention").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Expr, Sym
from tilewright.hw.tensormap import Swizzle
from tilewright.lang.axes import Span
from tilewright.legal.facts import Facts
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.operands import reaches_edge, tensor_map
from tilewright.schedule.placement import Placement, aligned
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, element, loaded_tests, spans_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import values_at
from tilewright.transport.ops.thread_copies import COPY_BYTES

DESTINATION_ALIGN_BYTES = 128
"""Alignment of a tensor copy's destination in shared memory (PTX ISA 9.1, 9.7.9.25.5.2)."""


@dataclass(frozen=True)
class StageVector:
    """``size`` consecutive elements of a load along dimension ``axis`` of its tensor, copied through ``map``; without
    one ``vector`` at a time by threads."""

    load: tile.Load
    size: int
    vector: int
    axis: int
    map: TensorMapPlan | None = None

    @property
    def tx_bytes(self) -> int:
        """Bytes that tensor copies bring to a stage."""
        return 0 if self.map is None else self.map.tx_bytes

    @property
    def count(self) -> int:
        """Copies of each of the producer's threads."""
        return -(-self.size // (self.vector * a.WARPGROUP_THREADS))

    @property
    def active(self) -> Expr:
        """Whether a thread makes copy ``r``."""
        whole = self.size == self.vector * a.WARPGROUP_THREADS * self.count
        return TRUE if whole else self.first < self.size

    @property
    def first(self) -> Expr:
        """The first element of copy ``r``."""
        return (Sym(t.THREAD) + Sym(t.REGISTER) * a.WARPGROUP_THREADS) * self.vector


def stage_vectors(
    stream: tile.StreamLoop, kernel: tile.Kernel, facts: CallFacts, placement: Placement, threads: int
) -> list[StageVector]:
    """The loads of a stream's body that the producer's threads can copy: of at most one axis, at a place that depends
    on the step and on nothing that was loaded, from a tensor that nobody writes, in units of cp.async. ``threads`` read
    them."""
    if any(isinstance(op, tile.Bind) for op in kernel.walk()):
        return []
    found: list[StageVector] = []
    for op in stream.body.block.ops:
        if not isinstance(op, tile.Load) or len(spans_of(op.result)) > 1 or loaded_tests(op):
            continue
        read_only = all(isinstance(use.operation, tile.Load) for use in op.tensor.uses)
        vector = _vector(op, facts, placement, threads) if read_only and _moves(op, stream) else None
        if vector is not None:
            found.append(vector)
    return found


def _moves(op: tile.Load, stream: tile.StreamLoop) -> bool:
    places = (c.origin if isinstance(c, Span) else c for c in coords_of(op))
    return any(stream.counter.data in place.symbols for place in places)


def _vector(op: tile.Load, facts: CallFacts, placement: Placement, threads: int) -> StageVector | None:
    """The vector for a load, if cp.async can copy it."""
    coords, kind = coords_of(op), element(op.result)
    runs = [(axis, c) for axis, c in enumerate(coords) if isinstance(c, Span)]
    if not runs:
        return StageVector(op, 1, 1, 0) if kind.bytes in COPY_BYTES and coords else None
    ((axis, span),) = runs
    (cls,) = placement.axes_of[op.result]
    if cls is None or _covered(placement, cls, threads) > span.size:
        return None
    known = facts.of(tensor_name(op))
    width = gcd(aligned(known.vector(kind), span.origin), span.size) if known.unit_axis == axis else 1
    width = min(width, max(COPY_BYTES) // kind.bytes)
    return StageVector(op, span.size, width, axis) if width * kind.bytes in COPY_BYTES else None


def _covered(placement: Placement, cls: int, threads: int) -> int:
    """The elements of a class that the consumers' threads and registers cover."""
    home = placement.home
    (place,) = home.coordinates((cls,), Sym(t.THREAD), Sym(t.REGISTER))
    thread, register = np.meshgrid(np.arange(threads), np.arange(home.registers((cls,))), indexing="ij")
    return int(values_at(place, {t.THREAD: thread, t.REGISTER: register}).max()) + 1


def vector_copies(vector: StageVector, tensor: SSAValue, shared: SSAValue, base: Expr) -> a.CpAsync:
    """The copies of one step to byte ``base``. What lies outside of the load's domain arrives as zeros."""
    coords = [c.origin if isinstance(c, Span) else c for c in coords_of(vector.load)]
    spans = {axis: c for axis, c in enumerate(coords_of(vector.load)) if isinstance(c, Span)}
    if spans:
        coords[vector.axis] = coords[vector.axis] + vector.first
    size = element(vector.load.result).bytes
    return a.CpAsync(
        tensor,
        shared,
        coords=coords,
        axis=vector.axis,
        stop=spans[vector.axis].stop if spans else coords[vector.axis] + 1,
        guard=TRUE,
        active=vector.active,
        offset=base + vector.first * size,
        vector=vector.vector,
        count=vector.count,
        base=base,
        bytes=vector.size * size,
    )


def through_map(vector: StageVector, known: Facts) -> StageVector:
    """The vector copied by TMA, where the rules allow a map and zeros are filled beyond its domain."""
    coords = coords_of(vector.load)
    if not any(isinstance(c, Span) for c in coords) or not reaches_edge(vector.load, 0):
        return vector
    if vector.size * element(vector.load.result).bytes % DESTINATION_ALIGN_BYTES:
        return vector
    extents = [c.size if isinstance(c, Span) else None for c in coords]
    return replace(vector, map=tensor_map(vector.load, extents, Swizzle.NONE, known))


def named(vectors: Sequence[StageVector]) -> str:
    """The names of the vectors' tensors."""
    return ", ".join(dict.fromkeys(tensor_name(v.load) for v in vectors))
