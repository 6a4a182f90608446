"""What one op of a kernel with roles does to barriers and tracked bytes, as ops of a protocol.

Register buffers appear where wgmma touches them. ``Accesses`` also collects the declarations that the ops name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Const, Expr, Sym, simplify
from tilewright.hw.spaces import Space
from tilewright.hw.wgmma import INSTRUCTION_K_BITS, INSTRUCTION_M
from tilewright.protocol import ops
from tilewright.protocol.model import Barrier, Buffer, By
from tilewright.tile.ops import operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


@dataclass
class Scope:
    """Where the walk is: the role's own names, the warpgroup, who executes, the loops around."""

    role: str
    index: int
    threads: int
    warpgroup: int
    by: By = By.ALL
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    programs: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()

    def elected(self) -> Scope:
        """The same place, executed by one thread."""
        return replace(self, by=By.ELECTED, lets=dict(self.lets))

    def inside(self, programs: tuple[str, ...] = (), loops: tuple[str, ...] = ()) -> Scope:
        """A body there, with names of its own."""
        return replace(self, lets=dict(self.lets), programs=(*self.programs, *programs), loops=(*self.loops, *loops))

    def value(self, node: Expr) -> Expr:
        """An expression in the protocol's symbols: what the role has named, its warpgroup, the CTA's rank."""
        known = {**self.lets, a.WARPGROUP: self.warpgroup, a.CTA_RANK: Sym(ops.CTA_RANK)}
        return simplify(node.substitute(known), {})


