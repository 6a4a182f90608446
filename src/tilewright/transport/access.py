"""Extraction of plain access maps from Transport IR: every global access with the programs, loops and branches around
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import Const, Expr, Interval, Max, Sym, all_of, conjuncts, minimum, negate, own, simplify
from tilewright.protocol.access import (
    AccessKind,
    AccessMap,
    IndexRole,
    KernelAccesses,
    LaunchParameter,
    Loaded,
    LoopIndex,
    NamedValue,
)
from tilewright.tile.attributes import TensorType, TileType
from tilewright.tile.dialect import index_symbol
from tilewright.transport.asynchronous import (
    WARPGROUP,
    WARPGROUP_THREADS,
    CopyOut,
    CpAsync,
    Elected,
    LoadStore,
    Role,
    TensorMap,
    ThreadCopies,
    TmaStore,
)
from tilewright.transport.dialect import (
    REGISTER,
    THREAD,
    AtomicReduce,
    Bind,
    For,
    If,
    Kernel,
    Let,
    Load,
    Programs,
    Store,
    TransportOp,
    registers_of,
)
from tilewright.transport.ops.memory import Scattered


def accesses_of(kernel: Kernel) -> KernelAccesses:
    """All loads, stores and atomic additions of ``kernel``, in program order."""
    parameters: dict[str, LaunchParameter] = {}
    for name, argument in zip(kernel.arg_names, kernel.body.block.args, strict=True):
        kind = argument.type
        if isinstance(kind, TensorType):
            for axis, dim in enumerate(kind.dims):
                for extent in sorted(dim.expr.symbols):
                    parameters[extent] = LaunchParameter(extent, 0)
                stride = f"{name.data}.stride{axis}"
                parameters[stride] = LaunchParameter(stride)
        elif isinstance(kind, TileType) and kind.dtype.dtype.is_int:
            parameters.setdefault(name.data, LaunchParameter(name.data, *kind.dtype.dtype.integers))
    names: dict[SSAValue, str] = {
        value: name.data for name, value in zip(kernel.arg_names, kernel.body.block.args, strict=True)
    }
    found = _Collector(kernel, names).all()
    if any(index.name == _CTA for access in found for index in access.indices):
        parameters[_GRID] = LaunchParameter(_GRID, 1)
    return KernelAccesses(
        kernel.sym_name.data,
        tuple(parameters.values()),
        tuple(a.expr for a in kernel.assumptions),
        found,
    )


_CTA, _GRID, _SHIFT = own("cta"), own("grid"), own("shift")
_EVERY_CTA = LoopIndex(_CTA, IndexRole.PROGRAM, Const(0), Sym(_GRID))
"""Ops outside of ``transport.programs`` run in every CTA of a grid of unknown size."""
_FIRST_THREAD = (Sym(THREAD) % WARPGROUP_THREADS).eq(0)
_OWN_WARPGROUP = {WARPGROUP: Sym(THREAD) // WARPGROUP_THREADS}


@dataclass(frozen=True)
class _Around:
    """The context of an op: its threads, indices and definitions, and the branches taken."""

    threads: int
    scope: tuple[LoopIndex | NamedValue, ...] = ()
    conditions: tuple[Expr, ...] = ()


def scatter_name(tensor: str, number: int) -> str:
    """The name of the elements that scatter ``number`` of a tile program writes at loaded coordinates, or adds:
    identified by their positions in its tile, as if they were a tensor of their own."""
    return f"{tensor}, scatter {number}"


def _loaded(op: Load | Store | AtomicReduce | ThreadCopies) -> tuple[Loaded, ...]:
    """The elements of index buffers in an access's coordinates."""
    dtypes = (registers_of(index).dtype.dtype for index in op.indices)
    return tuple(Loaded(index_symbol(k), *dtype.integers) for k, dtype in enumerate(dtypes))


