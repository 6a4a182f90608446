"""Split-K: distributes the steps of an accumulating stream over several programs; another kernel adds their sums.

A kernel whose tile is ``f += X`` over a stream, then an epilogue, becomes two that run one after another. X is a
product, or any other value of the step, such as the sum of its rows; ``f = max(f, X)`` and ``min`` are cut alike::

    product    for program (s, ...):  f over the steps s * per .. (s + 1) * per;   sums[s, ...] = f
    combine    for program (...):     f = sums[0, ...] + sums[1, ...] + ...;       the epilogue

The sums lie in f32 in a workspace, one tensor per fragment. They are added in a fixed order, so that equal arguments
give equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType, f32, i32, i64
from tilewright.base.expr import OWN, Const, Expr, Sym, ceildiv, maximum, minimum
from tilewright.lang.axes import Coord, Span
from tilewright.lang.enums import BinaryFn, ReduceFn
from tilewright.tile import dialect as tile
from tilewright.tile.copying import Copier, Names, renamed_coord, renamed_span
from tilewright.tile.ops import COUNTER, ops_in, program_index
from tilewright.tile.queries import coords_of, element, is_constant, is_elementwise, spans_of

PART = Sym(program_index(0))
"""The number of the part that a program computes."""
PARTS = Sym(f"split{OWN}parts")
"""The number of parts, which a launch passes."""
PART_COUNTER = f"{COUNTER}part"
FEW = 8
"""Parts that a program adds one after the other: 2 in groups of eight, of which six are absent, took 5 us more
(H200)."""
TOGETHER = 16
"""Of more parts it loads so many at once, of so few elements that all SMs have some: 64 parts of 128 x 128 took 16 us
one after the other, 7 in eights of 512 elements, 2.4 in sixteens of 128, and as much in 32 at once (H200)."""
MOST_ADDED = 128
"""Elements of a tile of which many parts are added."""
FOLDS = {BinaryFn.ADD: ReduceFn.SUM, BinaryFn.MAX: ReduceFn.MAX, BinaryFn.MIN: ReduceFn.MIN}
"""How a fragment may take in what steps give, and parts of it: in any order."""
_STEP = tile.FragmentRead | tile.FragmentWrite | tile.Load | tile.Dot | tile.Reduce | tile.Yield
"""Ops of a step besides element-wise ones."""


class NotSplitError(Exception):
    """Why a kernel's stream can't be split."""


@dataclass(frozen=True)
class Sums:
    """The tensor of a fragment's sums: parts, the grid's axes that name no axis of it, then its own."""

    name: str
    element: DType
    dims: tuple[Expr, ...]


@dataclass(frozen=True)
class Split:
    """A kernel's accumulating stream, with its fragments and where each one's sums lie in the kernel's programs."""

    kernel: tile.Kernel
    stream: tile.StreamLoop
    fragments: tuple[tile.FragmentInit, ...]
    many: bool
    """There are more than ``FEW`` parts."""

    @property
    def programs(self) -> Expr:
        """Programs of a launch of the kernel in one piece."""
        return prod((extent.expr for extent in self.kernel.grid), start=Const(1))

    @property
    def sums(self) -> tuple[Sums, ...]:
        """One tensor a fragment."""
        found: list[Sums] = []
        for number, fragment in enumerate(self.fragments):
            beside, axes = _place(self.kernel, fragment)
            extents = [self.kernel.grid.data[axis].expr for axis in beside]
            dims = (PARTS, *extents, *(span.stop for span in axes))
            found.append(Sums(f"split{OWN}sums{number}", element(fragment.result), dims))
        return tuple(found)

    @property
    def per(self) -> Expr:
        """Steps of a part."""
        return ceildiv(self.stream.trip.expr, PARTS)

    def coords(self, fragment: tile.FragmentInit) -> list[Coord]:
        """Where in a part's sums those of a program lie."""
        beside, axes = _place(self.kernel, fragment)
        return [*(Sym(program_index(axis)) for axis in beside), *axes]

    def product(self) -> tile.Kernel:
        """The kernel that computes partial sums."""
        names: Names = {program_index(i): Sym(program_index(i + 1)) for i in range(len(self.kernel.grid))}
        trip, counter = self.stream.trip.expr, self.stream.counter.data
        copy = self._copier()
        for op in _needed(ops_in(self.kernel.body.block), last=self.stream):
            if op is not self.stream:
                copy.add(op, names)
                continue
            within = {**names, counter: PART * self.per + Sym(counter)}
            body = Region(copy.copied(self.stream.body.block, within))
            span = renamed_span(self.stream.axis.data, within)
            length = minimum(self.per, maximum(trip - PART * self.per, 0))
            copy.emit(tile.StreamLoop(counter, span, self.stream.begin.expr, length, body), like=op)
        for fragment, tensor in zip(self.fragments, copy.tensors, strict=True):
            total = copy.emit(tile.FragmentRead(copy.values[fragment.result]), like=self.stream).results[0]
            coords = [PART, *(renamed_coord(c, names) for c in self.coords(fragment))]
            copy.emit(tile.Store(total, tensor, coords), like=self.stream)
        return copy.kernel([PARTS, *(extent.expr.substitute(names) for extent in self.kernel.grid)], [PARTS >= 1])

    def combine(self) -> tile.Kernel:
        """The kernel that adds the partial sums and runs the epilogue."""
        copy = self._copier()
        for op in _needed(ops_in(self.kernel.body.block), without=self.stream):
            if op is self.stream:
                self._add_parts(copy)
            else:
                copy.add(op, {})
        return copy.kernel([extent.expr for extent in self.kernel.grid], [PARTS >= 1])

    def clustered(self, narrow: tile.Kernel, parts: int) -> tile.Kernel:
        """The kernel whose programs along a last axis compute ``parts`` partial sums, and each run the epilogue for a
        share of the columns, those of a program of ``narrow`` (the kernel in tiles of so many columns)."""
        rest = split(narrow, many=False)
        axis = len(self.kernel.grid)
        part, columns = Sym(program_index(axis)), program_index(axis - 1)
        if len(rest.fragments) != len(self.fragments) or not self.ends_with_zeros():
            raise NotSplitError("steps beyond the last that add something")
        per, counter = ceildiv(self.stream.trip.expr, parts), self.stream.counter.data
        copy = Copier(self.kernel)
        for op in _needed(ops_in(self.kernel.body.block), last=self.stream):
            if op is not self.stream:
                copy.add(op, {})
                continue
            within = {counter: part * per + Sym(counter)}
            body = Region(copy.copied(self.stream.body.block, within))
            span = renamed_span(self.stream.axis.data, within)
            copy.emit(tile.StreamLoop(counter, span, self.stream.begin.expr, per, body), like=op)
        copy.values.update(zip(narrow.body.block.args, copy.block.args, strict=True))
        totals: dict[SSAValue, SSAValue] = {}
        for fragment, own in zip(self.fragments, rest.fragments, strict=True):
            read = copy.emit(tile.FragmentRead(copy.values[fragment.result]), like=self.stream).results[0]
            total = copy.emit(tile.ProgramSum(read, axis, parts), like=self.stream).results[0]
            totals[own.result] = total
        for op in rest.behind(columns):
            if isinstance(op, tile.FragmentRead) and op.frag in totals:
                copy.values[op.result] = totals[op.frag]
            else:
                copy.add(op, {columns: Sym(columns) * parts + part})
        return copy.kernel([*(extent.expr for extent in self.kernel.grid), Const(parts)])

    def ends_with_zeros(self) -> bool:
        """Whether steps beyond the last would add products over no elements."""
        span, counter = self.stream.axis.data, Sym(self.stream.counter.data)
        if span.origin != counter * span.size or self.stream.trip.expr != ceildiv(span.stop, span.size):
            return False
        if any(fold_of(fragment) is not BinaryFn.ADD for fragment in self.fragments):
            return False
        writes = [op for op in ops_in(self.stream.body.block) if isinstance(op, tile.FragmentWrite)]
        terms = [v.owner for w in writes for v in _operands(w.value) if not isinstance(v.owner, tile.FragmentRead)]
        return all(isinstance(term, tile.Dot) and spans_of(term.a)[1] == span for term in terms)

    def behind(self, columns: str) -> list[Operation]:
        """The kernel's ops without the stream, whose fragments they only read. All stores lie in the program's
        ``columns``."""
        sums = {fragment.result for fragment in self.fragments}
        ops = [op for op in ops_in(self.kernel.body.block) if op is not self.stream and op not in self.fragments]
        for op in ops:
            spans = [c for c in coords_of(op) if isinstance(c, Span)] if isinstance(op, tile.Store) else []
            if not op.results and not any(columns in span.origin.symbols for span in spans):
                raise NotSplitError(f"{op.name} by programs without columns")
        for op in [inner for outer in ops for inner in outer.walk()]:
            if not isinstance(op, tile.FragmentRead) and not sums.isdisjoint(op.operands):
                raise NotSplitError("what follows the stream changes its sums")
            if isinstance(op, tile.FragmentRead) and op.frag in sums and op.parent_op() is not self.kernel:
                raise NotSplitError("what follows the stream reads its sums inside of another")
        return _needed(ops)

    def _copier(self) -> Copier:
        return Copier(self.kernel, [tile.TensorType.of(x.element, x.dims, x.name) for x in self.sums])

    def _add_parts(self, copy: Copier) -> None:
        body = Block()
        shapes = [tile.fragment_type(fragment.result).shape for fragment in self.fragments]
        small = max(map(prod, shapes)) <= MOST_ADDED
        together = 1 if not self.many else TOGETHER if small else FEW
        span = Span(Sym(PART_COUNTER) * together, together, PARTS)
        for fragment, tensor in zip(self.fragments, copy.tensors, strict=True):
            held, fold = copy.values[fragment.result], fold_of(fragment)
            load = tile.Load(tensor, [span if together > 1 else span.origin, *self.coords(fragment)])
            ops: list[Operation] = [load]
            if together > 1:
                ops.append(tile.Reduce(FOLDS[fold], load.result, 0))
            read = tile.FragmentRead(held)
            total = tile.Binary(fold, read.result, ops[-1].results[0])
            for op in (*ops, read, total, tile.FragmentWrite(held, total.result)):
                copy.emit(op, like=self.stream, block=body)
        copy.emit(tile.Yield(), like=self.stream, block=body)
        trip = ceildiv(PARTS, together)
        copy.emit(tile.StreamLoop(PART_COUNTER, span, Const(0), trip, Region(body)), like=self.stream)


