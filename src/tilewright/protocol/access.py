"""The accesses of a kernel to its tensors as plain data: who touches which coordinates, under which conditions.

An access map is the set of points

    { (indices) -> coords  |  every index in its range, every condition and the guard hold }

over the parameters of the launch. Indices are the programs' coordinates, loop counters, ``tid`` and ``r``, outermost
first; ranges, definitions, conditions, guard and coordinates are integer expressions over parameters, indices,
definitions and loaded integers that come before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tilewright.base.expr import TRUE, Const, Expr, all_of

ONE: Expr = Const(1)


class AccessKind(Enum):
    """The kind of an access: load, store or reduction."""

    READ = "read"
    WRITE = "write"
    REDUCE = "reduce"  # an atomic addition


class IndexRole(Enum):
    """How two points of an access may differ in an index."""

    PROGRAM = "program"
    COUNTER = "counter"
    THREAD = "thread"
    REGISTER = "register"
    LOADED = "loaded"  # an integer that a program loads
    AXIS = "axis"  # position along an axis of a tile


@dataclass(frozen=True)
class LaunchParameter:
    """A value given at launch: an extent, a stride or an integer scalar, with what is known of it."""

    name: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class RaggedTiles:
    """What tiles of a ``grid`` (the offsets and the size) an integer is the begin of: the tile of a ``program`` ends
    behind ``size`` rows, or at ``end``; without a size at ``end``, where it has a whole group. ``rest``: of the rows in
    no group."""

    grid: str
    program: str
    end: str
    size: int | None
    rest: bool


@dataclass(frozen=True)
class LoopIndex:
    """``name`` takes ``begin, begin + step, ...`` below ``end``."""

    name: str
    role: IndexRole
    begin: Expr
    end: Expr
    step: Expr = ONE
    per: tuple[str, ...] = ()
    """Of an integer that is loaded: the indices with which it is loaded anew. Where these are equal, it is."""
    tiles: RaggedTiles | None = None
    """Of an integer that a program computes from offsets: the tiles that begin there."""


@dataclass(frozen=True)
class NamedValue:
    """Binds ``name`` to ``value``."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Loaded:
    """``name`` is an integer that was loaded or computed from what was: any from ``low`` to ``high``."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class AccessMap:
    """All accesses of one op to one tensor.

    ``op`` names the op for people, ``location`` is the user's ``file:line``, ``group`` the operation of the tile
    program that it was lowered from. ``scope`` holds indices and definitions in the order in which they are introduced.
    """

    op: str
    location: str
    group: str
    tensor: str
    kind: AccessKind
    dims: tuple[Expr, ...]
    scope: tuple[LoopIndex | NamedValue | Loaded, ...]
    conditions: tuple[Expr, ...]
    guard: Expr
    coords: tuple[Expr, ...]
    bounded: bool = True
    """False where the coordinates are places in a tile, whose elements are written at loaded coordinates: ``guards`` is
    asked of another map, of these coordinates."""

    @property
    def indices(self) -> tuple[LoopIndex, ...]:
        """What distinguishes two points of the access, outermost first."""
        return tuple(item for item in self.scope if isinstance(item, LoopIndex))

    @property
    def predicate(self) -> Expr:
        """Conditions and guard together; the ranges of the indices are not part of it."""
        return all_of([*self.conditions, self.guard])

    def at(self, values: Mapping[str, int]) -> tuple[int, ...] | None:
        """Coordinates at one point by plain evaluation; None where a range, a condition or the guard excludes it.

        ``values`` holds the parameters and every index.
        """
        known = dict(values)
        for item in self.scope:
            if isinstance(item, Loaded):
                if not item.low <= known[item.name] <= item.high:
                    return None
                continue
            if isinstance(item, NamedValue):
                known[item.name] = item.value.evaluate(known)
                continue
            begin, end, step = (e.evaluate(known) for e in (item.begin, item.end, item.step))
            offset = known[item.name] - begin
            if offset < 0 or known[item.name] >= end or offset % step:
                return None
        if not self.predicate.evaluate(known):
            return None
        return tuple(c.evaluate(known) for c in self.coords)


@dataclass(frozen=True)
class KernelAccesses:
    """All global accesses of one kernel, with its parameters and the facts its dispatcher guarantees."""

    kernel: str
    parameters: tuple[LaunchParameter, ...]
    assumptions: tuple[Expr, ...]
    accesses: tuple[AccessMap, ...]


@dataclass(frozen=True)
class StoreDomain:
    """What one store of the tile program promises to write: the coordinates of all points of its indices.

    ``instances`` names the indices (programs, stream counters) that keep the promise separately, for each of their
    values; they are found by name in the kernel's access maps. Of an atomic addition they are all those that
    contribute. Of plain stores, promises of different instances must not meet either.
    """

    tensor: str
    location: str
    indices: tuple[LoopIndex, ...]
    coords: tuple[Expr, ...]
    guard: Expr = TRUE
    instances: tuple[str, ...] = ()

    def as_map(self, dims: tuple[Expr, ...]) -> AccessMap:
        """The same points as an access map of a tensor with these extents."""
        return AccessMap(
            op=f"domain of {self.tensor}",
            location=self.location,
            group="",
            tensor=self.tensor,
            kind=AccessKind.WRITE,
            dims=dims,
            scope=self.indices,
            conditions=(),
            guard=self.guard,
            coords=self.coords,
        )
