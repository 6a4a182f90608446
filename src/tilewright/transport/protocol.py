"""Extraction of the protocol: what a kernel with roles does to barriers and shared bytes, as plain data.

Every role of several warpgroups becomes one protocol role per warpgroup. Loop bounds that depend on the launch become
trip symbols, branches on a program's place become symbols of 0 or 1; loops with the same bounds share theirs, so that
producers and consumers agree on how often they go round. Register buffers appear where wgmma touches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.expr import Const, Expr, Sum, Sym, parse, simplify
from tilewright.diag import Location
from tilewright.hw.spaces import Space
from tilewright.hw.target import SM90A
from tilewright.protocol import ops
from tilewright.protocol.model import Barrier, Buffer, By, If, Loop, Node, Protocol, Role, Step, Symbol
from tilewright.tile.ops import operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

PROGRAM_LOOP = "program"
"""Counter of the loop over a CTA's programs."""


_IN_PARTS = (ops.Read, ops.Write, ops.Wgmma)


def has_roles(kernel: t.Kernel) -> bool:
    """Whether the kernel runs in roles: only such kernels have a protocol."""
    return any(isinstance(op, a.Role) for op in kernel.body.block.ops)


def protocol_of(kernel: t.Kernel, decided: Mapping[Expr, bool] | None = None) -> Protocol:
    """The protocol of a kernel with roles. ``decided`` says which way branches on extents go; others stay open."""
    return _Extraction(kernel, decided or {}).run()


def protocols_of(kernel: t.Kernel) -> tuple[Protocol, ...]:
    """One protocol for every way that the kernel's branches on extents alone can go: a launch takes one of them."""
    inside = operations(kernel)
    varying = {a.WARPGROUP, a.CTA_RANK}
    varying |= {n.data for op in inside if isinstance(op, t.Programs) for n in op.names}
    varying |= {op.counter.data for op in inside if isinstance(op, t.For)}
    varying |= {op.symbol.data for op in inside if isinstance(op, a.Counter | t.Let)}
    trips = {op.end.expr > 0 for op in inside if isinstance(op, t.For)}
    conditions = dict.fromkeys(
        op.condition.expr
        for op in inside
        if isinstance(op, t.If) and not op.condition.expr.symbols & varying and op.condition.expr not in trips
    )
    return tuple(
        protocol_of(kernel, dict(zip(conditions, truths, strict=True)))
        for truths in product((True, False), repeat=len(conditions))
    )


@dataclass
class _Scope:
    """Where the walk is: the role's own names, the warpgroup, who executes, the loops around."""

    role: str
    index: int
    threads: int
    warpgroup: int
    by: By = By.ALL
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    programs: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()


