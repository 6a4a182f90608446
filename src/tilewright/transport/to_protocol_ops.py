"""What one op of a kernel with roles does to barriers and tracked bytes, as ops of a protocol.

Register buffers appear where wgmma touches them. ``RoleAccesses`` also collects the declarations that the ops name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Const, Expr, Sym
from tilewright.hw.rules.wgmma import INSTRUCTION_K_BITS, INSTRUCTION_M
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import Buffer, By, MbarrierArray
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import values_at
from tilewright.transport.protocol_scope import WalkScope
from tilewright.transport.protocol_threads import NoProtocolError, writes_twice


class RoleAccesses:
    """Translates the ops of a kernel with roles, and keeps the buffers and barriers that they use."""

    in_parts: tuple[type[ops.Op], ...] = (ops.Read, ops.Write, ops.Wgmma)
    """Accesses that are made instruction by instruction. The threads' parts are disjoint, the region is the whole:
    equal ones that follow one another are one."""

    def __init__(self, inside: Iterable[Operation]):
        self.names: dict[SSAValue, str] = {}
        self.buffers: dict[str, Buffer] = {}
        self.barriers: list[MbarrierArray] = []
        self.tracked = {
            value
            for op in inside
            if isinstance(op, a.Wgmma)
            for value in (op.accumulator, op.a)
            if isinstance(value.type, t.RegistersType)
        }
        self._held: dict[tuple[SSAValue, str], ops.Region] = {}

    def steps(self, op: Operation, scope: WalkScope) -> Sequence[ops.Op] | None:
        """The protocol's ops of one op, in order; none for what touches neither barriers nor tracked bytes, None for
        what is no single op."""
        translation = _TRANSLATIONS.get(type(op))
        return None if translation is None else translation(self, op, scope)

    # -- declarations ----------------------------------------------------------------------------------------------
    def shared(self, op: t.Shared) -> None:
        """A buffer in shared memory."""
        kind = t.shared_of(op.buffer)
        size = kind.count.data * kind.dtype.dtype.bytes
        offset = op.offset.data if op.offset is not None else 0
        self._declare(Buffer(self._name(op.buffer, op.hint.data), Space.SHARED, size, offset))

    def mbarriers(self, op: a.Mbarriers) -> None:
        """An array of barriers."""
        kind = a.mbarriers_of(op.bars)
        self.barriers.append(MbarrierArray(self._name(op.bars, op.hint.data), kind.slots.data, kind.count.data))

    def _declare(self, buffer: Buffer) -> None:
        self.buffers[buffer.name] = buffer

    def _name(self, value: SSAValue, hint: str) -> str:
        base = "".join(c if c.isalnum() else "_" for c in hint) or "v"
        base = f"b_{base}" if base[0].isdigit() else base
        name, n = base, 1
        while name in self.names.values():
            name, n = f"{base}_{n}", n + 1
        self.names[value] = name
        return name

    # -- what ops name ---------------------------------------------------------------------------------------------
    def slot(self, bars: SSAValue, index: ExprAttr, scope: WalkScope, cta: ExprAttr | None = None) -> ops.Slot:
        """One barrier of an array."""
        return ops.Slot(self.names[bars], scope.value(index.data), None if cta is None else scope.value(cta.data))

    def region(self, shared: SSAValue, begin: ExprAttr, size: IntAttr, scope: WalkScope) -> ops.Region:
        """Bytes of a buffer in shared memory."""
        return ops.Region(self.names[shared], scope.value(begin.data), size.data)

    def whole(self, shared: SSAValue) -> ops.Region:
        """All of a buffer in shared memory."""
        name = self.names[shared]
        return ops.Region(name, Const(0), self.buffers[name].size)

    def registers(self, value: SSAValue, scope: WalkScope) -> ops.Region:
        """A register buffer of one warpgroup."""
        found = self._held.get((value, scope.role))
        if found is None:
            if value not in self.names:
                owner = value.owner
                self._name(value, owner.hint.data if isinstance(owner, t.Registers) else "registers")
            kind = t.registers_of(value)
            size = kind.count.data * kind.dtype.dtype.bytes
            held = (b for b in self.buffers.values() if b.space is Space.REGISTER)
            offset = max((b.offset + b.size for b in held), default=0)
            name = f"{scope.role}_{self.names[value]}"
            self._declare(Buffer(name, Space.REGISTER, size, offset))
            found = self._held[value, scope.role] = ops.Region(name, Const(0), size)
        return found

    def touched(self, reads: Iterable[SSAValue], writes: Iterable[SSAValue], scope: WalkScope) -> tuple[ops.Op, ...]:
        """Accesses to those of the register buffers that wgmma knows."""
        return (
            *(ops.Read(self.registers(value, scope)) for value in reads if value in self.tracked),
            *(ops.Write(self.registers(value, scope)) for value in writes if value in self.tracked),
        )

    def read(self, op: t.SharedRead, scope: WalkScope) -> ops.Region:
        """The bytes that threads read: a stage, where offsets are its begin plus what depends on the thread, else the
        whole buffer."""
        offset = op.offset.expr
        begin = offset.substitute({t.THREAD: Const(0), t.REGISTER: Const(0)})
        inside = offset - begin
        if not begin.symbols or not inside.symbols <= {t.THREAD, t.REGISTER}:
            return self.whole(op.shared)
        size = t.shared_of(op.shared).dtype.dtype.bytes
        registers = t.registers_of(op.buffer).count.data
        first, last = _extremes(inside, scope.threads, registers, op.vector.data)
        return ops.Region(self.names[op.shared], scope.value((begin + first) * size), (last - first) * size)

    def read_of_cluster(self, op: t.ClusterRead, scope: WalkScope) -> tuple[ops.Read, ...]:
        """The bytes that threads read of each CTA."""
        size = t.shared_of(op.shared).dtype.dtype.bytes
        found: list[ops.Read] = []
        for rank, registers in _by_rank(op):
            own = op.offset.expr.substitute({t.REGISTER: Sym(t.REGISTER) + registers.start})
            begin = own.substitute({t.THREAD: Const(0), t.REGISTER: Const(0)})
            inside = own - begin
            if not inside.symbols <= {t.THREAD, t.REGISTER}:
                raise NoProtocolError(f"{op.name} at {op.offset.expr}")
            first, last = _extremes(inside, scope.threads, len(registers) * registers.step, op.vector.data)
            at = scope.value((begin + first) * size)
            found.append(ops.Read(ops.Region(self.names[op.shared], at, (last - first) * size, Const(rank))))
        return tuple(found)

    def written(self, op: t.SharedWrite, scope: WalkScope) -> tuple[ops.Write, ...]:
        """The bytes that the warpgroup writes, as intervals; all of the buffer where they depend on more than the
        thread, or where a role has one warpgroup, whose threads are ordered among themselves."""
        if scope.by is By.ALL and writes_twice(op, scope.threads):
            raise NoProtocolError(f"two threads write one element of {self.names[op.shared]} at once")
        whole = self.whole(op.shared)
        used = op.offset.expr.symbols | op.guard.expr.symbols
        if scope.threads <= a.WARPGROUP_THREADS or not used <= {t.THREAD, t.REGISTER}:
            return (ops.Write(whole),)
        size = t.shared_of(op.shared).dtype.dtype.bytes
        count = t.registers_of(op.buffer).count.data
        runs = _intervals(op.offset.expr, op.guard.expr, scope.warpgroup, count, size)
        return tuple(ops.Write(ops.Region(whole.buffer, Const(begin), length)) for begin, length in runs)

    def wgmma(self, op: a.Wgmma, scope: WalkScope) -> ops.Wgmma:
        """One instruction; its matrices are 64 rows, or as many columns as it has, of 32 bytes of k."""
        size = t.registers_of(op.accumulator).dtype.dtype.bytes
        held = self.registers(op.accumulator, scope).buffer
        accumulator = ops.Region(held, Const(op.first.data * size), op.n.data // 2 * size)
        b = self.region(op.b, op.b_region, op.b_bytes, scope)
        if op.a_in_registers:
            dtype = t.registers_of(op.a).dtype.dtype
            held = self.registers(op.a, scope).buffer
            count = 256 // dtype.bits // 2
            left = ops.Region(held, Const(op.a_register.data * dtype.bytes), count * dtype.bytes)
        else:
            left = self.region(op.a, op.a_region, op.a_bytes, scope)
        row_bytes = INSTRUCTION_K_BITS // 8
        return ops.Wgmma(accumulator, (left, b), (INSTRUCTION_M * row_bytes, op.n.data * row_bytes))


def _by_rank(op: t.ClusterRead) -> Iterator[tuple[int, range]]:
    """The ranks that are read, and the first registers of the vectors read of each: runs, one after the other."""
    vector, count = op.vector.data, t.registers_of(op.buffer).count.data
    begin, rank = 0, None
    for register in range(0, count + vector, vector):
        own = op.cta.expr.substitute({t.REGISTER: Const(register)}).constant if register < count else None
        if register < count and own is None:
            raise NoProtocolError(f"{op.name} of the CTA of rank {op.cta.expr}")
        if own != rank and rank is not None:
            yield rank, range(begin, register, vector)
        if own != rank:
            begin, rank = register, own


@cache
def _intervals(offset: Expr, guard: Expr, warpgroup: int, registers: int, size: int) -> tuple[tuple[int, int], ...]:
    """First byte and length of every run of elements of ``size`` bytes that a warpgroup's threads write."""
    threads = np.arange(warpgroup * a.WARPGROUP_THREADS, (warpgroup + 1) * a.WARPGROUP_THREADS)
    thread, register = (x.ravel() for x in np.meshgrid(threads, np.arange(registers), indexing="ij"))
    kept = values_at(guard, {t.THREAD: thread, t.REGISTER: register}).astype(bool)
    elements = values_at(offset, {t.THREAD: thread[kept], t.REGISTER: register[kept]})
    runs: list[tuple[int, int]] = []
    for element in np.unique(elements).tolist():
        if runs and runs[-1][0] + runs[-1][1] == element * size:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        else:
            runs.append((element * size, size))
    return tuple(runs)


