"""Extraction of plain access maps from Transport IR: every global access with the programs, loops and branches around
it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Block, SSAValue

from tilewright.base.expr import All, Const, Expr, Sym, all_of, negate
from tilewright.protocol.access import (
    AccessKind,
    AccessMap,
    Definition,
    Index,
    IndexRole,
    KernelAccesses,
    Parameter,
)
from tilewright.tile.attributes import TensorType, TileType
from tilewright.transport.asynchronous import (
    WARPGROUP,
    WARPGROUP_THREADS,
    Elected,
    Role,
    TensorMap,
    ThreadCopies,
    TmaStore,
)
from tilewright.transport.dialect import (
    REGISTER,
    THREAD,
    For,
    If,
    Kernel,
    Let,
    Load,
    Programs,
    ReduceAdd,
    Store,
    TransportOp,
    registers_of,
)

LEAST_EXTENT = 1
"""Tensors without elements never reach a kernel: the runtime returns before the launch."""


def accesses_of(kernel: Kernel) -> KernelAccesses:
    """All loads, stores and atomic additions of ``kernel``, in program order."""
    parameters: dict[str, Parameter] = {}
    for name, argument in zip(kernel.arg_names, kernel.body.block.args, strict=True):
        kind = argument.type
        if isinstance(kind, TensorType):
            for axis, dim in enumerate(kind.dims):
                for extent in sorted(dim.expr.symbols):
                    parameters[extent] = Parameter(extent, LEAST_EXTENT)
                stride = f"{name.data}.stride{axis}"
                parameters[stride] = Parameter(stride)
        elif isinstance(kind, TileType) and kind.dtype.dtype.is_int:
            limit = 1 << (kind.dtype.dtype.bits - 1)
            parameters.setdefault(name.data, Parameter(name.data, -limit, limit - 1))
    names: dict[SSAValue, str] = {
        value: name.data for name, value in zip(kernel.arg_names, kernel.body.block.args, strict=True)
    }
    found: list[AccessMap] = []
    collector = _Collector(kernel, names, found)
    collector.block(kernel.body.block)
    if any(index.name == _CTA for access in found for index in access.indices):
        parameters[_GRID] = Parameter(_GRID, 1)
    return KernelAccesses(
        kernel.sym_name.data,
        tuple(parameters.values()),
        tuple(a.expr for a in kernel.assumptions),
        tuple(found),
    )


_CTA, _GRID = "cta", "grid"
_EVERY_CTA = Index(_CTA, IndexRole.PROGRAM, Const(0), Sym(_GRID))
"""What runs outside of ``transport.programs`` runs in every CTA of a grid of unknown size."""


@dataclass(frozen=True)
class _Copied:
    """The tensor copy found last: its tensor, box and place but for the innermost dimension, where it begins there, how
    many elements it reaches, and its position among what was found."""

    where: tuple[object, ...]
    first: Expr
    width: int
    position: int


@dataclass(frozen=True)
class _Part:
    """The access of registers found last: where it stands, what its first part does, how many registers it has had, and
    its position among what was found."""

    where: tuple[object, ...]
    coords: tuple[Expr, ...]
    guard: Expr
    registers: int
    position: int

    def goes_on(self, coords: tuple[Expr, ...], guard: Expr) -> bool:
        """An access with these coordinates is the same of the registers that follow."""
        following = {REGISTER: Sym(REGISTER) + self.registers}
        return guard == self.guard.substitute(following) and coords == tuple(
            c.substitute(following) for c in self.coords
        )


@dataclass
class _Collector:
    """Walks the kernel with the scope that is open at each op."""

    kernel: Kernel
    names: Mapping[SSAValue, str]
    found: list[AccessMap]
    scope: list[Index | Definition] = field(default_factory=list[Index | Definition])
    conditions: list[Expr] = field(default_factory=list[Expr])
    threads: int = 0
    """Threads of the role around; 0 outside of roles."""
    first_turn: list[AccessMap] = field(default_factory=list[AccessMap])
    """What the first of several roles that take turns does in a program."""
    copied: _Copied | None = None
    part: _Part | None = None

    def block(self, block: Block) -> None:
        depth = len(self.scope), len(self.conditions)
        for op in block.ops:
            match op:
                case Let():
                    self.scope.append(Definition(op.symbol.data, op.value.expr))
                case Programs():
                    inside = [
                        Index(name.data, IndexRole.PROGRAM, Const(0), extent.expr)
                        for name, extent in zip(op.names, op.extents, strict=True)
                    ]
                    before = len(self.found)
                    self._nested(op.body.block, inside, [])
                    self._in_turn(op, before)
                case For():
                    counter = Index(op.counter.data, IndexRole.COUNTER, op.begin.expr, op.end.expr, op.step.expr)
                    self._nested(op.body.block, [counter], [])
                case If():
                    self._nested(op.then.block, [], [op.condition.expr])
                    self._nested(op.otherwise.block, [], [negate(op.condition.expr)])
                case Role():
                    self.threads, self.copied, self.part = op.threads.data, None, None
                    self._nested(op.body.block, [], [])
                    self.threads = 0
                case Elected():
                    self._nested(op.body.block, [], [(Sym(THREAD) % WARPGROUP_THREADS).eq(0)])
                case TmaStore():
                    self._copy(op)
                case ThreadCopies():
                    self._thread_copies(op)
                case Load():
                    self._access(op, AccessKind.READ)
                case Store():
                    self._access(op, AccessKind.WRITE)
                case ReduceAdd():
                    self._access(op, AccessKind.REDUCE)
                case _:
                    pass
        del self.scope[depth[0] :], self.conditions[depth[1] :]

    def _in_turn(self, op: Programs, before: int) -> None:
        """Each program is one role's of those that take turns: where all do the same, it stands once."""
        if op.turns[1] == 1:
            return
        own = [replace(access, op="") for access in self.found[before:]]
        if op.turns[0] == 0:
            self.first_turn = own
        elif own == self.first_turn:
            del self.found[before:]

    def _nested(self, block: Block, scope: list[Index], conditions: list[Expr]) -> None:
        self.scope += scope
        self.conditions += conditions
        self.block(block)
        del self.scope[len(self.scope) - len(scope) :], self.conditions[len(self.conditions) - len(conditions) :]

    def _access(self, op: Load | Store | ReduceAdd, kind: AccessKind) -> None:
        """A value that is moved in parts of its registers, one op after another, is one access."""
        registers, last = registers_of(op.buffer).count.data, self.part
        coords, guard = tuple(c.expr for c in op.coords), op.guard.expr
        where = (op.tensor, kind, tuple(self.scope), tuple(self.conditions))
        if last is not None and last.where == where and last.goes_on(coords, guard) and self._newest(last):
            self.found.pop()
            coords, guard, registers = last.coords, last.guard, last.registers + registers
        self.part = _Part(where, coords, guard, registers, len(self.found))
        self._found(op, op.tensor, kind, registers, list(coords), guard)

    def _thread_copies(self, op: ThreadCopies) -> None:
        """Register ``r`` of the access is element ``r % vector`` of copy ``r // vector``."""
        vector, axis = op.vector.data, op.axis.data
        copy = {REGISTER: Sym(REGISTER) // vector}
        coords = [c.expr.substitute(copy) for c in op.coords]
        coords[axis] = coords[axis] + Sym(REGISTER) % vector
        read = all_of([op.active.expr.substitute(copy), op.guard.expr.substitute(copy), coords[axis] < op.stop.expr])
        self._found(op, op.tensor, AccessKind.READ, op.count.data * vector, coords, read)

    def _newest(self, part: _Part | _Copied) -> bool:
        """Nothing was found after it."""
        return part.position == len(self.found) - 1

    def _copy(self, op: TmaStore) -> None:
        """A tensor copy to global memory: element ``r`` of the box, clipped by the hardware.

        The innermost dimension is clipped in units of 16 bytes (seen on H200), exactly where the extent is whole units.
        Copies of boxes side by side, of one width or several, are one access of the wider box: a row of panels asks one
        question, not several.
        """
        declared = op.map.owner
        assert isinstance(declared, TensorMap)
        numbers, first = declared.numbers, [c.expr for c in op.coords]
        width, last = numbers.box[0], self.copied
        tensor = (declared.tensor, numbers.axes, numbers.dims, numbers.box[1:])
        here = (tensor, tuple(self.scope), tuple(self.conditions), tuple(first[1:]))
        if last is not None and last.where == here and first[0] == last.first + last.width and self._newest(last):
            self.found.pop()
            first[0], width = last.first, last.width + width
        self.copied = _Copied(here, first[0], width, len(self.found))
        self._boxes(op, declared, first, (width, *numbers.box[1:]))

    def facts(self) -> Iterator[Expr]:
        """What holds where the walk is: the branches taken, and what the launch has asked."""
        yield from self.conditions
        yield from (a.expr for a in self.kernel.assumptions)

    def _boxes(self, op: TmaStore, declared: TensorMap, first: Sequence[Expr], box: Sequence[int]) -> None:
        tensor, numbers = declared.tensor.type, declared.numbers
        assert isinstance(tensor, TensorType)
        coords: list[Expr] = [Const(0)] * len(tensor.dims)
        inside: list[Expr] = []
        known = {part for c in self.facts() for part in (c.args if isinstance(c, All) else (c,))}
        below = 1
        for axis, start, extent, dim in zip(numbers.axes, first, box, numbers.dims, strict=True):
            place = start + Sym(REGISTER) // below % extent
            coords[axis] = place
            unit = 16 // tensor.element.bytes if below == 1 else 1
            if (dim % unit).eq(0) in known:
                unit = 1
            inside.append(place // unit * unit < dim)
            below *= extent
        self._found(op, declared.tensor, AccessKind.WRITE, below, coords, all_of(inside))

    def _found(
        self, op: TransportOp, value: SSAValue, kind: AccessKind, registers: int, coords: list[Expr], guard: Expr
    ) -> None:
        tensor = value.type
        assert isinstance(tensor, TensorType)
        name = self.names[value]
        count = self.threads or self.kernel.threads.data
        threads = Index(THREAD, IndexRole.THREAD, Const(0), Const(count))
        outside = not any(isinstance(s, Index) and s.role is IndexRole.PROGRAM for s in self.scope)
        note = op.note.data if op.note is not None else ""
        own = {WARPGROUP: Sym(THREAD) // WARPGROUP_THREADS}
        self.found.append(
            AccessMap(
                op=f"{op.name.removeprefix('transport.')} {name} #{len(self.found)}",
                location=op.loc.data if op.loc is not None else "",
                group=note,
                tensor=name,
                kind=kind,
                dims=tuple(d.expr for d in tensor.dims),
                scope=(
                    *([_EVERY_CTA] if outside else []),
                    *self.scope,
                    threads,
                    Index(REGISTER, IndexRole.REGISTER, Const(0), Const(registers)),
                ),
                conditions=tuple(c.substitute(own) for c in self.conditions),
                guard=guard.substitute(own),
                coords=tuple(c.substitute(own) for c in coords),
            )
        )
