"""mbarriers (PTX ISA 9.1, 9.7.13.15)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.hw.target import InstructionSet
from tilewright.protocol.effects import Await, BarrierLife, Effect, Fence, Order, Release, Signal
from tilewright.protocol.operands import Scope, Slot
from tilewright.protocol.ops.base import Brief, Op


@dataclass(frozen=True)
class MbarrierInit(Op):
    """Initialises the first ``slots`` barriers of an array (None: all) with the array's arrival count."""

    barrier: str
    slots: int | None = None

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (BarrierLife(self.barrier, begins=True, slots=self.slots),)

    @property
    def brief(self) -> Brief:
        return "init ", self.barrier


@dataclass(frozen=True)
class MbarrierInval(Op):
    """Ends the life of all barriers of an array."""

    barrier: str

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (BarrierLife(self.barrier, begins=False),)


@dataclass(frozen=True)
class FenceMbarrierInit(Op):
    """fence.mbarrier_init.release.cluster by the thread that initialised."""

    needs = InstructionSet.TMA
    instruction = "fence.mbarrier_init"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.MBARRIER_INIT),)


@dataclass(frozen=True)
class Arrive(Op):
    """Arrives ``count`` times on the current phase, per executing thread."""

    bar: Slot
    count: int = 1
    scope: Scope = Scope.CTA
    release: bool = True

    instruction = "mbarrier.arrive"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        release = Release.MEMORY if self.release else Release.NOTHING
        return (Signal(self.bar, arrivals=self.count, release=release, scope=self.scope),)

    @property
    def brief(self) -> Brief:
        return "arrive ", self.bar, f" x{self.count}" if self.count > 1 else ""


@dataclass(frozen=True)
class ArriveExpectTx(Op):
    """Adds ``bytes`` to the current phase's expected transactions and arrives once."""

    bar: Slot
    bytes: int
    scope: Scope = Scope.CTA

    needs = InstructionSet.TMA
    instruction = "mbarrier.arrive"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        arrival = Signal(self.bar, arrivals=1, release=Release.MEMORY, scope=self.scope)
        return Signal(self.bar, expects=self.bytes), arrival

    @property
    def brief(self) -> Brief:
        return "arrive.expect ", self.bar, f" {self.bytes} B"


@dataclass(frozen=True)
class ExpectTx(Op):
    """Adds ``bytes`` to the current phase's expected transactions; not an arrival."""

    bar: Slot
    bytes: int

    needs = InstructionSet.TMA
    instruction = "mbarrier.arrive"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Signal(self.bar, expects=self.bytes),)

    @property
    def brief(self) -> Brief:
        return "expect_tx ", self.bar, f" {self.bytes} B"


@dataclass(frozen=True)
class Wait(Op):
    """Blocks until the phase of this parity has completed (a loop around try_wait.parity).

    ``peeked``: skipped by threads whose last ``TestWait`` of this barrier returned true; the two are one wait.
    """

    bar: Slot
    parity: Expr
    scope: Scope = Scope.CTA
    acquire: bool = True
    peeked: bool = False

    instruction = "mbarrier.try_wait"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Await(self.bar, self.parity, self.scope, self.acquire, peeked=self.peeked),)

    @property
    def brief(self) -> Brief:
        return "wait ", self.bar, " p=", self.parity


@dataclass(frozen=True)
class TestWait(Op):
    """One test_wait or try_wait, whatever it returns; a later ``Wait`` with ``peeked`` uses the result."""

    __test__ = False  # not a test, for pytest

    bar: Slot
    parity: Expr
    scope: Scope = Scope.CTA
    acquire: bool = True

    instruction = "mbarrier.try_wait"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Await(self.bar, self.parity, self.scope, self.acquire, blocks=False),)

    @property
    def brief(self) -> Brief:
        return "test ", self.bar, " p=", self.parity
