"""Extraction of the protocol: what a kernel with roles does to barriers and shared bytes, as plain data.

Every role of several warpgroups becomes one protocol role per warpgroup. Loop bounds that depend on the launch become
trip symbols, branches on a program's place become symbols of 0 or 1; loops with the same bounds share theirs, so that
producers and consumers agree on how often they go round. ``protocol_ops`` says what single ops do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from xdsl.ir import Block, Operation

from tilewright.base.expr import Const, Expr, Sum, Sym, parse
from tilewright.diag import Location
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Protocol, Role, Step, Symbol
from tilewright.tile.ops import operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol_ops import Accesses, Scope

PROGRAM_LOOP = "program"
"""Counter of the loop over a CTA's programs."""


def has_roles(kernel: t.Kernel) -> bool:
    """Whether the kernel runs in roles: only such kernels have a protocol."""
    return any(isinstance(op, a.Role) for op in kernel.body.block.ops)


def protocol_of(kernel: t.Kernel, decided: Mapping[Expr, bool] | None = None) -> Protocol:
    """The protocol of a kernel with roles. ``decided`` says which way branches on extents go; others stay open."""
    return _Extraction(kernel, decided or {}).run()


def protocols_of(kernel: t.Kernel) -> tuple[Protocol, ...]:
    """One protocol for every way that the kernel's branches on extents alone can go: a launch takes one of them."""
    return tuple(protocol_of(kernel, way) for way in ways_of(kernel))


def ways_of(kernel: t.Kernel) -> tuple[dict[Expr, bool], ...]:
    """Every way that the kernel's branches on extents alone can go."""
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
        dict(zip(conditions, truths, strict=True)) for truths in product((True, False), repeat=len(conditions))
    )


