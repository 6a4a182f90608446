"""The common form of PTX and IR: regions of events, one region per loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.validate.bounds import BoundRead
from tilewright.validate.cases import Condition
from tilewright.validate.closed_loops import LoopCall
from tilewright.validate.polynomials import Poly
from tilewright.validate.values import Value


@dataclass(frozen=True)
class Need:
    """A condition under which an operation on words equals the one on integers: ``value`` lies in ``[low, high]`` where
    ``when`` holds."""

    value: Poly
    low: int
    high: int | None
    when: Condition

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """A place among others that is the same in every process."""
        return self.value.id, self.low, self.high or 0, self.when if isinstance(self.when, int) else -self.when.id


Needs: TypeAlias = frozenset[Need]
NOTHING: Needs = frozenset()

Operand: TypeAlias = "Value | str | int | None"


@dataclass(eq=False)
class Event:
    """One instruction, or one op's use of one, that others can tell happened.

    It runs, in each iteration of its region, for the threads and arguments of ``condition``. ``results`` are the names
    of what it leaves in registers. ``order`` counts within the region.
    """

    kind: str
    condition: Condition
    operands: tuple[Operand, ...]
    where: str
    order: int
    needs: Needs = NOTHING


@dataclass(eq=False)
class ElementAccess(Event):
    """A load or store of one element: ``operands`` are the tensor or ``shared``, the address, and what is stored."""

    bytes: int = 0
    group: int = 0


@dataclass(frozen=True)
class VectorAccess:
    """An instruction that moves ``bytes`` at once, several elements of a tensor or of ``shared``, where ``holds``."""

    tensor: str
    offset: Poly
    bytes: int
    holds: Condition
    where: str


@dataclass
class Carried:
    """A value carried around a loop: what it is before the first iteration, and after each."""

    initial: Value
    next: Value | None = None


@dataclass(eq=False)
class LoopBody:
    """The body of one loop, or of the kernel.

    ``entry``: where, in the region around it, its first iteration runs; ``around``: where that is asked. ``again``:
    where, in an iteration, another one follows. ``carried``: by name, for values that have no closed form.
    ``bounds``: instructions that read integers which the IR names. ``whole``: where instructions run that all lanes of
    a warp run together, and which is the first. ``calls``: loops that are functions of the library's.
    """

    name: str
    entry: Condition
    order: int
    where: str
    again: Condition = 0
    events: list[Event] = field(default_factory=list[Event])
    loops: list[LoopBody] = field(default_factory=list["LoopBody"])
    bounds: list[BoundRead] = field(default_factory=list[BoundRead])
    vectors: list[VectorAccess] = field(default_factory=list[VectorAccess])
    carried: dict[str, Carried] = field(default_factory=dict[str, Carried])
    top_tested: bool = False
    around: Condition = 0
    threads: int = 0
    whole: dict[Condition, str] = field(default_factory=dict["Condition", str])
    calls: list[LoopCall] = field(default_factory=list["LoopCall"])
