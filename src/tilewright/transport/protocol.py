"""Extraction of the protocol: what a kernel does to barriers and shared bytes, as plain data.

Every role of several warpgroups becomes one protocol role per warpgroup; a kernel without roles has one role of all its
threads. Loop bounds that depend on the launch become trip symbols, branches on a program's place become symbols of 0 or
1; loops with the same bounds share theirs, so that producers and consumers agree on how often they go round.
``to_protocol_ops`` says what single ops do, ``protocol_threads`` what they do in kernels without roles.

All threads of a role take every branch and loop alike, or the kernel has no protocol: bounds and conditions may not ask
for the thread, and one elected thread may not meet others. So barriers and lane shuffles are reached by whole warps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

from xdsl.ir import Block, Operation

from tilewright.base.expr import Const, Expr, Sum, Sym, own
from tilewright.diag import Location
from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step, Symbol
from tilewright.tile.ops import OPEN_TRIP, operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol_threads import (
    THREAD_SYMBOLS,
    NoProtocolError,
    Reach,
    ThreadAccesses,
    reaches_of,
)
from tilewright.transport.to_protocol_ops import RoleAccesses, WalkScope

PROGRAM_LOOP = own("program")
"""Counter of the loop over a CTA's programs."""
PROGRAM_COUNT = own("programs")
"""How many programs a CTA has."""


_TOGETHER = (t.Barrier, t.BarrierCount, t.WarpBarrier, t.Shuffle, t.Exchange, a.Mma)
"""What all threads of a warp, or of more, do together."""


def has_roles(kernel: t.Kernel) -> bool:
    """Whether the kernel runs in roles."""
    return any(isinstance(op, a.Role) for op in kernel.body.block.ops)


def protocol_of(kernel: t.Kernel) -> Protocol:
    """The protocol of a kernel with roles; branches on extents stay open."""
    return _Extraction(kernel, RoleAccesses(operations(kernel)), {}).run()


def protocols_of(kernel: t.Kernel) -> tuple[Protocol, ...]:
    """The protocols that have to be proved, none for a kernel whose threads do nothing together; ``NoProtocolError``
    where no protocol says what they do.

    A kernel with roles has one for every way that its branches can go on extents, and on what is loaded before the
    roles part: a launch takes one of them.
    """
    inside = operations(kernel)
    if has_roles(kernel):
        return tuple(_Extraction(kernel, RoleAccesses(inside), decided).run() for decided in _branch_outcomes(inside))
    if not _do_together(inside):
        return ()
    return tuple(_Extraction(kernel, ThreadAccesses(kernel, inside, reach), {}).run() for reach in reaches_of(inside))


def count_protocols(kernel: t.Kernel) -> int:
    """How many protocols of the kernel have to be proved."""
    inside = operations(kernel)
    if has_roles(kernel):
        return len(_branch_outcomes(inside))
    return len(reaches_of(inside)) if _do_together(inside) else 0


def _do_together(inside: Sequence[Operation]) -> bool:
    return any(isinstance(op, (t.Shared, *_TOGETHER)) for op in inside)


def _is_gate(op: t.For) -> bool:
    """The loop that is a branch: it has one step, or none."""
    return op.begin.expr == Const(0) and op.end.expr == OPEN_TRIP and op.step.expr == Const(1)


def _branch_outcomes(inside: Sequence[Operation]) -> tuple[dict[Expr, bool], ...]:
    varying = {a.WARPGROUP, a.CTA_RANK}
    trips: set[Expr] = set()
    branches: list[Expr] = []
    for op in inside:
        match op:
            case t.If():
                branches.append(op.condition.expr)
            case t.For() if _is_gate(op):
                branches.append(op.end.expr > 0)
            case t.For():
                varying.add(op.counter.data)
                trips.add(op.end.expr > 0)
            case t.Programs():
                varying |= {n.data for n in op.names}
            case t.Bind() if a.role_of(op) is None:
                pass  # one value for all roles, as for all threads: a launch has one
            case a.Counter() | t.Let() | t.Bind() | a.LoadCoordinate():
                varying.add(op.symbol.data)
            case _:
                pass
    conditions = dict.fromkeys(c for c in branches if c.symbols.isdisjoint(varying) and c not in trips)
    return tuple(
        dict(zip(conditions, truths, strict=True)) for truths in product((True, False), repeat=len(conditions))
    )


