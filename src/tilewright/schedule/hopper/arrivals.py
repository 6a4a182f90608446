"""Loaded operands chosen together: one layout for every tile that tensor copies bring, whoever multiplies it.

All tiles of a step share the copy unit, the slots of a ring and the bandwidth of shared memory, so their layouts are
one choice (``legal.asynchronous.choose``), not one for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tilewright.hw.tensormap import Swizzle
from tilewright.legal.asynchronous import AsyncPlan, ProductReader, async_plan, choose
from tilewright.legal.tma import TensorMapPlan
from tilewright.legal.wgmma import Role, WgmmaOperandPlan
from tilewright.schedule.tiles import element
from tilewright.tile import dialect as tile


class Arrival(Protocol):
    """A loaded tile with its map, as one product reads it."""

    @property
    def load(self) -> tile.Load: ...
    @property
    def map(self) -> TensorMapPlan: ...
    @property
    def plan(self) -> WgmmaOperandPlan: ...


T = TypeVar("T", bound=Arrival)


@dataclass(frozen=True)
class Read(Generic[T]):
    """What one product reads as one operand, with every way in which tensor copies could bring it."""

    dot: tile.Dot
    role: Role
    n: int
    ways: tuple[T, ...]


def together(reads: Sequence[Read[T]]) -> Mapping[tuple[tile.Dot, Role], T]:
    """The way that each read is served: of all combinations the one with the shortest step of a ring.

    A tile that several products read lands in one layout, which all of them can read; where there is none, each takes
    the first of its own.
    """
    options = layouts(reads)
    legal = {load: ways for load, ways in options.items() if ways}
    best = choose([list(ways.values()) for ways in legal.values()]) if legal else None
    swizzles = {load: p.plan.swizzle for load, p in zip(legal, best.plans, strict=True)} if best else {}
    found: dict[tuple[tile.Dot, Role], T] = {}
    for read in reads:
        if read.ways:
            swizzle = swizzles.get(read.ways[0].load)
            found[read.dot, read.role] = next((w for w in read.ways if w.map.swizzle is swizzle), read.ways[0])
    return found


def layouts(reads: Sequence[Read[T]]) -> dict[tile.Load, dict[Swizzle, AsyncPlan]]:
    """The layouts in which each loaded tile could land for all who read it."""
    tiles: dict[tile.Load, list[Read[T]]] = {}
    for read in reads:
        if read.ways:
            tiles.setdefault(read.ways[0].load, []).append(read)
    return {load: _shared_layouts(own) for load, own in tiles.items()}


def _shared_layouts(reads: Sequence[Read[T]]) -> dict[Swizzle, AsyncPlan]:
    """Layouts of one tile that all its readers can read, with their asynchronous plans."""
    result: dict[Swizzle, AsyncPlan] = {}
    for way in reads[0].ways:
        swizzle = way.map.swizzle
        ways = [next((w for w in read.ways if w.map.swizzle is swizzle), None) for read in reads]
        readers = [ProductReader(r.role, w.plan.major, r.n) for r, w in zip(reads, ways, strict=True) if w is not None]
        if len(readers) == len(reads):
            plan = async_plan(way.map, readers, element(way.load.result))
            if plan is not None:
                result[swizzle] = plan
    return result