def split(kernel: tile.Kernel, *, many: bool) -> Split:
    """The kernel's stream as parts, ``many`` or few; NotSplitError where that would not be the same program."""
    block = ops_in(kernel.body.block)
    streams = [op for op in block if isinstance(op, tile.StreamLoop)]
    if len(streams) != 1:
        raise NotSplitError("no stream that is the only one")
    (stream,) = streams
    at = block.index(stream)
    if any(isinstance(op, tile.Dot) for op in block) or kernel.gate is not None or kernel.ascending is not None:
        raise NotSplitError("products outside of the stream, or promises")
    if any(symbol.startswith(OWN) for symbol in stream.trip.expr.symbols):
        raise NotSplitError("a stream whose steps depend on the program")
    if any(not op.results or op.regions for op in block[:at]):
        raise NotSplitError("what comes before the stream has an effect")
    written = tuple(
        dict.fromkeys(_accumulated(op) for op in ops_in(stream.body.block) if isinstance(op, tile.FragmentWrite))
    )
    for op in ops_in(stream.body.block):
        if isinstance(op, tile.FragmentRead) and op.frag.owner not in written:
            raise NotSplitError("a stream that reads what it does not sum up")
        if not isinstance(op, _STEP) and not is_elementwise(op):
            raise NotSplitError(f"a stream with {op.name}")
    found = Split(kernel, stream, written, many)
    for fragment in written:
        _place(kernel, fragment)
    return found


