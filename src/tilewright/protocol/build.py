"""Writing a protocol by hand: a builder with roles, loops and pipelines that lower to ops on mbarriers and bytes.

    b = Build("copy")
    kt = b.symbol("kt")
    a = b.pipeline("a", stages=4, stage_bytes=16384, consumers=1)
    with b.role("producer", threads=32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(a.producer_acquire(k)); p.one(a.producer_commit(k)); p.one(a.load(k))
    with b.role("consumer", threads=128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(a.consumer_wait(k)); c.all(a.read(k)); c.one(a.consumer_release(k))
    protocol = b.protocol()

Every step remembers the line that wrote it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilewright.base.expr import Expr, ExprLike, expr, sym
from tilewright.diag import Location
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import (
    Buffer,
    By,
    GlobalCounter,
    If,
    Loop,
    MbarrierArray,
    Node,
    Pipeline,
    Protocol,
    Role,
    Step,
    Symbol,
)
from tilewright.protocol.pipelines import barriers_of, begin_of, parity_of, slot_of
from tilewright.protocol.well_formed import TICKET_BYTES, require_valid


@dataclass(frozen=True)
class BufferHandle:
    """A declared buffer; ``[begin : begin + n]`` would hide the size, so regions are made by ``at`` and ``whole``."""

    buffer: Buffer

    def at(self, begin: ExprLike, size: int, cta: ExprLike | None = None) -> ops.Region:
        """Bytes ``begin .. begin + size`` (columns in tensor memory)."""
        return ops.Region(self.buffer.name, expr(begin), size, None if cta is None else expr(cta))

    @property
    def whole(self) -> ops.Region:
        """All of it."""
        return self.at(0, self.buffer.size)


@dataclass(frozen=True)
class BarrierHandle:
    """A declared mbarrier array; ``full[i]`` is its i-th slot in the executing CTA."""

    barrier: MbarrierArray

    def __getitem__(self, index: ExprLike) -> ops.Slot:
        return ops.Slot(self.barrier.name, expr(index))

    def of(self, cta: ExprLike, index: ExprLike = 0) -> ops.Slot:
        """The slot ``index`` in the CTA of rank ``cta``."""
        return ops.Slot(self.barrier.name, expr(index), expr(cta))


@dataclass(frozen=True)
class CounterHandle:
    """A declared counter in global memory; ``done[i]`` is its i-th word."""

    counter: GlobalCounter

    def __getitem__(self, index: ExprLike) -> ops.Word:
        return ops.Word(self.counter.name, expr(index))


@dataclass(frozen=True)
class PipelineHandle:
    """A declared pipeline: ``stages`` stages of ``stage_bytes`` with a full and an empty barrier each.

    ``i`` is the running number of the stage's use; methods give the ops that ``protocol.pipelines`` expands uses to.
    """

    stages: int
    stage_bytes: int
    data: BufferHandle
    full: BarrierHandle
    empty: BarrierHandle

    def slot(self, i: ExprLike) -> Expr:
        """Slot of use ``i``."""
        return slot_of(expr(i), self.stages)

    def stage(self, i: ExprLike, offset: ExprLike = 0, size: int | None = None) -> ops.Region:
        """Bytes of the stage of use ``i`` from ``offset`` on; without a size all the rest."""
        if size is None:
            assert isinstance(offset, int)
            size = self.stage_bytes - offset
        return self.data.at(begin_of(expr(i), self.stages, self.stage_bytes, expr(offset)), size)

    def producer_acquire(self, i: ExprLike, scope: ops.Scope = ops.Scope.CTA) -> ops.Wait:
        """The producer's wait until the stage may be overwritten by use ``i``."""
        return ops.Wait(self.empty[self.slot(i)], parity_of(expr(i), self.stages, 1), scope)

    def producer_commit(self, i: ExprLike, tx_bytes: int | None = None) -> ops.ArriveExpectTx:
        """The producer's arrival, with the bytes that will land in this CTA, by default those of the stage."""
        return ops.ArriveExpectTx(self.full[self.slot(i)], self.stage_bytes if tx_bytes is None else tx_bytes)

    def load(
        self, i: ExprLike, offset: ExprLike = 0, size: int | None = None, ctas: Sequence[ExprLike] = ()
    ) -> ops.TmaLoad:
        """A tensor copy into the stage of use ``i``."""
        return ops.TmaLoad(self.stage(i, offset, size), self.full[self.slot(i)], tuple(map(expr, ctas)))

    def consumer_wait(self, i: ExprLike, peeked: bool = False) -> ops.Wait:
        """The consumer's wait for the data of use ``i``."""
        return ops.Wait(self.full[self.slot(i)], parity_of(expr(i), self.stages), peeked=peeked)

    def consumer_try_wait(self, i: ExprLike) -> ops.TestWait:
        """One try at the data of use ``i``; the wait for it is then ``consumer_wait(i, peeked=True)``."""
        return ops.TestWait(self.full[self.slot(i)], parity_of(expr(i), self.stages))

    def read(self, i: ExprLike) -> ops.Read:
        """A generic read of the stage of use ``i``."""
        return ops.Read(self.stage(i))

    def consumer_release(
        self, i: ExprLike, cta: ExprLike | None = None, scope: ops.Scope = ops.Scope.CTA
    ) -> ops.Arrive:
        """The consumer's arrival: the stage of use ``i`` has been read."""
        slot = self.empty[self.slot(i)] if cta is None else self.empty.of(cta, self.slot(i))
        return ops.Arrive(slot, scope=scope)


