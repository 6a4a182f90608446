"""Absent elements: which elements of a recorded value there are, and what stands for those that there are not.

An element is absent where a computed or loaded coordinate left its tensor. Element-wise results are present where all
operands are; reductions, contractions and writes skip absent elements, stores write 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import OpResult, SSAValue

from tilewright.base.expr import Expr
from tilewright.lang.recorder import Node
from tilewright.lang.source_locations import refuse
from tilewright.tile import dialect


@dataclass(frozen=True)
class Presence:
    """Which elements of a value there are: those whose coordinates lie inside, each of ``inside`` below its extent, in
    the shape that ``shapes`` give. Equal ``key``s say the same."""

    key: tuple[object, ...]
    inside: tuple[tuple[Node, Expr], ...] = field(compare=False)
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Expansions, transpositions and axes of one element that were dropped, by their names, with their positions."""

    def shaped(self, name: str, positions: Sequence[int]) -> Presence:
        """The presence after one of these shape ops."""
        return replace(self, shapes=(*self.shapes, (name, tuple(positions))))


@dataclass(frozen=True)
class Reshaped(Presence):
    """That of a reshaped tile, of which some elements come from outside of a domain; ``key``: the axes that it had, and
    those that it has."""


def presence_of(node: Node) -> Presence | None:
    """The presence that a trace has recorded for a value."""
    assert node.presence is None or isinstance(node.presence, Presence)
    return node.presence


def joint(nodes: Sequence[Node], whole: Callable[[Presence], bool]) -> Presence | None:
    """The presence of what is computed element by element of ``nodes``. Of several different ones those count that a
    launch is not asked to have ``whole``; refuses (LNG035) several that are left."""
    found = list(dict.fromkeys(p for p in map(presence_of, nodes) if p is not None))
    if len(found) > 1:
        found = [p for p in found if not whole(p)]
    if len(found) > 1:
        refuse(
            "LNG035",
            found=f"{len(found)} operands whose elements are absent at different coordinates{_edges(found)}",
            required="operands that left their tensors at the same coordinates",
            help="say what stands for absent elements: x[t - 1].fill(0.0)",
        )
    return found[0] if found else None


def _edges(found: Sequence[Presence]) -> str:
    """The extents that the coordinates of each value may exceed, if these distinguish the values."""
    edges = [", ".join(dict.fromkeys(str(dim) for _, dim in p.inside)) for p in found]
    told = all(edges) and len(set(edges)) == len(edges)
    return f": outside of {'; of '.join(edges)}" if told else ""


def expanded_from(value: SSAValue) -> tuple[object, ...]:
    """An index tile by the value whose axes it has, and the axes of one element that were inserted into these."""
    inserted: list[object] = []
    while isinstance(value.owner, dialect.Expand):
        inserted.append(value.owner.positions)
        value = value.owner.x
    return (value, *inserted)


def zero_where_absent(value: SSAValue) -> bool:
    """Absent elements hold 0 already: what a gather leaves, as it is or in another shape or dtype."""
    while isinstance(value, OpResult):
        match value.owner:
            case dialect.Gather():
                return True
            case dialect.Expand() | dialect.Broadcast() | dialect.Transpose() | dialect.Cast() as op:
                value = op.operands[0]
            case _:
                return False
    return False
