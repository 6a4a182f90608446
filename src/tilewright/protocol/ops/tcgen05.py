"""Tensor memory and its matrix multiply (PTX ISA 9.1, 9.7.16)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.hw.target import InstructionSet
from tilewright.protocol.effects import (
    TENSOR,
    TENSOR_LOADS,
    TENSOR_STORES,
    Access,
    Commit,
    Effect,
    Engine,
    Fence,
    Grain,
    Mode,
    Order,
    Part,
    Proxy,
    Release,
    Relinquish,
    Retire,
    Signal,
    TensorLife,
)
from tilewright.protocol.operands import Region, Slot
from tilewright.protocol.ops.base import COLUMNS, MEMORY, Brief, Op, located


@dataclass(frozen=True)
class Tcgen05Alloc(Op):
    """Allocates the tensor-memory buffer ``buffer``; its address is a plain write to shared memory, at ``address``.

    With ``cta_group`` 2 both CTAs of a pair (ranks 2i and 2i + 1) allocate together.
    """

    buffer: str
    address: Region | None = None
    cta_group: int = 1

    needs = InstructionSet.TCGEN05
    grain = Grain.WARPS
    spaces = located(address=MEMORY)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        life = TensorLife(self.buffer, begins=True, pair=self.cta_group == 2)
        return (life,) if self.address is None else (life, Access(self.address, Mode.WRITE, part=Part.ONE))


@dataclass(frozen=True)
class Tcgen05Dealloc(Op):
    """Frees the tensor-memory buffer; with ``cta_group`` 2 that of both CTAs of the pair, as soon as one does so."""

    buffer: str
    cta_group: int = 1

    needs = InstructionSet.TCGEN05
    grain = Grain.WARPS

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (TensorLife(self.buffer, begins=False, pair=self.cta_group == 2),)


@dataclass(frozen=True)
class Tcgen05Relinquish(Op):
    """Gives up the CTA's right to allocate again."""

    needs = InstructionSet.TCGEN05
    grain = Grain.WARPS

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Relinquish(),)


@dataclass(frozen=True)
class Tcgen05Mma(Op):
    """Asynchronous matrix multiply by one thread: reads ``operands``, reads and writes ``accumulator`` (TMEM).

    With ``cta_group`` 2 the regions are meant in both CTAs of the pair.
    """

    accumulator: Region
    operands: tuple[Region, ...]
    cta_group: int = 1

    needs = InstructionSet.TCGEN05
    grain = Grain.ONE
    engine = Engine.PRODUCTS
    spaces = located(accumulator=COLUMNS, operands=MEMORY | COLUMNS)
    swizzled = True

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        name, pair = "a tcgen05.mma", self.cta_group == 2
        reads = (Access(x, Mode.READ, Proxy.ASYNC, TENSOR, pair=pair, name=name) for x in self.operands)
        return *reads, Access(self.accumulator, Mode.WRITE, Proxy.ASYNC, TENSOR, pair=pair, name=name)

    @property
    def brief(self) -> Brief:
        return "tcgen05.mma ", self.accumulator


@dataclass(frozen=True)
class Tcgen05Cp(Op):
    """Asynchronous copy from shared to tensor memory, in order with the thread's mma."""

    dst: Region
    src: Region

    needs = InstructionSet.TCGEN05
    grain = Grain.ONE
    spaces = located(dst=COLUMNS, src=MEMORY)
    swizzled = True

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        read = Access(self.src, Mode.READ, Proxy.ASYNC, TENSOR, name="a tcgen05.cp")
        return read, Access(self.dst, Mode.WRITE, Proxy.ASYNC, TENSOR, name="a tcgen05.cp")


@dataclass(frozen=True)
class Tcgen05Commit(Op):
    """One arrival on ``bar`` (on each rank of ``ctas``) when the thread's earlier mma and cp are complete.

    It implies the before-fence (9.7.16.6.4).
    """

    bar: Slot
    ctas: tuple[Expr, ...] = ()

    needs = InstructionSet.TCGEN05
    grain = Grain.ONE

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        arrival = Signal(self.bar, arrivals=1, release=Release.TENSOR, after=TENSOR, ranks=self.ctas)
        return Fence(Order.TENSOR_BEFORE), arrival, Commit(TENSOR)

    @property
    def brief(self) -> Brief:
        return "tcgen05.commit ", self.bar


@dataclass(frozen=True)
class Tcgen05Ld(Op):
    """Asynchronous load from tensor memory to registers."""

    region: Region

    needs = InstructionSet.TCGEN05
    grain = Grain.WARPS
    spaces = located(region=COLUMNS)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Access(self.region, Mode.READ, Proxy.TENSOR, TENSOR_LOADS, part=Part.WARP, name="a tcgen05.ld"),)

    @property
    def brief(self) -> Brief:
        return "tcgen05.ld ", self.region


@dataclass(frozen=True)
class Tcgen05St(Op):
    """Asynchronous store from registers to tensor memory."""

    region: Region

    needs = InstructionSet.TCGEN05
    grain = Grain.WARPS
    spaces = located(region=COLUMNS)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Access(self.region, Mode.WRITE, Proxy.TENSOR, TENSOR_STORES, part=Part.WARP, name="a tcgen05.st"),)

    @property
    def brief(self) -> Brief:
        return "tcgen05.st ", self.region


@dataclass(frozen=True)
class Tcgen05WaitLd(Op):
    """tcgen05.wait::ld: the thread's tensor-memory loads are done."""

    needs = InstructionSet.TCGEN05
    grain = Grain.WARPS
    instruction = "tcgen05.wait"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return Commit(TENSOR_LOADS), Retire(TENSOR_LOADS)


@dataclass(frozen=True)
class Tcgen05WaitSt(Op):
    """tcgen05.wait::st: the thread's tensor-memory stores are done."""

    needs = InstructionSet.TCGEN05
    grain = Grain.WARPS
    instruction = "tcgen05.wait"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return Commit(TENSOR_STORES), Retire(TENSOR_STORES)


@dataclass(frozen=True)
class Tcgen05FenceBefore(Op):
    """tcgen05.fence::before_thread_sync."""

    needs = InstructionSet.TCGEN05
    instruction = "tcgen05.fence"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.TENSOR_BEFORE),)


@dataclass(frozen=True)
class Tcgen05FenceAfter(Op):
    """tcgen05.fence::after_thread_sync."""

    needs = InstructionSet.TCGEN05
    instruction = "tcgen05.fence"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.TENSOR_AFTER),)