@cache
def _extremes(inside: Expr, threads: int, registers: int, vector: int) -> tuple[int, int]:
    """The first element that any thread and register name, and the one behind the last."""
    thread, register = np.meshgrid(np.arange(threads), np.arange(0, registers, vector), indexing="ij")
    places = values_at(inside, {t.THREAD: thread.ravel(), t.REGISTER: register.ravel()})
    return int(places.min()), int(places.max()) + vector


# -- what each op does -----------------------------------------------------------------------------------------------
Translation: TypeAlias = Callable[[RoleAccesses, Any, WalkScope], Sequence[ops.Op]]


def _touching(reads: Callable[[Any], Iterable[SSAValue]], writes: Callable[[Any], Iterable[SSAValue]]) -> Translation:
    """Synchronous code that reads some register buffers, then writes some."""

    def translation(to: RoleAccesses, op: Operation, at: WalkScope) -> Sequence[ops.Op]:
        # most code touches no register that wgmma knows; looking at all operands is quicker than telling them apart
        return () if to.tracked.isdisjoint(op.operands) else to.touched(reads(op), writes(op), at)

    return translation


def _none(op: Operation) -> tuple[SSAValue, ...]:
    return ()


_TRANSLATIONS: dict[type[Operation], Translation] = {
    a.SetMaxRegisters: lambda to, op, at: (ops.Setmaxnreg(op.count.data),),
    a.MbarrierInit: lambda to, op, at: (ops.MbarrierInit(to.names[op.bars]),),
    a.FenceMbarrierInit: lambda to, op, at: (ops.FenceMbarrierInit(),),
    a.MbarrierArrive: lambda to, op, at: (ops.Arrive(to.slot(op.bars, op.index, at, op.cta)),),
    a.MbarrierArriveExpectTx: lambda to, op, at: (ops.ArriveExpectTx(to.slot(op.bars, op.index, at), op.bytes.data),),
    a.MbarrierWait: lambda to, op, at: (ops.Wait(to.slot(op.bars, op.index, at), at.value(op.parity.data)),),
    a.TmaLoad: lambda to, op, at: (
        ops.TmaLoad(
            to.region(op.shared, op.offset, op.box_bytes, at),
            to.slot(op.bars, op.index, at),
            tuple(at.value(rank.data) for rank in op.ctas),
        ),
    ),
    a.CpAsync: lambda to, op, at: (ops.CpAsync(to.region(op.shared, op.base, op.bytes, at)),),
    a.CpAsyncMbarrierArrive: lambda to, op, at: (ops.CpAsyncArrive(to.slot(op.bars, op.index, at)),),
    a.TmaStore: lambda to, op, at: (ops.TmaStore(to.region(op.shared, op.offset, op.box_bytes, at)),),
    a.BulkCommit: lambda to, op, at: (ops.BulkCommit(),),
    a.BulkWait: lambda to, op, at: (ops.BulkWait(op.pending.data, bool(op.read.data)),),
    a.FenceProxyAsync: lambda to, op, at: (ops.FenceProxyAsync(ops.FenceSpace.SHARED),),  # .shared::cta is emitted
    a.NamedBarrierSync: lambda to, op, at: (ops.BarSync(at.value(op.id.data), op.threads.data),),
    a.NamedBarrierArrive: lambda to, op, at: (ops.BarArrive(at.value(op.id.data), op.threads.data),),
    t.Barrier: lambda to, op, at: (ops.BarSync(Const(a.role_barrier(at.index)), at.threads),),
    a.ClusterArrive: lambda to, op, at: (ops.ClusterArrive(),),
    a.ClusterWait: lambda to, op, at: (ops.ClusterWait(),),
    a.WgmmaFence: lambda to, op, at: (ops.WgmmaFence(),),
    a.Wgmma: lambda to, op, at: (to.wgmma(op, at),),
    a.WgmmaCommit: lambda to, op, at: (ops.WgmmaCommit(),),
    a.WgmmaWait: lambda to, op, at: (ops.WgmmaWait(op.pending.data),),
    # what threads do to bytes in shared memory
    a.LoadStore: lambda to, op, at: (ops.Write(to.region(op.shared, op.base, op.bytes, at)),),
    a.ZeroFill: lambda to, op, at: (ops.Write(to.region(op.shared, op.base, op.bytes, at)),),
    a.CopyOut: lambda to, op, at: (ops.Read(to.region(op.shared, op.base, op.bytes, at)),),
    a.StoreMatrix: lambda to, op, at: (ops.Write(to.region(op.shared, op.base, op.bytes, at)),),
    a.LoadMatrix: lambda to, op, at: (
        ops.Read(to.region(op.shared, op.base, op.bytes, at)),
        *to.touched((), (op.buffer,), at),
    ),
    t.SharedWrite: lambda to, op, at: (*to.touched((op.buffer,), (), at), *to.written(op, at)),
    t.SharedRead: lambda to, op, at: (ops.Read(to.read(op, at)), *to.touched((), (op.buffer,), at)),
    t.ClusterRead: lambda to, op, at: (*to.read_of_cluster(op, at), *to.touched((), (op.buffer,), at)),
    # and to registers
    t.Registers: lambda to, op, at: (),
    t.Load: _touching(_none, lambda op: (op.buffer,)),
    t.Store: _touching(lambda op: (op.buffer,), _none),
    t.AtomicReduce: _touching(lambda op: (op.buffer,), _none),
    t.Draw: _touching(_none, lambda op: (op.buffer,)),
    t.Map: _touching(lambda op: op.inputs, lambda op: op.outputs),
    t.Fold: _touching(lambda op: op.sources, lambda op: op.targets),
    t.Shuffle: _touching(_none, lambda op: op.buffers),
    t.RegisterSelect: _touching(lambda op: (op.source,), lambda op: (op.target,)),
    t.Exchange: _touching(lambda op: (op.source,), lambda op: (op.target,)),
    a.Mma: _touching(lambda op: (op.a, op.b), lambda op: (op.accumulator,)),
    t.Pin: _touching(_none, lambda op: (op.buffer,)),
    t.Print: _touching(lambda op: op.buffers, _none),
    t.Trap: _touching(lambda op: op.buffers, _none),
}
