"""The common product of a protocol: one control-edge graph that all its roles walk together.

Roles go round the same symbolic loops, a producer ahead of its consumers. Laid side by side, iteration by iteration,
their programs are one sequence of *blocks*; which sequences there are is a finite graph:

    opening -> before -> k=0 -> k>=1 -> after -> ending        a tile loop around one stream; the first iteration
                 ^         |______|^      |                    stands alone because "k > 0" guards a release
                 |________________________|

A block has straight-line code for every role, perhaps none. Branches are gone: a guard on a counter splits its loop
(first iterations, residues), a guard on a symbol splits the body of the loop that the symbol varies with. The order of
blocks is a label, not a schedule: roles may be any distance apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Set
from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.protocol.model import Role, Step


class OutsideFragment(Exception):
    """The roles do not execute the same loops, or a guard is outside the fragment; the message says which."""


@dataclass(frozen=True)
class Block:
    """Straight-line code of every party, executed once each time the product passes here."""

    index: int
    label: str
    loops: tuple[int, ...]
    """The loops around it, outermost first."""
    code: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class Edge:
    """A possible transition from one block to another; ``advances`` are the loops whose iteration ends with it."""

    source: int
    target: int
    advances: tuple[int, ...]


@dataclass(frozen=True)
class ProductLoop:
    """A loop of the product; in all its copies the same number. ``outermost``: it runs once at most.

    ``end`` is the text of its count, ``before`` are the blocks from which it is entered, or left out if that is 0.
    """

    index: int
    counter: str
    outermost: bool
    end: str
    before: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ProductGraph:
    """Blocks, edges between them, where the product may start and end, and its loops.

    ``parties`` are the roles with the rank of the CTA they run in; a block has one piece of code for each.
    """

    parties: tuple[tuple[Role, int], ...]
    blocks: tuple[Block, ...]
    edges: tuple[Edge, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    loops: tuple[ProductLoop, ...]

    @cached_property
    def leaving(self) -> tuple[tuple[Edge, ...], ...]:
        """The edges from each block."""
        return tuple(tuple(f for f in self.edges if f.source == s.index) for s in self.blocks)


def finished_loop(product: ProductGraph, block: int, count: str) -> ProductLoop | None:
    """A loop of ``count`` iterations that is over, on every way, where the product is in ``block``; its iterations are
    then that count, be it 0."""
    inside = {x.index for s in _reachable(product, [block], frozenset()) for x in product.loops if x.index in s.loops}
    for loop in product.loops:
        if loop.outermost and loop.end == count and loop.index not in inside:
            reachable = _reachable(product, product.starts, loop.before)
            if product.blocks[block] not in reachable and block not in loop.before:
                return loop
    return None


def repeats(product: ProductGraph, block: int) -> bool:
    """A path leads from a block back to it."""
    return product.blocks[block] in _reachable(product, (f.target for f in product.leaving[block]), frozenset())


def _reachable(product: ProductGraph, since: Iterable[int], closed: frozenset[int]) -> list[Block]:
    """The blocks from some on, without passing closed ones."""
    seen: dict[int, None] = dict.fromkeys(s for s in since if s not in closed)
    pending = list(seen)
    while pending:
        for f in product.leaving[pending.pop()]:
            if f.target not in seen and f.target not in closed:
                seen[f.target] = None
                pending.append(f.target)
    return [product.blocks[s] for s in seen]


def behind_all(product: ProductGraph, blocks: Set[int]) -> frozenset[int]:
    """The blocks from which none of ``blocks`` is reached."""
    return frozenset(
        s.index
        for s in product.blocks
        if blocks.isdisjoint(x.index for x in _reachable(product, [s.index], frozenset()))
    )


def numbered(
    product: ProductGraph, iv: frozenset[int], uses: dict[int, int], start: int, behind: Container[int] = ()
) -> dict[int, int] | None:
    """Per block: uses made before it, minus iterations of the iv; None if that depends on the way. The value at the end
    after block ``e`` is under ``-1 - e``. Blocks ``behind`` all uses, from which no other block is reached, have no
    value where it depends on the way."""
    lead = dict.fromkeys(product.starts, start)
    pending = list(product.starts)
    unknown = set[int]()
    while pending:
        at = pending.pop()
        made = lead[at] + uses.get(at, 0)
        for f in product.leaving[at]:
            value, new = made - len(iv.intersection(f.advances)), f.target not in lead
            if lead.setdefault(f.target, value) != value or at in unknown:
                if f.target not in behind:
                    return None
                new = f.target not in unknown
                unknown.add(f.target)
            if new:
                pending.append(f.target)
    known = {s: x for s, x in lead.items() if s not in unknown}
    return known | {-1 - e: known[e] + uses.get(e, 0) for e in product.ends if e in known}