@dataclass(frozen=True)
class _Parts:
    """A value that is moved in parts of its registers, one op after another, the ``last``: one access. Of copies out
    ``registers`` counts the copies."""

    last: Load | Store | AtomicReduce | CopyOut
    around: _Around
    coords: tuple[Expr, ...]
    guard: Expr
    registers: int

    @property
    def loaded(self) -> tuple[Loaded, ...]:
        """What its coordinates have of index buffers."""
        return () if isinstance(self.last, CopyOut) else _loaded(self.last)

    @property
    def apart(self) -> bool:
        """It has places, or index buffers, that count its own registers."""
        return not isinstance(self.last, CopyOut) and (bool(self.last.indices) or self.last.scattered is not None)

    @property
    def where(self) -> tuple[object, ...]:
        """What its parts have in common."""
        op = self.last
        copies = (op.vector, op.axis, op.stop) if isinstance(op, CopyOut) else ()
        return op.tensor, type(op), self.around, copies

    def joined(self, more: _Parts | _Boxes) -> _Parts | None:
        """With the part that follows it; None where that is none of the registers that follow."""
        if not isinstance(more, _Parts) or more.where != self.where or (more.apart or self.apart):
            return None
        following = {REGISTER: Sym(REGISTER) + self.registers}
        if more.guard != self.guard.substitute(following):
            return None
        if any(c != own.substitute(following) for c, own in zip(more.coords, self.coords, strict=True)):
            return None
        return replace(self, last=more.last, registers=self.registers + more.registers)


@dataclass(frozen=True)
class _Boxes:
    """Tensor copies to global memory, one op after another, the ``last``: a box that begins at ``first``, innermost
    coordinate first, and is ``width`` wide. A row of panels, of one width or several, asks one question, not several.
    """

    last: TmaStore
    map: TensorMap
    around: _Around
    first: tuple[Expr, ...]
    width: int

    @property
    def where(self) -> tuple[object, ...]:
        """What copies side by side have in common."""
        numbers = self.map.numbers
        shape = numbers.axes, numbers.ragged_axis, numbers.dims, numbers.box[1:]
        return self.map.tensor, *shape, self.first[1:], self.around

    def joined(self, more: _Parts | _Boxes) -> _Boxes | None:
        """With the copy that follows it; None where that is not of the box beside."""
        if not isinstance(more, _Boxes) or more.where != self.where or more.first[0] != self.first[0] + self.width:
            return None
        return replace(self, last=more.last, width=self.width + more.width)