class _Extraction:
    """Collects declarations while it walks the roles; ``accesses`` says what single ops do."""

    def __init__(self, kernel: t.Kernel, accesses: RoleAccesses | ThreadAccesses, decided: Mapping[Expr, bool]):
        self.kernel = kernel
        self.decided = decided
        self.accesses = accesses
        self.symbols: dict[str, Symbol] = {}
        self.trips: dict[tuple[Expr, Expr], str] = {}
        self.conditions: dict[Expr, str] = {}
        self.counters: dict[str, int] = {}
        self.loaded: dict[str, set[str]] = {}
        """Loaded integers, each with the programs and loops that load it anew."""

    def run(self) -> Protocol:
        accesses = self.accesses
        if isinstance(accesses, ThreadAccesses):
            threads = self.kernel.threads.data if accesses.reach is Reach.CTA else WARP_THREADS
            body = self._block(self.kernel.body.block, WalkScope.of(accesses.reach.value, 0, threads, 0))
            return self._protocol([Role(accesses.reach.value, threads, body)])
        return self._protocol(list(self._roles(accesses)))

    def _roles(self, accesses: RoleAccesses) -> Iterator[Role]:
        opening: list[Operation] = []
        index = 0
        for op in self.kernel.body.block.ops:
            match op:
                case t.Shared():
                    accesses.shared(op)
                case a.Mbarriers():
                    accesses.mbarriers(op)
                case a.Role():
                    count = op.threads.data // a.WARPGROUP_THREADS
                    for warpgroup in range(count):
                        name = op.label.data + (str(warpgroup) if count > 1 else "")
                        scope = WalkScope.of(name, index, op.threads.data, warpgroup)
                        self.counters = {}
                        first = self._opening(opening, scope, initialises=not index and not warpgroup)
                        body = (*first, *self._block(op.body.block, scope))
                        yield Role(name, a.WARPGROUP_THREADS, body, tuple(self.counters.items()))
                    index += 1
                case _:
                    opening.append(op)

    def _protocol(self, roles: Sequence[Role]) -> Protocol:
        return Protocol(
            self.kernel.sym_name.data,
            tuple(roles),
            tuple(self.accesses.buffers.values()),
            tuple(self.accesses.barriers),
            tuple(self.symbols.values()),
            1 if self.kernel.cluster is None else self.kernel.cluster.data,
            registers_per_thread=self.kernel.registers_at_launch // 8 * 8,
            target=self.kernel.target.name,
        )

    def _opening(self, opened: list[Operation], scope: WalkScope, *, initialises: bool) -> Iterator[Node]:
        """What all threads do before the roles part; thread 0 belongs to the first role."""
        for op in opened:
            match op:
                case a.Elected():
                    if initialises:
                        yield from self._block(op.body.block, scope.elected())
                case t.Barrier() | t.BarrierCount():
                    yield Step(ops.CtaSync())
                case t.SharedWrite() | t.SharedRead():
                    if isinstance(op, t.SharedRead) or initialises:
                        yield from _steps(op, scope, self._of_all(op, scope))
                case a.ClusterArrive():
                    yield Step(ops.ClusterArrive())
                case a.ClusterWait():
                    yield Step(ops.ClusterWait())
                case _:
                    pass

    def _of_all(self, op: t.SharedWrite | t.SharedRead, scope: WalkScope) -> Sequence[ops.Op]:
        """What all threads do to shared memory before the roles part: the first writes, any read."""
        if isinstance(op, t.SharedWrite) and op.guard.expr != Sym(t.THREAD).eq(0):
            raise NoProtocolError(f"{op.name} by several threads, before the roles part")
        made = self.accesses.steps(op, scope)
        assert made is not None, "shared memory is the protocol's"
        return made

    # -- walk -----------------------------------------------------------------------------------------------------
    def _block(self, block: Block, scope: WalkScope) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for op in block.ops:
            if scope.by is not By.ALL and isinstance(op, _TOGETHER):
                raise NoProtocolError(f"{op.name} by one elected thread, which others would wait for")
            made = self.accesses.steps(op, scope)
            for node in self._structure(op, scope) if made is None else _steps(op, scope, made):
                before = nodes[-1] if nodes else None
                if not isinstance(node, Step) or not isinstance(node.op, self.accesses.in_parts) or before != node:
                    nodes.append(node)
                elif isinstance(node.op, ops.Wgmma):
                    nodes[-1] = _joined(before, node)
        return tuple(nodes)

    def _structure(self, op: Operation, scope: WalkScope) -> Iterable[Node]:
        match op:
            case a.Elected():
                return self._block(op.body.block, scope.elected())
            case t.Programs():
                return self._programs(op, scope)
            case t.For():
                return self._for(op, scope)
            case t.If():
                return self._if(op, scope)
            case t.Let():
                scope.let(op.symbol.data, op.value.expr)
            case a.LoadCoordinate():
                pass  # a place in a tensor; no barrier, branch or byte of shared memory depends on it
            case t.Bind():
                self.loaded[op.symbol.data] = {*scope.programs, *scope.loops}
            case a.Counter():
                self.counters[op.symbol.data] = op.start.data
            case a.Advance():
                by = self._in_trips(scope.value(op.by.expr))
                return _steps(op, scope, (ops.Advance(op.symbol.data, by),))
            case _:
                raise NoProtocolError(f"no protocol says what {op.name} does")
        return ()

    def _alike(self, op: Operation, node: Expr, scope: WalkScope) -> Expr:
        """A bound or condition in the protocol's symbols; all threads of a role have the same."""
        found = scope.value(node)
        if not found.symbols.isdisjoint(THREAD_SYMBOLS):
            raise NoProtocolError(f"{op.name} on {node}: threads of one warp may go different ways")
        return found

    def _programs(self, op: t.Programs, scope: WalkScope) -> tuple[Node, ...]:
        names = tuple(n.data for n in op.names)
        if not op.persistent.data:
            return self._block(op.body.block, scope.inside(names))
        self.symbols.setdefault(PROGRAM_COUNT, Symbol(PROGRAM_COUNT))
        body = self._block(op.body.block, scope.inside(names, (PROGRAM_LOOP,)))
        first, step = op.interleaving
        return (Loop(PROGRAM_LOOP, Const(first), Sym(PROGRAM_COUNT), step, body, _where(op)),)

    def _per(self, node: Expr, scope: WalkScope) -> str | None:
        """The loop with which a value changes: the innermost one whose names it uses."""
        symbols = node.symbols.union(*(self.loaded[s] for s in node.symbols & self.loaded.keys()))
        for counter in reversed(scope.loops):
            if counter != PROGRAM_LOOP and counter in symbols:
                return counter
        return PROGRAM_LOOP if PROGRAM_LOOP in scope.loops and symbols & set(scope.programs) else None

    def _for(self, op: t.For, scope: WalkScope) -> tuple[Node, ...]:
        known = self.decided.get(op.end.expr > 0) if _is_gate(op) else None
        if known is not None:
            return self._block(op.body.block, scope.inside()) if known else ()
        begin, end = self._alike(op, op.begin.expr, scope), self._alike(op, op.end.expr, scope)
        counter = op.counter.data
        body = self._block(op.body.block, scope.inside(loops=(counter,)))
        if not body:  # nothing of the protocol, however often
            return ()
        if begin.constant is not None and end.constant is not None:
            return (Loop(counter, begin, end, op.step.expr.constant or 1, body, _where(op)),)
        if (begin, end) not in self.trips:
            name = own(f"trip{len(self.trips)}")
            self.trips[begin, end] = name
            self.symbols[name] = Symbol(name, per=self._per(end - begin, scope))
        return (Loop(counter, Const(0), Sym(self.trips[begin, end]), 1, body, _where(op)),)

    def _in_trips(self, node: Expr) -> Expr:
        """A number of steps in terms of the trip symbols of the loops that take them."""
        trips = {end: Sym(trip) for (begin, end), trip in self.trips.items() if begin == Const(0)}
        if node in trips or not isinstance(node, Sum):
            return trips.get(node, node)
        total: Expr = Const(node.offset)
        for term, factor in node.terms:
            total = total + trips.get(term, term) * factor
        return total

    def _if(self, op: t.If, scope: WalkScope) -> tuple[Node, ...]:
        condition = self._alike(op, op.condition.expr, scope)
        known = self.decided.get(op.condition.expr)
        if known is not None:
            return self._block((op.then if known else op.otherwise).block, scope)
        if condition.constant is not None:
            return self._block((op.then if condition.constant else op.otherwise).block, scope)
        then = self._block(op.then.block, scope.inside())
        otherwise = self._block(op.otherwise.block, scope.inside())
        if not then and not otherwise:  # nothing of the protocol either way
            return ()
        if condition.symbols <= {*self.counters, *scope.loops}:
            return (If(condition, then, otherwise, _where(op)),)
        for (begin, end), trip in self.trips.items():
            if begin == Const(0) and condition == scope.value(end > 0):
                return (If(Sym(trip) > 0, then, otherwise, _where(op)),)
        if condition not in self.conditions:
            name = own(f"case{len(self.conditions)}")
            self.conditions[condition] = name
            self.symbols[name] = Symbol(name, 0, 1, per=self._per(condition, scope))
        return (If(Sym(self.conditions[condition]).eq(1), then, otherwise, _where(op)),)


def _joined(before: Node | None, node: Step) -> Step:
    """An instruction more of the same product, which reads more of the same operands."""
    assert isinstance(before, Step)
    assert isinstance(before.op, ops.Wgmma)
    assert isinstance(node.op, ops.Wgmma)
    reads = tuple(x + y for x, y in zip(before.op.reads, node.op.reads, strict=True))
    return replace(before, op=replace(before.op, reads=reads))


def _steps(op: Operation, scope: WalkScope, made: Sequence[ops.Op]) -> Sequence[Step]:
    """What an op does, at the user's line."""
    if not made:
        return ()
    assert isinstance(op, t.TransportOp)
    where, note = _where(op), op.note
    return [Step(each, scope.by, where, "" if note is None else note.data) for each in made]


def _where(op: t.TransportOp) -> Location | None:
    loc = op.loc
    return None if loc is None else _place(loc.data)


@lru_cache(maxsize=1 << 12)
def _place(loc: str) -> Location | None:
    file, _, line = loc.rpartition(":")
    return Location(file, int(line)) if line.isdigit() else None