def fold_of(fragment: tile.FragmentInit) -> BinaryFn:
    """How the stream changes a fragment of ``Split.fragments``."""
    writes = [use.operation for use in fragment.result.uses if isinstance(use.operation, tile.FragmentWrite)]
    folds = [total.fn.data for write in writes if isinstance(total := write.value.owner, tile.Binary)]
    return next(fold for fold in folds if fold in FOLDS)


def _accumulated(write: tile.FragmentWrite) -> tile.FragmentInit:
    """The fragment that ``f += X`` updates, starting at zero; for ``max`` and ``min``, which are idempotent, at any
    constant."""
    fragment, total = write.frag.owner, write.value.owner
    if not isinstance(total, tile.Binary) or total.fn.data not in FOLDS:
        raise NotSplitError("a stream that does more with a fragment than to add to it")
    begins = _is_zero if total.fn.data is BinaryFn.ADD else is_constant
    if (
        not isinstance(fragment, tile.FragmentInit)
        or element(fragment.result) not in (f32, i32, i64)
        or not begins(fragment.init)
    ):
        raise NotSplitError("a fragment that does not begin at zero, in f32, i32 or i64")
    reads = [v.owner for v in total.operands if isinstance(v.owner, tile.FragmentRead)]
    inside = [use.operation for use in fragment.result.uses if use.operation.parent_op() is write.parent_op()]
    alone = len(reads) == 1 and len(inside) == 2 and all(op in (write, reads[0]) for op in inside)
    if not alone or len(list(reads[0].result.uses)) != 1:
        raise NotSplitError("a stream that does more with a fragment than to add to it")
    return fragment


