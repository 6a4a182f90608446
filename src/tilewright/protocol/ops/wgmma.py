"""Warpgroup matrix multiply (PTX ISA 9.1, 9.7.15), and the registers of a warpgroup."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.base.cached import cached_property
from tilewright.hw.target import InstructionSet
from tilewright.protocol.effects import (
    WGMMA,
    Access,
    Commit,
    Effect,
    Engine,
    Fence,
    Grain,
    Mode,
    Order,
    Pool,
    Proxy,
    Retire,
)
from tilewright.protocol.operands import Region
from tilewright.protocol.ops.base import MEMORY, REGISTERS, Brief, Op, located


@dataclass(frozen=True)
class WgmmaFence(Op):
    """wgmma.fence: orders register accesses before the following wgmma."""

    needs = InstructionSet.WGMMA
    grain = Grain.WARPGROUP
    instruction = "wgmma.fence"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.WGMMA),)


@dataclass(frozen=True)
class Wgmma(Op):
    """Asynchronous warpgroup matrix multiply: reads ``operands``, reads and writes ``accumulator`` (registers).

    ``reads`` are the bytes that it takes of each operand where that is not all of the region; only its price asks.
    """

    accumulator: Region
    operands: tuple[Region, ...]
    reads: tuple[int, ...] = field(default=(), compare=False)

    needs = InstructionSet.WGMMA
    grain = Grain.WARPGROUP
    engine = Engine.PRODUCTS
    spaces = located(accumulator=REGISTERS, operands=MEMORY | REGISTERS)
    swizzled = True

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        sizes = dict(enumerate(self.reads))
        return (
            *(
                Access(region, Mode.READ, Proxy.ASYNC, WGMMA, name="a wgmma", bytes=sizes.get(i))
                for i, region in enumerate(self.operands)
            ),
            Access(self.accumulator, Mode.WRITE, Proxy.ASYNC, WGMMA, name="a wgmma"),
        )

    @property
    def brief(self) -> Brief:
        listed = (part for region in self.operands for part in (", ", region))
        return "wgmma ", *tuple(listed)[1:]


@dataclass(frozen=True)
class WgmmaCommit(Op):
    """Closes the warpgroup's current wgmma group."""

    needs = InstructionSet.WGMMA
    grain = Grain.WARPGROUP

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Commit(WGMMA),)


@dataclass(frozen=True)
class WgmmaWait(Op):
    """Waits until at most ``pending`` wgmma groups are open."""

    pending: int = 0

    needs = InstructionSet.WGMMA
    grain = Grain.WARPGROUP
    instruction = "wgmma.wait_group"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Retire(WGMMA, self.pending),)

    @property
    def brief(self) -> Brief:
        return (f"wgmma wait {self.pending}",)


@dataclass(frozen=True)
class Setmaxnreg(Op):
    """Sets the registers per thread of the warpgroup; an increase waits until the CTA's pool holds enough."""

    registers: int

    needs = InstructionSet.TMA
    grain = Grain.WARPGROUPS

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Pool(self.registers),)
