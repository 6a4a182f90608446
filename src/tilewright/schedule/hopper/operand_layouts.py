"""Loaded operands chosen together: one layout for every tile that tensor copies bring, whoever multiplies it.

All tiles of a step share the copy unit, the stages of a pipeline and the bandwidth of shared memory, so their
layouts are one choice (``legal.asynchronous.choose``), not one for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tilewright.hw.tensormap import Swizzle
from tilewright.legal.asynchronous import AsyncPlan, ProductReader, async_plan, choose
from tilewright.legal.tma import TensorMapPlan
from tilewright.legal.wgmma import OperandRole, WgmmaOperandPlan
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element


class OperandCandidate(Protocol):
    """A loaded tile with its map, as one product reads it."""

    @property
    def load(self) -> tile.Load | tile.Gather: ...
    @property
    def map(self) -> TensorMapPlan: ...
    @property
    def plan(self) -> WgmmaOperandPlan: ...


T = TypeVar("T", bound=OperandCandidate)


@dataclass(frozen=True)
class OperandRead(Generic[T]):
    """What one product reads as one operand, with every map by which tensor copies could bring it."""

    dot: tile.Dot
    role: OperandRole
    n: int
    candidates: tuple[T, ...]


def choose_layouts(reads: Sequence[OperandRead[T]]) -> Mapping[tuple[tile.Dot, OperandRole], T]:
    """The candidate that serves each read: of all combinations the one with the shortest pipeline step.

    A tile that several products read has one layout that all can read; if there is none, each read takes its first
    candidate.
    """
    options = layouts(reads)
    legal = {load: candidates for load, candidates in options.items() if candidates}
    best = choose([list(candidates.values()) for candidates in legal.values()]) if legal else None
    swizzles = {load: p.plan.swizzle for load, p in zip(legal, best.plans, strict=True)} if best else {}
    found: dict[tuple[tile.Dot, OperandRole], T] = {}
    for read in reads:
        if read.candidates:
            swizzle = swizzles.get(read.candidates[0].load)
            found[read.dot, read.role] = next(
                (w for w in read.candidates if w.map.swizzle is swizzle), read.candidates[0]
            )
    return found


def layouts(reads: Sequence[OperandRead[T]]) -> dict[tile.Load | tile.Gather, dict[Swizzle, AsyncPlan]]:
    """The layouts of each loaded tile that all its readers support."""
    tiles: dict[tile.Load | tile.Gather, list[OperandRead[T]]] = {}
    for read in reads:
        if read.candidates:
            tiles.setdefault(read.candidates[0].load, []).append(read)
    return {load: _shared_layouts(own) for load, own in tiles.items()}


def _shared_layouts(reads: Sequence[OperandRead[T]]) -> dict[Swizzle, AsyncPlan]:
    """Layouts of one tile that all its readers can read, with their asynchronous plans."""
    result: dict[Swizzle, AsyncPlan] = {}
    for candidate in reads[0].candidates:
        swizzle = candidate.map.swizzle
        candidates = [next((w for w in read.candidates if w.map.swizzle is swizzle), None) for read in reads]
        readers = [
            ProductReader(r.role, w.plan.major, r.n) for r, w in zip(reads, candidates, strict=True) if w is not None
        ]
        if len(readers) == len(reads):
            plan = async_plan(candidate.map, readers, element(candidate.load.result))
            if plan is not None:
                result[swizzle] = plan
    return result
