"""Counters and flags in global memory: how CTAs of a grid tell each other what is done (PTX ISA 9.1, 8.5 to 8.9).

The operations are strong ones on a 32-bit word. A *release pattern* hands on what precedes its first operation, to an
*acquire pattern* that reads what it wrote, or what atomic operations made of it (8.8, 8.9.2), if the scopes of both
include each other's threads (8.7). Which pattern an op is part of, ``sem`` and ``FenceAcqRel`` say.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.base.expr import Const, Expr
from tilewright.protocol.effects import Access, Counting, Effect, Grain, MemoryFence, Mode, Part, Strong
from tilewright.protocol.operands import Region, Scope, Sem, Word
from tilewright.protocol.ops.base import MEMORY, Brief, Op, located


@dataclass(frozen=True)
class AtomAdd(Op):
    """atom.add: adds to a word; its value before, the *ticket*, is left in shared memory.

    Without a ticket it is red.add, which reads nothing that could be acquired (PTX ISA 9.1, 8.8). Conditions and
    operands may name the buffer of the ticket for its value: whoever evaluates them reads the buffer.
    """

    word: Word
    value: int = 1
    ticket: Region | None = None
    sem: Sem = Sem.ACQ_REL
    scope: Scope = Scope.GPU

    grain = Grain.ONE
    spaces = located(ticket=MEMORY)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        drawn = "" if self.ticket is None else self.ticket.buffer
        added = Strong(self.word, Counting.ADD, Const(self.value), self.sem, self.scope, drawn)
        return added, *(Access(r, Mode.WRITE, part=Part.WHOLE, name="a ticket") for r in self.regions)

    @property
    def brief(self) -> Brief:
        head = f"{'red' if self.ticket is None else 'atom'}.add.{self.sem.value}.{self.scope.value} "
        return f"{head}{self.word.counter}[", self.word.index, f"] {self.value}"


@dataclass(frozen=True)
class FlagStore(Op):
    """st: sets a word. ``sem`` is relaxed or release."""

    word: Word
    value: int
    sem: Sem = Sem.RELEASE
    scope: Scope = Scope.GPU

    grain = Grain.ONE

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Strong(self.word, Counting.SET, Const(self.value), self.sem, self.scope),)

    @property
    def brief(self) -> Brief:
        return f"st.{self.sem.value}.{self.scope.value} {self.word.counter}[", self.word.index, f"] = {self.value}"


@dataclass(frozen=True)
class SpinWait(Op):
    """A loop around ld that ends when the word is at least ``least``. ``sem`` is relaxed or acquire."""

    word: Word
    least: Expr
    sem: Sem = Sem.ACQUIRE
    scope: Scope = Scope.GPU

    instruction = "ld.acquire"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Strong(self.word, Counting.AT_LEAST, self.least, self.sem, self.scope),)

    @property
    def brief(self) -> Brief:
        head = f"spin.{self.sem.value}.{self.scope.value} {self.word.counter}["
        return head, self.word.index, "] >= ", self.least


@dataclass(frozen=True)
class FenceAcqRel(Op):
    """fence.acq_rel: with a relaxed op on a word behind it, or before it, a release or an acquire pattern."""

    scope: Scope = Scope.GPU

    instruction = "fence.acq_rel"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (MemoryFence(self.scope),)

    @property
    def brief(self) -> Brief:
        return (f"fence.acq_rel.{self.scope.value}",)