class Accesses:
    """Translates ops, and keeps the buffers and barriers that they use."""

    def __init__(self, kernel: t.Kernel):
        self.names: dict[SSAValue, str] = {}
        self.buffers: list[Buffer] = []
        self.barriers: list[Barrier] = []
        self.tracked = {
            value
            for op in operations(kernel)
            if isinstance(op, a.Wgmma)
            for value in (op.accumulator, op.a)
            if isinstance(value.type, t.RegistersType)
        }

    def shared(self, op: t.Shared) -> None:
        """A buffer in shared memory."""
        kind = t.shared_of(op.buffer)
        size = kind.count.data * kind.dtype.dtype.bytes
        offset = op.offset.data if op.offset is not None else 0
        self.buffers.append(Buffer(self._name(op.buffer, op.hint.data), Space.SHARED, size, offset))

    def mbarriers(self, op: a.Mbarriers) -> None:
        """An array of barriers."""
        kind = a.mbarriers_of(op.bars)
        self.barriers.append(Barrier(self._name(op.bars, op.hint.data), kind.slots.data, kind.count.data))

    def steps(self, op: Operation, scope: Scope) -> Iterator[ops.Op]:
        """The protocol's ops of one op, in order; none for what touches neither barriers nor tracked bytes."""
        value = scope.value
        match op:
            case a.SetMaxRegisters():
                yield ops.Setmaxnreg(op.count.data)
            case a.MbarrierInit():
                yield ops.MbarrierInit(self.names[op.bars])
            case a.FenceMbarrierInit():
                yield ops.FenceMbarrierInit()
            case a.MbarrierArrive():
                slot = self._slot(op.bars, op.index.expr, scope)
                yield ops.Arrive(slot if op.cta is None else replace(slot, cta=value(op.cta.expr)))
            case a.MbarrierArriveExpectTx():
                yield ops.ArriveExpectTx(self._slot(op.bars, op.index.expr, scope), op.bytes.data)
            case a.MbarrierWait():
                yield ops.Wait(self._slot(op.bars, op.index.expr, scope), value(op.parity.expr))
            case a.TmaLoad():
                region = ops.Region(self.names[op.shared], value(op.offset.expr), op.box_bytes.data)
                ctas = tuple(value(c.expr) for c in op.ctas)
                yield ops.TmaLoad(region, self._slot(op.bars, op.index.expr, scope), ctas)
            case a.CpAsync():
                yield ops.CpAsync(ops.Region(self.names[op.shared], value(op.base.expr), op.bytes.data))
            case a.LoadStore():
                yield ops.Write(ops.Region(self.names[op.shared], value(op.base.expr), op.bytes.data))
            case a.CpAsyncMbarrierArrive():
                yield ops.CpAsyncArrive(self._slot(op.bars, op.index.expr, scope))
            case a.TmaStore():
                yield ops.TmaStore(ops.Region(self.names[op.shared], value(op.offset.expr), op.box_bytes.data))
            case a.BulkCommit():
                yield ops.BulkCommit()
            case a.BulkWait():
                yield ops.BulkWait(op.pending.data, bool(op.read.data))
            case a.FenceProxyAsync():
                yield ops.FenceProxyAsync()
            case a.NamedBarrierSync():
                yield ops.BarSync(value(op.id.expr), op.threads.data)
            case a.NamedBarrierArrive():
                yield ops.BarArrive(value(op.id.expr), op.threads.data)
            case t.Barrier():
                yield ops.BarSync(Const(a.role_barrier(scope.index)), scope.threads)
            case a.ClusterArrive():
                yield ops.ClusterArrive()
            case a.ClusterWait():
                yield ops.ClusterWait()
            case a.StoreMatrix():
                yield ops.Write(ops.Region(self.names[op.shared], value(op.base.expr), op.bytes.data))
            case a.LoadMatrix():
                yield ops.Read(ops.Region(self.names[op.shared], value(op.base.expr), op.bytes.data))
                yield from self._touch(op.buffer, scope, writes=True)
            case a.WgmmaFence():
                yield ops.WgmmaFence()
            case a.Wgmma():
                yield self._wgmma(op, scope)
            case a.WgmmaCommit():
                yield ops.WgmmaCommit()
            case a.WgmmaWait():
                yield ops.WgmmaWait(op.pending.data)
            case _:
                yield from self._plain(op, scope)

    def _plain(self, op: Operation, scope: Scope) -> Iterator[ops.Op]:
        """Synchronous ops: what they do to shared bytes and to registers that wgmma knows."""
        match op:
            case t.Load():
                yield from self._touch(op.buffer, scope, writes=True)
            case t.Store() | t.ReduceAdd():
                yield from self._touch(op.buffer, scope, writes=False)
            case t.Map():
                for buffer in op.inputs:
                    yield from self._touch(buffer, scope, writes=False)
                for buffer in op.outputs:
                    yield from self._touch(buffer, scope, writes=True)
            case t.Fold():
                for buffer in op.sources:
                    yield from self._touch(buffer, scope, writes=False)
                for buffer in op.targets:
                    yield from self._touch(buffer, scope, writes=True)
            case t.Shuffle():
                for buffer in op.buffers:
                    yield from self._touch(buffer, scope, writes=True)
            case t.Select() | t.Exchange():
                yield from self._touch(op.source, scope, writes=False)
                yield from self._touch(op.target, scope, writes=True)
            case t.Pin():
                yield from self._touch(op.buffer, scope, writes=True)
            case t.Print():
                for buffer in op.buffers:
                    yield from self._touch(buffer, scope, writes=False)
            case t.SharedWrite():
                yield from self._touch(op.buffer, scope, writes=False)
                for begin, size in self._written(op, scope):
                    yield ops.Write(ops.Region(self.names[op.shared], Const(begin), size))
            case t.SharedRead():
                yield ops.Read(self._whole(op.shared))
                yield from self._touch(op.buffer, scope, writes=True)
            case t.Registers():
                pass
            case _:
                raise TypeError(f"no protocol for {op.name}")

    def _written(self, op: t.SharedWrite, scope: Scope) -> tuple[tuple[int, int], ...]:
        """The bytes that the warpgroup writes, as intervals; all of the buffer where they depend on more than the
        thread, or where a role has one warpgroup, whose threads are ordered among themselves."""
        whole = self._whole(op.shared)
        used = op.offset.expr.symbols | op.guard.expr.symbols
        if scope.threads <= a.WARPGROUP_THREADS or not used <= {t.THREAD, t.REGISTER}:
            return ((0, whole.size),)
        size = t.shared_of(op.shared).dtype.dtype.bytes
        count = t.registers_of(op.buffer).count.data
        return _intervals(op.offset.expr, op.guard.expr, scope.warpgroup, count, size)

    def _whole(self, shared: SSAValue) -> ops.Region:
        name = self.names[shared]
        return ops.Region(name, Const(0), next(b.size for b in self.buffers if b.name == name))

    def _touch(self, value: SSAValue, scope: Scope, *, writes: bool) -> Iterator[ops.Op]:
        if value in self.tracked:
            kind = t.registers_of(value)
            region = ops.Region(self._registers(value, scope), Const(0), kind.count.data * kind.dtype.dtype.bytes)
            yield ops.Write(region) if writes else ops.Read(region)

    def _slot(self, bars: SSAValue, index: Expr, scope: Scope) -> ops.Slot:
        return ops.Slot(self.names[bars], scope.value(index))

    def _wgmma(self, op: a.Wgmma, scope: Scope) -> ops.Wgmma:
        size = t.registers_of(op.accumulator).dtype.dtype.bytes
        accumulator = ops.Region(
            self._registers(op.accumulator, scope), Const(op.first.data * size), op.n.data // 2 * size
        )
        b = ops.Region(self.names[op.b], scope.value(op.b_region.expr), op.b_bytes.data)
        if op.a_in_registers:
            kind = t.registers_of(op.a)
            count = 256 // kind.dtype.dtype.bits // 2
            left = ops.Region(
                self._registers(op.a, scope),
                Const(op.a_register.data * kind.dtype.dtype.bytes),
                count * kind.dtype.dtype.bytes,
            )
        else:
            left = ops.Region(self.names[op.a], scope.value(op.a_region.expr), op.a_bytes.data)
        row_bytes = INSTRUCTION_K_BITS // 8
        return ops.Wgmma(accumulator, (left, b), (INSTRUCTION_M * row_bytes, op.n.data * row_bytes))

    def _name(self, value: SSAValue, hint: str) -> str:
        base = "".join(c if c.isalnum() else "_" for c in hint) or "v"
        base = f"b_{base}" if base[0].isdigit() else base
        name, n = base, 1
        while name in self.names.values():
            name, n = f"{base}_{n}", n + 1
        self.names[value] = name
        return name

    def _registers(self, value: SSAValue, scope: Scope) -> str:
        """The register buffer of one warpgroup."""
        kind = t.registers_of(value)
        if value not in self.names:
            owner = value.owner
            self._name(value, owner.hint.data if isinstance(owner, t.Registers) else "registers")
        name = f"{scope.role}_{self.names[value]}"
        if all(b.name != name for b in self.buffers):
            size = kind.count.data * kind.dtype.dtype.bytes
            offset = max((b.offset + b.size for b in self.buffers if b.space is Space.REGISTER), default=0)
            self.buffers.append(Buffer(name, Space.REGISTER, size, offset))
        return name


@cache
def _intervals(offset: Expr, guard: Expr, warpgroup: int, registers: int, size: int) -> tuple[tuple[int, int], ...]:
    """First byte and length of every run of elements of ``size`` bytes that a warpgroup's threads write."""
    elements: set[int] = set()
    for thread in range(warpgroup * a.WARPGROUP_THREADS, (warpgroup + 1) * a.WARPGROUP_THREADS):
        at = {t.THREAD: thread}
        own, kept = offset.substitute(at), guard.substitute(at)
        for register in range(registers):
            if kept.evaluate({t.REGISTER: register}):
                elements.add(own.evaluate({t.REGISTER: register}))
    runs: list[tuple[int, int]] = []
    for element in sorted(elements):
        if runs and runs[-1][0] + runs[-1][1] == element * size:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        else:
            runs.append((element * size, size))
    return tuple(runs)