class _Extraction:
    """Collects declarations while it walks the roles."""

    def __init__(self, kernel: t.Kernel, decided: Mapping[Expr, bool]):
        self.kernel = kernel
        self.decided = decided
        self.accesses = Accesses(kernel)
        self.symbols: dict[str, Symbol] = {}
        self.trips: dict[tuple[str, str], str] = {}
        self.conditions: dict[str, str] = {}
        self.counters: dict[str, int] = {}

    def run(self) -> Protocol:
        roles: list[Role] = []
        opening: list[Operation] = []
        index = 0
        for op in self.kernel.body.block.ops:
            match op:
                case t.Shared():
                    self.accesses.shared(op)
                case a.Mbarriers():
                    self.accesses.mbarriers(op)
                case a.Role():
                    count = op.threads.data // a.WARPGROUP_THREADS
                    for warpgroup in range(count):
                        name = op.label.data + (str(warpgroup) if count > 1 else "")
                        scope = Scope(name, index, op.threads.data, warpgroup)
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
            tuple(self.accesses.buffers),
            tuple(self.accesses.barriers),
            tuple(self.symbols.values()),
            1 if self.kernel.cluster is None else self.kernel.cluster.data,
            registers_per_thread=self.kernel.target.registers_per_sm // threads // 8 * 8,
        )

    def _opening(self, opened: list[Operation], scope: Scope, *, initialises: bool) -> Iterator[Node]:
        """What all threads do before the roles part; thread 0 belongs to the first role."""
        for op in opened:
            match op:
                case a.Elected():
                    if initialises:
                        yield from self._block(op.body.block, scope.elected())
                case t.Barrier():
                    yield Step(ops.CtaSync())
                case a.ClusterArrive():
                    yield Step(ops.ClusterArrive())
                case a.ClusterWait():
                    yield Step(ops.ClusterWait())
                case _:
                    pass

    # -- walk -----------------------------------------------------------------------------------------------------
    def _block(self, block: Block, scope: Scope) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for node in (n for op in block.ops for n in self._op(op, scope)):
            # parts of one access, instruction by instruction: the threads' parts are disjoint, the region is the whole
            match nodes[-1] if nodes else None, node:
                case Step(ops.Read() | ops.Write()) as before, Step() if before == node:
                    pass
                case Step(ops.Wgmma(reads=reads) as earlier) as before, Step(ops.Wgmma(reads=more)) if before == node:
                    reads = tuple(x + y for x, y in zip(reads, more, strict=True))
                    nodes[-1] = replace(before, op=replace(earlier, reads=reads))
                case _:
                    nodes.append(node)
        return tuple(nodes)

    def _op(self, op: Operation, scope: Scope) -> Iterator[Node]:
        match op:
            case a.Elected():
                yield from self._block(op.body.block, scope.elected())
            case t.Programs():
                yield from self._programs(op, scope)
            case t.For():
                yield from self._for(op, scope)
            case t.If():
                yield from self._if(op, scope)
            case t.Let():
                scope.lets[op.symbol.data] = scope.value(op.value.expr)
            case a.Counter():
                self.counters[op.symbol.data] = op.start.data
            case a.Advance():
                by = self._in_trips(scope.value(op.by.expr))
                yield _step(op, scope, ops.Advance(op.symbol.data, by))
            case _:
                for made in self.accesses.steps(op, scope):
                    yield _step(op, scope, made)

    def _programs(self, op: t.Programs, scope: Scope) -> Iterator[Node]:
        names = tuple(n.data for n in op.names)
        if not op.persistent.data:
            yield from self._block(op.body.block, scope.inside(names))
            return
        self.symbols.setdefault("programs", Symbol("programs"))
        body = self._block(op.body.block, scope.inside(names, (PROGRAM_LOOP,)))
        first, step = op.turns
        yield Loop(PROGRAM_LOOP, Const(first), Sym("programs"), step, body, _where(op))

    def _per(self, node: Expr, scope: Scope) -> str | None:
        """The loop with which a value changes: the innermost one whose names it uses."""
        for counter in reversed(scope.loops):
            if counter != PROGRAM_LOOP and counter in node.symbols:
                return counter
        return PROGRAM_LOOP if PROGRAM_LOOP in scope.loops and node.symbols & set(scope.programs) else None

    def _for(self, op: t.For, scope: Scope) -> Iterator[Node]:
        begin, end = scope.value(op.begin.expr), scope.value(op.end.expr)
        counter = op.counter.data
        body = self._block(op.body.block, scope.inside(loops=(counter,)))
        if not body:  # nothing of the protocol, however often
            return
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

    def _if(self, op: t.If, scope: Scope) -> Iterator[Node]:
        known = self.decided.get(op.condition.expr)
        if known is not None:
            yield from self._block((op.then if known else op.otherwise).block, scope)
            return
        condition = scope.value(op.condition.expr)
        if condition.constant is not None:
            yield from self._block((op.then if condition.constant else op.otherwise).block, scope)
            return
        then = self._block(op.then.block, scope.inside())
        otherwise = self._block(op.otherwise.block, scope.inside())
        if not then and not otherwise:  # nothing of the protocol either way
            return
        if condition.symbols <= {*self.counters, *scope.loops}:
            yield If(condition, then, otherwise, _where(op))
            return
        for (begin, end), trip in self.trips.items():
            if begin == "0" and condition == scope.value(parse(end) > 0):
                yield If(Sym(trip) > 0, then, otherwise, _where(op))
                return
        if condition.text not in self.conditions:
            name = f"case{len(self.conditions)}"
            self.conditions[condition.text] = name
            self.symbols[name] = Symbol(name, 0, 1, per=self._per(condition, scope))
        yield If(Sym(self.conditions[condition.text]).eq(1), then, otherwise, _where(op))


def _step(op: Operation, scope: Scope, made: ops.Op) -> Step:
    """What an op does, at the user's line."""
    note = op.note.data if isinstance(op, t.TransportOp) and op.note is not None else ""
    return Step(made, scope.by, _where(op), note)


def _where(op: Operation) -> Location | None:
    loc = op.loc if isinstance(op, t.TransportOp) else None
    if loc is None:
        return None
    file, _, line = loc.data.rpartition(":")
    return Location(file, int(line)) if line.isdigit() else None