def _operands(value: SSAValue) -> Sequence[SSAValue]:
    return value.owner.operands if isinstance(value.owner, Operation) else ()


def _is_zero(value: SSAValue) -> bool:
    op = value.owner
    while isinstance(op, tile.Expand | tile.Broadcast | tile.Transpose):
        op = op.operands[0].owner
    return isinstance(op, tile.Constant) and op.value.data == 0


def _place(kernel: tile.Kernel, fragment: tile.FragmentInit) -> tuple[list[int], list[Span]]:
    """The grid's axes that no axis of a fragment runs along, and its spans."""
    spans: list[Span] = []
    left = list(range(len(kernel.grid)))
    for axis in tile.fragment_type(fragment.result).axes_tuple:
        if not isinstance(axis, Span):
            raise NotSplitError("a fragment with an axis without a place")
        along = (
            i for i in left
            if axis.origin == Sym(program_index(i)) * axis.size
            and kernel.grid.data[i].expr == ceildiv(axis.stop, axis.size)
        )  # fmt: skip
        found = next(along, None)
        if found is None or axis.stop.symbols & {program_index(i) for i in range(len(kernel.grid))}:
            raise NotSplitError("a fragment whose tiles are not those of the grid")
        left.remove(found)
        spans.append(axis)
    return left, spans


def _needed(
    ops: Sequence[Operation], *, last: Operation | None = None, without: Operation | None = None
) -> list[Operation]:
    """The ops up to ``last`` that have an effect or are used, but for what only ``without`` uses. Fragments that this
    writes are kept."""
    upto = ops if last is None else ops[: ops.index(last) + 1]
    kept: dict[Operation, None] = {}
    used: set[SSAValue] = set()
    for op in reversed(upto):
        if op.results and not any(r in used for r in op.results):
            continue
        kept[op] = None
        if op is without:
            used |= {inner.frag for inner in ops_in(op.regions[0].block) if isinstance(inner, tile.FragmentWrite)}
        else:
            used |= {operand for inner in op.walk() for operand in inner.operands}
    return [op for op in upto if op in kept]