@dataclass
class RoleBuilder:
    """Collects the steps of one role."""

    name: str
    threads: int
    ctas: tuple[int, ...] | None
    counters: dict[str, int] = field(default_factory=dict[str, int])
    _blocks: list[list[Node]] = field(default_factory=lambda: [[]])

    def all(self, op: ops.Op, note: str = "") -> None:
        """Every thread of the role executes ``op``."""
        self._blocks[-1].append(Step(op, By.ALL, _caller(), note))

    def one(self, op: ops.Op, note: str = "") -> None:
        """One elected thread executes ``op``."""
        self._blocks[-1].append(Step(op, By.ELECTED, _caller(), note))

    def thread_zero(self, op: ops.Op, note: str = "") -> None:
        """``op`` under ``threadIdx.x == 0``; a lint (``protocol.lint``) says what is wrong with that."""
        self._blocks[-1].append(Step(op, By.THREAD_ZERO, _caller(), note))

    def per_warp(self, op: ops.Op, note: str = "") -> None:
        """The elected lane of each warp executes ``op``."""
        self._blocks[-1].append(Step(op, By.PER_WARP, _caller(), note))

    def counter(self, name: str, start: int = 0) -> Expr:
        """A counter carried across loops, such as a ring's running use number."""
        self.counters[name] = start
        return sym(name)

    def advance(self, counter: Expr, by: ExprLike = 1) -> None:
        """Adds to a carried counter."""
        self._blocks[-1].append(Step(ops.Advance(str(counter), expr(by)), By.ALL, _caller()))

    @contextmanager
    def loop(self, counter: str, end: ExprLike, begin: ExprLike = 0, step: int = 1) -> Generator[Expr]:
        """``for counter in range(begin, end, step)``."""
        where = _caller(3)
        self._blocks.append([])
        yield sym(counter)
        body = tuple(self._blocks.pop())
        self._blocks[-1].append(Loop(counter, expr(begin), expr(end), step, body, where))

    @contextmanager
    def when(self, condition: Expr) -> Generator[None]:
        """Steps executed only where ``condition`` holds."""
        where = _caller(3)
        self._blocks.append([])
        yield
        body = tuple(self._blocks.pop())
        self._blocks[-1].append(If(condition, body, (), where))

    def role(self) -> Role:
        """The role as written so far."""
        return Role(self.name, self.threads, tuple(self._blocks[0]), tuple(self.counters.items()), self.ctas)


