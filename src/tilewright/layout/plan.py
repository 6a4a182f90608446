"""Conversion plans as data: what a code generator emits, in order, to move a tile from one register layout to another.

Registers are numbered as in the layouts (elements, not 32-bit words). ``elements`` consecutive registers move together,
so every register named here is the first of such a group. Expressions are over the thread index.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tilewright.base.expr import Expr
from tilewright.hw.spaces import Grain
from tilewright.layout.shared import SharedTile


class PlanKind(Enum):
    """How elements move, cheapest first."""

    NOTHING = "nothing"
    PERMUTE = "permute registers"
    SELECT = "select registers by thread"
    SHUFFLE = "lane shuffles"
    MATRIX = "stmatrix / ldmatrix"
    SHARED = "shared memory"


@dataclass(frozen=True)
class Pick:
    """One of ``choices``, number ``index`` (an expression of the thread; 0 when there is one choice)."""

    choices: tuple[int, ...]
    index: Expr

    @property
    def is_constant(self) -> bool:
        """The same register in every thread."""
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
class VectorAccess:
    """One load or store of ``registers`` (consecutive bytes) at byte offset ``address``, where ``predicate`` holds."""

    address: Expr
    registers: tuple[int, ...]
    predicate: Expr


@dataclass(frozen=True)
class MatrixAccess:
    """One ldmatrix or stmatrix of ``len(registers)`` 8x8 matrices of 16-bit elements (1, 2 or 4).

    ``address`` is the row address this lane gives; matrix i is registers ``registers[i]`` and the next one.
    """

    address: Expr
    registers: tuple[int, ...]
    trans: bool


Access: TypeAlias = VectorAccess | MatrixAccess


@dataclass(frozen=True)
class SharedPlan:
    """All ``stores``, a barrier of ``barrier``, all ``loads``; the buffer holds ``tile.size_bytes``.

    A buffer used before needs the same barrier in front of the stores.
    """

    tile: SharedTile
    stores: tuple[Access, ...]
    barrier: Grain
    loads: tuple[Access, ...]


@dataclass(frozen=True)
class Cost:
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
    cost: Cost
