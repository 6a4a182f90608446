"""Conversion plans as data: what a code generator emits, in order, to move a tile from one register layout to another.

Registers are numbered as in the layouts (elements, not 32-bit words). ``elements`` consecutive registers move together,
so every register named here is the first of such a group. Expressions are over the thread index, and over ``r`` where
they hold for several registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tilewright.base.expr import Expr, own, sym
from tilewright.hw.spaces import ThreadGroup
from tilewright.layout.shared import SharedTile

THREAD, REGISTER = sym(own("tid")), sym(own("r"))
"""The executing thread, and the register of a vector access."""


class PlanKind(Enum):
    """The mechanism that moves elements, cheapest first."""

    NOTHING = "nothing"
    PERMUTE = "permute registers"
    SELECT = "select registers by thread"
    SHUFFLE = "lane shuffles"
    MATRIX = "stmatrix / ldmatrix"
    SHARED = "shared memory"


@dataclass(frozen=True)
class Pick:
    """One of ``choices``, selected by ``index`` (an expression of the thread; 0 if there is one choice)."""

    choices: tuple[int, ...]
    index: Expr

    @property
    def is_constant(self) -> bool:
        """True if every thread selects the same register."""
        return len(self.choices) == 1


@dataclass(frozen=True)
class RegisterPlan:
    """``target[i] = source[results[i]]`` for every group i of ``elements`` registers."""

    elements: int
    results: tuple[Pick, ...]


@dataclass(frozen=True)
class Round:
    """Send ``source[send]``, receive from ``lane``. ``xor_mask`` when that is ``own lane ^ mask`` (0: no shuffle)."""

    send: Pick
    lane: Expr
    xor_mask: int | None


@dataclass(frozen=True)
class ShufflePlan:
    """All ``rounds`` in order, each into its own temporary; then ``target[i] = temporary[results[i]]``."""

    elements: int
    rounds: tuple[Round, ...]
    results: tuple[Pick, ...]

    @property
    def shuffles(self) -> int:
        """Rounds that leave the lane."""
        return sum(r.xor_mask != 0 for r in self.rounds)


@dataclass(frozen=True)
class VectorAccesses:
    """Loads or stores of ``width`` registers each, for k = 0, width, .. below ``registers``.

    Registers k .. k + width - 1 are consecutive elements from ``offset`` on, an expression of the thread and of ``r``,
    which is k; the access is made where ``predicate`` of the same holds.
    """

    registers: int
    width: int
    offset: Expr
    predicate: Expr


@dataclass(frozen=True)
class MatrixInstruction:
    """One ldmatrix or stmatrix of ``matrices`` 8x8 matrices of 16-bit elements (1, 2 or 4).

    ``address`` is the byte address of the row that this lane gives; matrix i is registers ``first`` + 2*i and the next.
    """

    first: int
    matrices: int
    address: Expr
    trans: bool


Access: TypeAlias = VectorAccesses | MatrixInstruction


@dataclass(frozen=True)
class SharedSide:
    """The stores or the loads of a round trip, on ``registers`` arranged so that vectors and pairs lie together.

    ``arrange`` makes the arranged registers of the source before the stores, or the target's of the arranged ones after
    the loads; None where they are the same. ``degree`` is the worst number of words that one bank serves in a phase, of
    ``cycles`` in all for a warp.
    """

    registers: int
    arrange: RegisterPlan | None
    accesses: tuple[Access, ...]
    degree: int
    cycles: int


@dataclass(frozen=True)
class SharedPlan:
    """All ``store`` accesses, a barrier of ``barrier``, all ``load`` accesses; the buffer holds ``tile.size_bytes``.

    A buffer used before needs the same barrier in front of the stores. ``whole``: every register of the target gets its
    element; else those beyond the source's box are left as they are.
    """

    tile: SharedTile
    store: SharedSide
    barrier: ThreadGroup
    load: SharedSide
    whole: bool = True


@dataclass(frozen=True)
class ConversionCost:
    """Per warp. ``selects`` and ``shuffles`` count instructions on 32-bit words, ``wavefronts`` cycles of the banks.

    ``cycles`` adds them at one per cycle with 30 for a round trip's latency: an order among plans, not a measurement.
    """

    moves: int = 0
    selects: int = 0
    shuffles: int = 0
    wavefronts: int = 0
    barriers: int = 0
    shared_bytes: int = 0

    @property
    def cycles(self) -> int:
        """Estimated issue cycles per warp, for ranking."""
        latency = 30 * (self.barriers + (self.shuffles > 0))
        return self.selects + 2 * self.shuffles + 2 * self.wavefronts + latency


@dataclass(frozen=True)
class ConversionPlan:
    """How to convert, with its cost; ``steps`` is None when target register i is source register i."""

    kind: PlanKind
    element_bytes: int
    steps: RegisterPlan | ShufflePlan | SharedPlan | None
    cost: ConversionCost

    def __str__(self) -> str:
        match self.steps:
            case SharedPlan(tile=tile, store=store, load=load):
                how = f"{tile}; stores of degree {store.degree}, loads of degree {load.degree}"
                return f"{self.kind.value}: {how}"
            case ShufflePlan() as steps:
                return f"{self.kind.value}: {steps.shuffles} rounds of {len(steps.rounds)}"
            case RegisterPlan(results=results):
                return f"{self.kind.value}: {len(results)} groups"
            case None:
                return self.kind.value
