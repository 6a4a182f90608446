"""The hierarchy of places that hold a tile, as one product, and the sub-group inside which a conversion moves data.

    register  x  lane  x  warp  x  warpgroup  x  cta  x  cluster   ->   dim0, dim1, ...

A place is a register of a lane of a warp (of its warpgroup) of a warpgroup (of its CTA) of a CTA (of its cluster) of a
cluster. The layout of places is affine with one input axis per level, so warps that are 3 or warpgroups that are 5 are
as good as powers of two. The normal form has all six axes, each canonical: equal hierarchies have equal normal forms.

It answers questions about a move (examples/layouts.md); passes convert inside a CTA, by ``layout.conversion``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.diag import fail
from tilewright.hw.spaces import Space, ThreadGroup
from tilewright.layout.int_tuple import Leaf
from tilewright.layout.library.affine import AffineLayout, Column
from tilewright.layout.library.conversions import affine_of
from tilewright.layout.register import RegisterLayout

LEVELS = ("register", "lane", "warp", "warpgroup", "cta", "cluster")
"""Input axes, the innermost first."""

WARPGROUP_WARPS = 4
"""Warps of a warpgroup (PTX ISA, wgmma)."""

_INSIDE: tuple[tuple[ThreadGroup, Space, int], ...] = (
    (ThreadGroup.THREAD, Space.REGISTER, 1),
    (ThreadGroup.WARP, Space.REGISTER, 2),
    (ThreadGroup.WARPGROUP, Space.SHARED, 3),
    (ThreadGroup.CTA, Space.SHARED, 4),
    (ThreadGroup.CLUSTER, Space.DISTRIBUTED_SHARED, 5),
    (ThreadGroup.GRID, Space.GLOBAL, 6),
)
"""The threads that must cooperate, and through which memory, when data crosses that many levels of the hierarchy."""


@dataclass(frozen=True)
class Movement:
    """The smallest sub-group inside which every place finds its element, and the space that reaches all of it:
    registers (moves, shuffles), shared or distributed shared memory, or global memory."""

    group: ThreadGroup
    space: Space


@dataclass(frozen=True)
class Hierarchy:
    """Places to coordinates. LAY002 for axes that are no levels."""

    layout: AffineLayout

    def __post_init__(self) -> None:
        strange = [n for n in self.layout.in_names if n not in LEVELS]
        if strange:
            fail(
                "LAY002",
                title="not a level of the hierarchy",
                found=", ".join(strange),
                required=f"axes among {', '.join(LEVELS)}",
                help="rename the axes (AffineLayout.rename)",
            )

    @staticmethod
    def of(layout: RegisterLayout, *, outer: AffineLayout | None = None) -> Hierarchy:
        """A register layout, its warps dealt to warpgroups of four; ``outer`` adds warpgroups, CTAs and clusters (axes
        of those names, onto dim0, dim1, ...)."""
        inner = _warpgroups(affine_of(layout))
        return Hierarchy(inner if outer is None else inner * outer)

    @cached_property
    def normal(self) -> AffineLayout:
        """All six axes in order, digits canonical: one form for equal hierarchies."""
        ins: list[tuple[str, tuple[Leaf, ...]]] = []
        columns: list[Column] = []
        for level in LEVELS:
            own = self.layout.axis(level) if level in self.layout.in_names else range(0)
            ins.append((level, tuple(self.layout.digits[i] for i in own)))
            columns += (self.layout.columns[i] for i in own)
        return AffineLayout(tuple(ins), self.layout.outs, tuple(columns), self.layout.base).canonical()

    def part(self, first: int, last: int) -> AffineLayout:
        """The levels ``first`` to ``last`` (exclusive) with the others at 0; the offset stays with the innermost."""
        form = self.normal
        ins = form.ins[first:last]
        columns = tuple(form.columns[i] for name, _ in ins for i in form.axis(name))
        return AffineLayout(ins, form.outs, columns, form.base if first == 0 else (0,) * len(form.outs))

    def extent(self, level: str) -> int:
        """Coordinates of one level; 1 for a level that the layout does not have."""
        size = dict(zip(self.normal.in_names, self.normal.shape, strict=True))[level]
        assert isinstance(size, int), "hierarchies are static"
        return size


def movement(source: Hierarchy, target: Hierarchy) -> Movement:
    """Inside which sub-group a conversion stays: for every place of ``target`` some place of ``source`` in the same
    sub-group holds the element. LAY017 when ``source`` lacks elements that ``target`` wants.

    Where the outer levels are mapped alike, the inner images decide; else every sub-group is compared.
    """
    if source.layout.outs != target.layout.outs:
        fail(
            "LAY017",
            found=f"{source.layout.outs} to {target.layout.outs}",
            required="one tile",
            help="write both layouts over the same tile",
        )
    for group, space, levels in _INSIDE:
        if _inside(source, target, levels):
            return Movement(group, space)
    return fail(
        "LAY017",
        found="elements of the target that no place of the source holds",
        required="every element held somewhere",
        help="pad both layouts to one shape",
    )


def _inside(source: Hierarchy, target: Hierarchy, levels: int) -> bool:
    above = source.part(levels, len(LEVELS))
    if above == target.part(levels, len(LEVELS)):
        return set(target.part(0, levels).table()) <= set(source.part(0, levels).table())
    theirs = target.part(levels, len(LEVELS))
    if above.shape != theirs.shape:
        return False
    mine, wanted = list(source.part(0, levels).table()), list(target.part(0, levels).table())
    moduli = source.layout.moduli
    for a, b in zip(above.table(), theirs.table(), strict=True):
        held = {_plus(a, x, moduli) for x in mine}
        if any(_plus(b, x, moduli) not in held for x in wanted):
            return False
    return True


def _plus(a: tuple[int, ...], b: tuple[int, ...], moduli: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(x + y if m is None else (x + y) % m for x, y, m in zip(a, b, moduli, strict=True))


def _warpgroups(layout: AffineLayout) -> AffineLayout:
    """The warp axis cut after four warps."""
    own, inner, place = layout.axis("warp"), 0, 1
    while inner < len(own) and place < WARPGROUP_WARPS:
        digit = layout.digits[own[inner]]
        assert digit == 2, "warps of a register layout are bits"
        place, inner = place * digit, inner + 1
    ins: list[tuple[str, tuple[Leaf, ...]]] = []
    for name, digits in layout.ins:
        if name == "warp":
            ins += [("warp", digits[:inner]), ("warpgroup", digits[inner:])]
        else:
            ins.append((name, digits))
    return AffineLayout(tuple(ins), layout.outs, layout.columns, layout.base)