@dataclass
class Build:
    """A protocol being written. Shared buffers are placed one after another unless given an offset."""

    name: str
    cluster: int = 1
    registers_per_thread: int = 168
    grid: int = 1
    resident: int = 1
    target: str = ""
    _roles: list[RoleBuilder] = field(default_factory=list[RoleBuilder])
    _buffers: list[Buffer] = field(default_factory=list[Buffer])
    _barriers: list[MbarrierArray] = field(default_factory=list[MbarrierArray])
    _symbols: list[Symbol] = field(default_factory=list[Symbol])
    _counters: list[GlobalCounter] = field(default_factory=list[GlobalCounter])

    def symbol(
        self, name: str, least: int = 0, most: int | None = None, multiple_of: int = 1, per: str | None = None
    ) -> Expr:
        """A value unknown until run time; see ``Symbol``."""
        self._symbols.append(Symbol(name, least, most, multiple_of, per))
        return sym(name)

    def buffer(
        self, name: str, size: int, space: Space = Space.SHARED, offset: int | None = None, initialised: bool = False,
        swizzle: int = 0,
    ) -> BufferHandle:  # fmt: skip
        """A buffer of any space; without ``offset`` behind the last of its space."""
        if offset is None:
            offset = max((b.offset + b.size for b in self._buffers if b.space is space), default=0)
        self._buffers.append(Buffer(name, space, size, offset, initialised, swizzle))
        return BufferHandle(self._buffers[-1])

    def mbarrier(self, name: str, slots: int = 1, count: int = 1) -> BarrierHandle:
        """An array of mbarriers."""
        self._barriers.append(MbarrierArray(name, slots, count))
        return BarrierHandle(self._barriers[-1])

    def counter(self, name: str, slots: int = 1, reset: bool = False) -> CounterHandle:
        """Words in global memory, which the launch fills with zeros if it is to ``reset`` them."""
        self._counters.append(GlobalCounter(name, slots, reset))
        return CounterHandle(self._counters[-1])

    def ticket(self, name: str) -> tuple[ops.Region, Expr]:
        """A shared buffer for a ticket, and its value."""
        return self.buffer(name, TICKET_BYTES).whole, sym(name)

    def pipeline(self, name: str, stages: int, stage_bytes: int, consumers: int, producers: int = 1) -> PipelineHandle:
        """A pipeline with buffer ``name`` and barriers ``name_full`` (a phase has ``producers`` arrivals) and
        ``name_empty`` (``consumers``)."""
        data = self.buffer(name, stages * stage_bytes)
        full, empty = barriers_of(Pipeline(name, stages, (name,), producers, consumers))
        handles = (self.mbarrier(b.name, b.slots, b.count) for b in (full, empty))
        return PipelineHandle(stages, stage_bytes, data, *handles)

    @contextmanager
    def role(self, name: str, threads: int, ctas: tuple[int, ...] | None = None) -> Generator[RoleBuilder]:
        """Declares a role and collects its steps."""
        self._roles.append(RoleBuilder(name, threads, ctas))
        yield self._roles[-1]

    def init(self, role: RoleBuilder) -> None:
        """The usual opening of the initialising role: init of all barriers, the init fence, then ``sync``."""
        for barrier in self._barriers:
            role.one(ops.MbarrierInit(barrier.name))
        role.one(ops.FenceMbarrierInit())
        self.sync(role)

    def sync(self, role: RoleBuilder) -> None:
        """All threads meet: the CTA, or with a cluster the cluster."""
        if self.cluster == 1:
            role.all(ops.CtaSync())
        else:
            role.all(ops.ClusterArrive())
            role.all(ops.ClusterWait())

    def protocol(self) -> Protocol:
        """The protocol, checked for form; raises ``TilewrightError`` with codes MBR001 to MBR006."""
        value = Protocol(
            self.name,
            tuple(r.role() for r in self._roles),
            tuple(self._buffers),
            tuple(self._barriers),
            tuple(self._symbols),
            self.cluster,
            self.registers_per_thread,
            global_counters=tuple(self._counters),
            grid=self.grid,
            resident=self.resident,
            target=self.target,
        )
        require_valid(value)
        return value


def _caller(depth: int = 2) -> Location:
    frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)