class _Collector:
    """Walks the kernel and notes accesses with what is open around them."""

    def __init__(self, kernel: Kernel, names: Mapping[SSAValue, str]):
        self.kernel = kernel
        self.names = names
        self.found: list[AccessMap] = []
        self.around: _Around = _Around(kernel.threads.data)
        self.pending: _Parts | _Boxes | None = None
        """What was found last, as long as it may go on."""
        self.first_interleaved: list[AccessMap] = []
        """What the first of several roles with interleaved programs does in one."""

    def all(self) -> tuple[AccessMap, ...]:
        """All accesses of the kernel, in program order."""
        self._block(self.kernel.body.block)
        self._settle()
        return tuple(self.found)

    # -- walk ----------------------------------------------------------------------------------------------------------
    def _block(self, block: Block) -> None:
        around = self.around
        for op in block.ops:
            visit = _VISITS.get(type(op))
            if visit is not None:
                visit(self, op)
        self.around = around

    def _within(
        self,
        block: Block,
        scope: Sequence[LoopIndex] = (),
        conditions: Sequence[Expr] = (),
        threads: int = 0,
    ) -> None:
        """A body, with what it opens."""
        outer = self.around
        self.around = _Around(threads or outer.threads, (*outer.scope, *scope), (*outer.conditions, *conditions))
        self._block(block)
        self.around = outer

    def let(self, op: Let) -> None:
        """A name for the rest of its block."""
        named = NamedValue(op.symbol.data, op.value.expr)
        self.around = replace(self.around, scope=(*self.around.scope, named))

    def bind(self, op: Bind) -> None:
        """The same for an integer that is loaded: it may be any."""
        per = tuple(i.name for i in self.around.scope if isinstance(i, LoopIndex) and i.role is not IndexRole.LOADED)
        end = Const(MAX_EXTENT + 1) if op.most is None else minimum(op.most.expr, MAX_EXTENT) + 1
        loaded = LoopIndex(op.symbol.data, IndexRole.LOADED, Const(0), end, per=per)
        self.around = replace(self.around, scope=(*self.around.scope, loaded))

    def programs(self, op: Programs) -> None:
        """Each program is one role's of those with interleaved programs: where all do the same, it stands once."""
        self._settle()
        before = len(self.found)
        names = (n.data for n in op.names)
        extents = (e.expr for e in op.extents)
        inside = [LoopIndex(n, IndexRole.PROGRAM, Const(0), e) for n, e in zip(names, extents, strict=True)]
        self._within(op.body.block, scope=inside)
        self._settle()
        if op.interleaving[1] == 1:
            return
        own = [replace(access, op="") for access in self.found[before:]]
        if op.interleaving[0] == 0:
            self.first_interleaved = own
        elif own == self.first_interleaved:
            del self.found[before:]

    def loop(self, op: For) -> None:
        """A counter more."""
        counter = LoopIndex(op.counter.data, IndexRole.COUNTER, op.begin.expr, op.end.expr, op.step.expr)
        self._within(op.body.block, scope=[counter])

    def branch(self, op: If) -> None:
        """Either side, where it is taken."""
        self._within(op.then.block, conditions=[op.condition.expr])
        self._within(op.otherwise.block, conditions=[negate(op.condition.expr)])

    def role(self, op: Role) -> None:
        """The same, for the threads of a role."""
        self._within(op.body.block, threads=op.threads.data)
        self._settle()

    def elected(self, op: Elected) -> None:
        """Accesses of one thread per warpgroup."""
        self._within(op.body.block, conditions=[_FIRST_THREAD])

    # -- accesses ------------------------------------------------------------------------------------------------------
    def access(self, op: Load | Store | AtomicReduce) -> None:
        """Threads move registers; of vectors that are shifted they read what lies before and behind in the two."""
        coords = tuple(c.expr for c in op.coords)
        if isinstance(op, Load) and op.shifted is not None:
            self._settle()
            any_ = {op.shifted: Sym(_SHIFT)}
            shifts = LoopIndex(_SHIFT, IndexRole.COUNTER, Const(0), Const(op.vector.data + 1))
            places, count = [c.substitute(any_) for c in coords], registers_of(op.buffer).count.data
            guard = op.guard.expr.substitute(any_)
            self._found(op, op.tensor, AccessKind.READ, self.around, count, places, guard, (shifts,))
            return
        self._goes_on(_Parts(op, self.around, coords, op.guard.expr, registers_of(op.buffer).count.data))

    def copy(self, op: TmaStore) -> None:
        """The hardware copies a box."""
        declared = op.map.owner
        assert isinstance(declared, TensorMap)
        first = tuple(c.expr for c in op.coords)
        self._goes_on(_Boxes(op, declared, self.around, first, declared.numbers.box[0]))

    def thread_copies(self, op: ThreadCopies) -> None:
        """Threads read what they copy."""
        self._settle()
        coords, read = _elements(op, [c.expr for c in op.coords], _made(op))
        count = op.count.data * op.vector.data
        self._found(op, op.tensor, AccessKind.READ, self.around, count, coords, read, _loaded(op))

    def copy_out(self, op: CopyOut) -> None:
        """Threads write what they copy."""
        self._goes_on(_Parts(op, self.around, tuple(c.expr for c in op.coords), _made(op), op.count.data))

    def _goes_on(self, more: _Parts | _Boxes) -> None:
        """Part of the access before it, or another."""
        joined = None if self.pending is None else self.pending.joined(more)
        if joined is None:
            self._settle()
        self.pending = joined or more

    def _settle(self) -> None:
        """What was found last is all of its access."""
        pending, self.pending = self.pending, None
        match pending:
            case _Parts(op, around, coords, guard, registers):
                if isinstance(op, CopyOut):
                    registers *= op.vector.data
                    coords, guard = _elements(op, coords, guard)
                    bounds: dict[str, Interval] = {REGISTER: (0, registers - 1)}
                    coords, guard = [simplify(c, bounds) for c in coords], simplify(guard, bounds)
                kind = _KINDS[type(op)]
                if not isinstance(op, CopyOut) and op.scattered is not None:
                    self._scatter(op, op.scattered, around, registers)
                    kind = AccessKind.READ  # its places are those of the promise; that they lie inside is asked here
                self._found(op, op.tensor, kind, around, registers, coords, guard, pending.loaded)
            case _Boxes():
                self._box(pending)
            case None:
                pass

    def _scatter(self, op: Load | Store | AtomicReduce, scattered: Scattered, around: _Around, registers: int) -> None:
        """What is written at loaded coordinates, or added at any, by the places in its tile: equal ones have equal
        coordinates. Each is written once in each program; that no two programs meet is not to be seen here."""
        found = len(self.found)
        self._found(
            op,
            op.tensor,
            AccessKind.REDUCE,
            around,
            registers,
            scattered.at,
            op.guard.expr if op.within is None else op.within.expr,
        )
        written = self.found[found]
        name, dims = scatter_name(written.tensor, scattered.number), (Const(0),) * len(scattered.at)
        self.found[found] = replace(written, tensor=name, dims=dims, bounded=False)

    def _box(self, boxes: _Boxes) -> None:
        """Element ``r`` of a box, clipped by the hardware: the innermost dimension in units of 16 bytes (seen on H200),
        exactly where the extent is whole units. Along a ragged axis its coordinate is short of the place by what the
        bound is beyond the end, so that both reach theirs together; an end that is no less than 0 ends copies where
        it would if it might be: places begin with 0 (``compiler.proofs.ragged_copies``)."""
        tensor, numbers = boxes.map.tensor.type, boxes.map.numbers
        assert isinstance(tensor, TensorType)
        coords: list[Expr] = [Const(0)] * len(tensor.dims)
        inside: list[Expr] = []
        facts = (*boxes.around.conditions, *(a.expr for a in self.kernel.assumptions))
        known = {part for fact in facts for part in conjuncts(fact)}
        below = 1
        extents = (boxes.width, *numbers.box[1:])
        end, named = None if numbers.ragged_axis is None else boxes.first[-2], len(numbers.axes)
        parts = (part[:named] for part in (boxes.first, extents, numbers.dims))
        for axis, start, extent, dim in zip(numbers.axes, *parts, strict=True):
            place = start + Sym(REGISTER) // below % extent
            if end is not None and axis == numbers.ragged_axis:
                place, dim = place + end - dim, _unclamped(end)
            coords[axis] = place
            unit = 16 // tensor.element.bytes if below == 1 else 1
            if (dim % unit).eq(0) in known:
                unit = 1
            inside.append(place // unit * unit < dim)
            below *= extent
        write = AccessKind.WRITE
        self._found(boxes.last, boxes.map.tensor, write, boxes.around, below, coords, all_of(inside))

    def _found(
        self,
        op: TransportOp,
        value: SSAValue,
        kind: AccessKind,
        around: _Around,
        registers: int,
        coords: Sequence[Expr],
        guard: Expr,
        loaded: tuple[Loaded | LoopIndex, ...] = (),
    ) -> None:
        tensor = value.type
        assert isinstance(tensor, TensorType)
        name = self.names[value]
        threads = LoopIndex(THREAD, IndexRole.THREAD, Const(0), Const(around.threads))
        outside = not any(isinstance(s, LoopIndex) and s.role is IndexRole.PROGRAM for s in around.scope)
        self.found.append(
            AccessMap(
                op=f"{op.name.removeprefix('transport.')} {name} #{len(self.found)}",
                location=op.loc.data if op.loc is not None else "",
                group=op.note.data if op.note is not None else "",
                tensor=name,
                kind=kind,
                dims=tuple(d.expr for d in tensor.dims),
                scope=(
                    *([_EVERY_CTA] if outside else []),
                    *_named(around, [*coords, guard]),
                    threads,
                    LoopIndex(REGISTER, IndexRole.REGISTER, Const(0), Const(registers)),
                    *loaded,
                ),
                conditions=tuple(c.substitute(_OWN_WARPGROUP) for c in around.conditions),
                guard=guard.substitute(_OWN_WARPGROUP),
                coords=tuple(c.substitute(_OWN_WARPGROUP) for c in coords),
            )
        )


def _named(around: _Around, expressions: Sequence[Expr]) -> tuple[LoopIndex | NamedValue, ...]:
    """What is open around an access, without the loaded integers that its place does not depend on, and without what
    is named after those."""
    asked = frozenset[str]().union(*(e.symbols for e in [*expressions, *around.conditions]))
    for item in reversed(around.scope):
        if isinstance(item, LoopIndex):
            asked |= frozenset() if item.role is IndexRole.LOADED else item.begin.symbols | item.end.symbols
        elif item.name in asked:
            asked |= item.value.symbols
    loaded = {i.name for i in around.scope if isinstance(i, LoopIndex) and i.role is IndexRole.LOADED} - asked
    kept: list[LoopIndex | NamedValue] = []
    for item in around.scope:
        if isinstance(item, NamedValue) and not loaded.isdisjoint(item.value.symbols):
            loaded.add(item.name)
        elif item.name not in loaded:
            kept.append(item)
    return tuple(kept)


def _unclamped(end: Expr) -> Expr:
    """``e`` of ``max(e, 0)``."""
    rest = [arg for arg in end.args if arg != Const(0)] if isinstance(end, Max) else []
    return rest[0] if len(rest) == 1 else end


def _made(op: ThreadCopies | CopyOut) -> Expr:
    """The copies that use a tensor map."""
    return all_of([op.active.expr, op.guard.expr])


def _elements(op: ThreadCopies | CopyOut, coords: Sequence[Expr], made: Expr) -> tuple[list[Expr], Expr]:
    """Coordinates and guard of copies' elements: register ``r`` is element ``r % vector`` of copy ``r // vector``."""
    vector, axis = op.vector.data, op.axis.data
    copy = {REGISTER: Sym(REGISTER) // vector}
    places = [c.substitute(copy) for c in coords]
    places[axis] = places[axis] + Sym(REGISTER) % vector
    return places, all_of([made.substitute(copy), places[axis] < op.stop.expr])


_VISITS: dict[type[Operation], Callable[[_Collector, Any], None]] = {
    Let: _Collector.let,
    Bind: _Collector.bind,
    Programs: _Collector.programs,
    For: _Collector.loop,
    If: _Collector.branch,
    Role: _Collector.role,
    Elected: _Collector.elected,
    TmaStore: _Collector.copy,
    CpAsync: _Collector.thread_copies,
    LoadStore: _Collector.thread_copies,
    CopyOut: _Collector.copy_out,
    Load: _Collector.access,
    Store: _Collector.access,
    AtomicReduce: _Collector.access,
}
_KINDS = {
    Load: AccessKind.READ,
    Store: AccessKind.WRITE,
    CopyOut: AccessKind.WRITE,
    AtomicReduce: AccessKind.REDUCE,
}
