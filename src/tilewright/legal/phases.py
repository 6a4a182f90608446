"""Tensors whose rows begin between 16-byte units, read through maps that don't.

A row pitch of 8200 bytes can't be written in a map, but every second row begins 16400 bytes after the one before the
last, and that can. So rows are dealt to ``p`` maps, row ``r`` to map ``r % p``, with ``p`` the least number for which
``p * pitch`` is a multiple of 16. A map whose first row begins inside a 16-byte unit starts at the unit, is that much
wider, and its column coordinates are shifted; coordinates need no alignment. Out-of-bounds columns and rows are those
of the tensor, so fills and clipped stores stay right::

    tensor rows (pitch 8200)      map 0: rows 0 2 4 ..   pitch 16400, shift 0
    0 |--------|                  map 1: rows 1 3 5 ..   pitch 16400, shift 4 elements (8200 % 16 = 8 bytes)
    1     |--------|
    2         |--------|          shared memory: the rows of map 0, then those of map 1

Bytes before the tensor are addressed only inside its first 16-byte unit, and never delivered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from tilewright.base.expr import FALSE, Expr, all_of, ceildiv, divisor, expr, sym
from tilewright.hw.target import Target
from tilewright.hw.tensormap import ADDRESS_ALIGN_BYTES
from tilewright.legal.facts import Facts
from tilewright.legal.landing import LandingTile
from tilewright.legal.tma import Box, TensorMapPlan, TileAccess, candidates


@dataclass(frozen=True)
class Phases:
    """One map a phase. Tile row ``r`` lands at row ``(r % p) * (rows / p) + r // p`` of ``shared``, p the number of
    maps; tiles must begin at a row that p divides. Guards of all maps must hold at launch."""

    maps: tuple[TensorMapPlan, ...]
    shared: LandingTile

    def landing_row(self, row: int) -> int:
        """Where row ``row`` of the tile lies in ``shared``."""
        phases = len(self.maps)
        return row % phases * (self.shared.extents[1] // phases) + row // phases


def phases_of(access: TileAccess, facts: Facts, target: Target) -> Phases | None:
    """Maps of ``access`` by phase, or None if rows, tile or another axis do not admit them.

    With rows already aligned there is one map, shifted if the address needs it.
    """
    size = access.dtype.bytes
    kept = [i for i, tile in enumerate(access.tile) if tile is not None]
    inner = next((i for i in reversed(kept) if facts.decide(expr(access.strides[i]).eq(1))), None)
    others = [i for i in kept if i != inner and (access.tile[i] or 1) > 1]
    if inner is None or len(others) > 1:
        return None
    row = others[0] if others else None
    pitch = facts.apply(access.strides[row]) * size if row is not None else expr(0)
    phases = ADDRESS_ALIGN_BYTES // gcd(divisor(pitch, facts.divisors), ADDRESS_ALIGN_BYTES)
    rows = access.tile[row] if row is not None else None
    if rows is not None and rows % phases:
        return None
    maps: list[TensorMapPlan] = []
    for phase in range(phases):
        found = _map(access, facts, target, inner, row, pitch, phase, phases)
        if found is None:
            return None
        maps.append(found)
    extents = tuple(e * phases if d == 1 else e for d, e in enumerate(maps[0].shared.extents))
    shared = replace(maps[0].shared, extents=extents)
    return Phases(tuple(_placed(m, shared, phase, phases) for phase, m in enumerate(maps)), shared)


def _map(
    access: TileAccess,
    facts: Facts,
    target: Target,
    inner: int,
    row: int | None,
    pitch: Expr,
    phase: int,
    phases: int,
) -> TensorMapPlan | None:
    """The map of one phase, its copies still placed as if it were alone."""
    size = access.dtype.bytes
    first = facts.apply(access.address) + pitch * phase
    shift = (first % ADDRESS_ALIGN_BYTES) // size
    shape, strides, tile = list(access.shape), list(access.strides), list(access.tile)
    shape[inner] = facts.apply(shape[inner]) + shift
    if row is not None:
        shape[row] = ceildiv(facts.apply(shape[row]) - phase, phases)
        strides[row] = facts.apply(strides[row]) * phases
        tile[row] = (tile[row] or 1) // phases
    aligned = first // ADDRESS_ALIGN_BYTES * ADDRESS_ALIGN_BYTES
    part = replace(access, shape=tuple(shape), strides=tuple(strides), tile=tuple(tile), address=aligned)
    found = candidates(part, facts, target, limit=1).plans
    if not found or (row is not None and found[0].tile_axes[1:2] != (row,)):
        return None
    moved = {f"index{inner}": sym(f"index{inner}") + shift}
    if row is not None:
        moved[f"index{row}"] = sym(f"index{row}") // phases
    coordinates = tuple(c.substitute(moved) for c in found[0].coordinates)
    whole = facts.residual((facts.apply(access.address) % size).eq(0))
    if whole == FALSE:
        return None
    return replace(found[0], coordinates=coordinates, guard=all_of((found[0].guard, whole)))


def _placed(plan: TensorMapPlan, shared: LandingTile, phase: int, phases: int) -> TensorMapPlan:
    """``plan`` with its copies at their rows of the whole tile."""
    if len(shared.extents) == 1:
        return plan
    above = shared.extents[1] // phases * phase
    kept = len(shared.extents)
    boxes = tuple(
        Box(box.start, shared.logical_offset((box.start[0], box.start[1] + above, *box.start[2:kept])))
        for box in plan.boxes
    )
    return replace(plan, shared=shared, boxes=boxes)