class _Extraction:
    """Collects declarations while it walks the roles."""

    def __init__(self, kernel: t.Kernel, decided: Mapping[Expr, bool]):
        self.kernel = kernel
        self.decided = decided
        self.names: dict[SSAValue, str] = {}
        self.buffers: list[Buffer] = []
        self.barriers: list[Barrier] = []
        self.symbols: dict[str, Symbol] = {}
        self.trips: dict[tuple[str, str], str] = {}
        self.conditions: dict[str, str] = {}
        self.tracked = {
            value
            for op in operations(kernel)
            if isinstance(op, a.Wgmma)
            for value in (op.accumulator, op.a)
            if isinstance(value.type, t.RegistersType)
        }
        self.counters: dict[str, int] = {}

    def run(self) -> Protocol:
        roles: list[Role] = []
        opening: list[Operation] = []
        index = 0
        for op in self.kernel.body.block.ops:
            match op:
                case t.Shared():
                    self._shared(op)
                case a.Mbarriers():
                    self._mbarriers(op)
                case a.Role():
                    count = op.threads.data // a.WARPGROUP_THREADS
                    for warpgroup in range(count):
                        name = op.label.data + (str(warpgroup) if count > 1 else "")
                        scope = _Scope(name, index, op.threads.data, warpgroup)
                        self.counters = {}
                        first = self._opening(opening, scope, initialises=not roles)
                        body = (*first, *self._block(op.body.block, scope))
                        roles.append(Role(name, a.WARPGROUP_THREADS, body, tuple(self.counters.items())))
                    index += 1
                case _:
                    opening.append(op)
        threads = self.kernel.threads.data
        return Protocol(
            self.kernel.sym_name.data,
            tuple(roles),
            tuple(self.buffers),
            tuple(self.barriers),
            tuple(self.symbols.values()),
            1 if self.kernel.cluster is None else self.kernel.cluster.data,
            registers_per_thread=SM90A.registers_per_sm // threads // 8 * 8,
        )

    # -- declarations ---------------------------------------------------------------------------------------------
    def _name(self, value: SSAValue, hint: str) -> str:
        base = "".join(c if c.isalnum() else "_" for c in hint) or "v"
        base = f"b_{base}" if base[0].isdigit() else base
        name, n = base, 1
        while name in self.names.values():
            name, n = f"{base}_{n}", n + 1
        self.names[value] = name
        return name

    def _shared(self, op: t.Shared) -> None:
        kind = t.shared_of(op.buffer)
        size = kind.count.data * kind.dtype.dtype.bytes
        offset = op.offset.data if op.offset is not None else 0
        self.buffers.append(Buffer(self._name(op.buffer, op.hint.data), Space.SHARED, size, offset))

    def _mbarriers(self, op: a.Mbarriers) -> None:
        kind = a.mbarriers_of(op.bars)
        self.barriers.append(Barrier(self._name(op.bars, op.hint.data), kind.slots.data, kind.count.data))

    def _registers(self, value: SSAValue, scope: _Scope) -> str:
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

    def _opening(self, opened: list[Operation], scope: _Scope, *, initialises: bool) -> Iterator[Node]:
        """What all threads do before the roles part; thread 0 belongs to the first role."""
        for op in opened:
            match op:
                case a.Elected():
                    if initialises:
                        yield from self._block(op.body.block, self._elected(scope))
                case t.Barrier():
                    yield Step(ops.CtaSync())
                case a.ClusterArrive():
                    yield Step(ops.ClusterArrive())
                case a.ClusterWait():
                    yield Step(ops.ClusterWait())
                case _:
                    pass

    # -- walk -----------------------------------------------------------------------------------------------------
    @staticmethod
    def _elected(scope: _Scope) -> _Scope:
        return _Scope(
            scope.role,
            scope.index,
            scope.threads,
            scope.warpgroup,
            By.ELECTED,
            dict(scope.lets),
            scope.programs,
            scope.loops,
        )

    def _block(self, block: Block, scope: _Scope) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for node in (n for op in block.ops for n in self._op(op, scope)):
            # parts of one access, instruction by instruction: the threads' parts are disjoint, the region is the whole
            if not (isinstance(node, Step) and isinstance(node.op, _IN_PARTS) and nodes and nodes[-1] == node):
                nodes.append(node)
        return tuple(nodes)

    def _value(self, node: Expr, scope: _Scope) -> Expr:
        known = {**scope.lets, a.WARPGROUP: scope.warpgroup, a.CTA_RANK: Sym(ops.CTA_RANK)}
        return simplify(node.substitute(known), {})

    def _op(self, op: Operation, scope: _Scope) -> Iterator[Node]:
        match op:
            case a.Elected():
                yield from self._block(op.body.block, self._elected(scope))
            case t.Programs():
                yield from self._programs(op, scope)
            case t.For():
                yield from self._for(op, scope)
            case t.If():
                yield from self._if(op, scope)
            case t.Let():
                scope.lets[op.symbol.data] = self._value(op.value.expr, scope)
            case a.Counter():
                self.counters[op.symbol.data] = op.start.data
            case _:
                where = _where(op)
                note = op.note.data if isinstance(op, t.TransportOp) and op.note is not None else ""
                for step in self._steps(op, scope):
                    yield Step(step, scope.by, where, note)

    def _programs(self, op: t.Programs, scope: _Scope) -> Iterator[Node]:
        names = tuple(n.data for n in op.names)
        if not op.persistent.data:
            yield from self._block(op.body.block, self._inside(scope, names, ()))
            return
        self.symbols.setdefault("programs", Symbol("programs"))
        body = self._block(op.body.block, self._inside(scope, names, (PROGRAM_LOOP,)))
        first, step = op.turns
        yield Loop(PROGRAM_LOOP, Const(first), Sym("programs"), step, body, _where(op))

    @staticmethod
    def _inside(scope: _Scope, programs: tuple[str, ...], loops: tuple[str, ...]) -> _Scope:
        return _Scope(
            scope.role,
            scope.index,
            scope.threads,
            scope.warpgroup,
            scope.by,
            dict(scope.lets),
            (*scope.programs, *programs),
            (*scope.loops, *loops),
        )

    def _per(self, node: Expr, scope: _Scope) -> str | None:
        """The loop with which a value changes: the innermost one whose names it uses."""
        for counter in reversed(scope.loops):
            if counter != PROGRAM_LOOP and counter in node.symbols:
                return counter
        return PROGRAM_LOOP if PROGRAM_LOOP in scope.loops and node.symbols & set(scope.programs) else None

    def _for(self, op: t.For, scope: _Scope) -> Iterator[Node]:
        begin, end = self._value(op.begin.expr, scope), self._value(op.end.expr, scope)
        counter = op.counter.data
        body = self._block(op.body.block, self._inside(scope, (), (counter,)))
        if begin.constant is not None and end.constant is not None:
            yield Loop(counter, begin, end, op.step.expr.constant or 1, body, _where(op))
            return
        key = (begin.text, end.text)
        if key not in self.trips:
            name = f"trip{len(self.trips)}"
            self.trips[key] = name
            self.symbols[name] = Symbol(name, per=self._per(end - begin, scope))
        yield Loop(counter, Const(0), Sym(self.trips[key]), 1, body, _where(op))

    def _in_trips(self, node: Expr) -> Expr:
        """A number of steps in terms of the trip symbols of the loops that take them."""
        trips = {end: Sym(trip) for (begin, end), trip in self.trips.items() if begin == "0"}
        if node.text in trips:
            return trips[node.text]
        terms = node.terms if isinstance(node, Sum) else ()
        if not terms:
            return node
        total: Expr = Const(node.offset if isinstance(node, Sum) else 0)
        for term, factor in terms:
            total = total + trips.get(term.text, term) * factor
        return total

    def _if(self, op: t.If, scope: _Scope) -> Iterator[Node]:
        known = self.decided.get(op.condition.expr)
        if known is not None:
            yield from self._block((op.then if known else op.otherwise).block, scope)
            return
        condition = self._value(op.condition.expr, scope)
        if condition.constant is not None:
            yield from self._block((op.then if condition.constant else op.otherwise).block, scope)
            return
        then = self._block(op.then.block, self._inside(scope, (), ()))
        otherwise = self._block(op.otherwise.block, self._inside(scope, (), ()))
        if condition.symbols <= {*self.counters, *scope.loops}:
            yield If(condition, then, otherwise, _where(op))
            return
        for (begin, end), trip in self.trips.items():
            if begin == "0" and condition == self._value(parse(end) > 0, scope):
                yield If(Sym(trip) > 0, then, otherwise, _where(op))
                return
        if condition.text not in self.conditions:
            name = f"case{len(self.conditions)}"
            self.conditions[condition.text] = name
            self.symbols[name] = Symbol(name, 0, 1, per=self._per(condition, scope))
        yield If(Sym(self.conditions[condition.text]).eq(1), then, otherwise, _where(op))

    def _steps(self, op: Operation, scope: _Scope) -> Iterator[ops.Op]:
        def value(node: Expr) -> Expr:
            return self._value(node, scope)

        match op:
            case a.SetMaxRegisters():
                yield ops.Setmaxnreg(op.count.data)
            case a.Advance():
                yield ops.Advance(op.symbol.data, self._in_trips(value(op.by.expr)))
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

    def _plain(self, op: Operation, scope: _Scope) -> Iterator[ops.Op]:
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

    def _written(self, op: t.SharedWrite, scope: _Scope) -> tuple[tuple[int, int], ...]:
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

    def _touch(self, value: SSAValue, scope: _Scope, *, writes: bool) -> Iterator[ops.Op]:
        if value in self.tracked:
            kind = t.registers_of(value)
            region = ops.Region(self._registers(value, scope), Const(0), kind.count.data * kind.dtype.dtype.bytes)
            yield ops.Write(region) if writes else ops.Read(region)

    def _slot(self, bars: SSAValue, index: Expr, scope: _Scope) -> ops.Slot:
        return ops.Slot(self.names[bars], self._value(index, scope))

    def _wgmma(self, op: a.Wgmma, scope: _Scope) -> ops.Wgmma:
        size = t.registers_of(op.accumulator).dtype.dtype.bytes
        accumulator = ops.Region(
            self._registers(op.accumulator, scope), Const(op.first.data * size), op.n.data // 2 * size
        )
        b = ops.Region(self.names[op.b], self._value(op.b_region.expr, scope), op.b_bytes.data)
        if op.a_in_registers:
            kind = t.registers_of(op.a)
            count = 256 // kind.dtype.dtype.bits // 2
            left = ops.Region(
                self._registers(op.a, scope),
                Const(op.a_register.data * kind.dtype.dtype.bytes),
                count * kind.dtype.dtype.bytes,
            )
        else:
            left = ops.Region(self.names[op.a], self._value(op.a_region.expr, scope), op.a_bytes.data)
        return ops.Wgmma(accumulator, (left, b))


def _where(op: Operation) -> Location | None:
    loc = op.loc if isinstance(op, t.TransportOp) else None
    if loc is None:
        return None
    file, _, line = loc.data.rpartition(":")
    return Location(file, int(line)) if line.isdigit() else None


__all__ = ["PROGRAM_LOOP", "has_roles", "protocol_of", "protocols_of"]


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
