"""Chunked epilogues: large values are computed and stored from registers a chunk at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.expr import Const, Expr, Sym, all_of
from tilewright.lang.axes import Span
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.lower import Lowering
from tilewright.schedule.map_builder import Buffered, MapBuilder
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, element, hint, is_arithmetic, is_elementwise, owner
from tilewright.transport import dialect as t

CHUNK_REGISTERS = 32
"""Registers of a large value that are computed and stored at a time."""


class ChunkedStores(Lowering):
    """Lowers stores chunk by chunk; loads that one store alone needs, and that are not ``copied`` by a pipeline, are
    issued with its chunks."""

    def __init__(self, kernel: tile.Kernel, placement: Placement, facts: CallFacts, copied: Collection[Operation] = ()):
        super().__init__(kernel, placement, facts)
        self.postponed = self.late_loads(copied)
        self.fetched: dict[tuple[tile.Load, int], Buffered] = {}
        """Parts of late loads that are on their way, by the first register of the chunk that they are for."""

    def chunked(self, op: tile.Store | tile.AtomicReduce) -> bool:
        """Whether the value has so many registers that it is computed and stored in chunks, or late loads contribute to
        it."""
        return op in self.postponed or self.placement.home.registers(self.axes_of[op.value]) > CHUNK_REGISTERS

    def prepare(self, op: tile.Store | tile.AtomicReduce) -> None:
        """Computes operands with fewer axes than the stored value once, before its chunks; not those that late loads
        contribute to."""
        wanted = {c for c in self.axes_of[op.value] if c is not None}
        late: set[SSAValue] = {load.results[0] for load in self.postponed.get(op, ())}
        pending = [op.value]
        while pending:
            value = pending.pop()
            source = owner(value)
            if source is None or value in self.scope.buffers or not is_elementwise(source):
                continue
            fewer = {c for c in self.axes_of[value] if c is not None} < wanted
            if fewer and is_arithmetic(source) and not feeds(late, value):
                self.materialise(value)
            else:
                pending += source.operands

    def store_chunks(self, op: tile.Store | tile.AtomicReduce) -> None:
        """Stores a value from registers, in chunks."""
        value = op.value
        coords, guard, width, axis = self.access(op, value, self.placement.home)
        guard = all_of([self.placement.home.layout(self.axes_of[value]).owner_predicate(Sym(t.THREAD)), guard])
        kind = t.Store if isinstance(op, tile.Store) else partial(t.AtomicReduce, op.fn.data)
        count = self.placement.home.registers(self.axes_of[value])
        for first in range(0, count, CHUNK_REGISTERS):
            source, at = self.chunk(value, op, first, min(CHUNK_REGISTERS, count - first), alone=True)
            here = {t.REGISTER: Sym(t.REGISTER) + (first - at)}
            self.emit(
                kind(
                    self.arguments[op.tensor],
                    source,
                    [c.substitute(here) for c in coords],
                    guard.substitute(here),
                    vector=width,
                    axis=axis,
                ),
                op,
            )

    def chunk(
        self, value: SSAValue, op: tile.Store | tile.AtomicReduce, first: int, count: int, *, alone: bool = False
    ) -> tuple[SSAValue, int]:
        """A buffer that holds registers ``first .. first + count`` of a value, and where in it they begin.

        Loads that only this store needs are issued with their part. ``alone``: the buffer holds nothing else.
        """
        if value in self.scope.buffers and not alone:
            return self.scope.buffers[value].buffer, first
        buffers = dict(self.scope.buffers)
        for load in self.postponed.get(op, ()):
            buffers[load.results[0]] = self.fetched.pop((load, first), None) or self.fetch_part(load, op, first, count)
        return self.computed_chunk(op, buffers, first, count, Const(0)), 0

    def computed_chunk(
        self,
        op: tile.Store | tile.AtomicReduce,
        buffers: Mapping[SSAValue, Buffered],
        first: int,
        count: int,
        moved: Expr,
    ) -> SSAValue:
        """Registers ``first .. first + count`` of the stored value, computed from ``buffers`` into a new buffer; all of
        them have ``moved`` down by so many registers."""
        value, home = op.value, self.placement.home
        builder = MapBuilder(home, self.axes_of[value], buffers, self.axes_of, self.arguments, (first, count))
        builder.moved = moved
        result = builder.value(value)
        buffer = self.registers(hint(value), element(value), count)
        self.emit(builder.finish([result], [buffer]), op)
        return buffer

    def fetch_late(self, op: tile.Store | tile.AtomicReduce, first: int, count: int) -> None:
        """Issues the late loads of the chunk of registers ``first .. first + count``, which is computed later."""
        for load in self.postponed.get(op, ()):
            self.fetched[load, first] = self.fetch_part(load, op, first, count)

    def fetch_part(self, load: tile.Load, op: tile.Store | tile.AtomicReduce, first: int, count: int) -> Buffered:
        """Loads those elements of ``load`` that registers ``first .. first + count`` of the stored value need."""
        loaded, home = load.results[0], self.placement.home
        own = self.axes_of[loaded]
        places = [home.register_of(own, self.axes_of[op.value], Const(r)).constant for r in range(first, first + count)]
        begin = int(min(r for r in places if r is not None))
        size = int(max(r for r in places if r is not None)) + 1 - begin
        buffer = self.registers(hint(loaded), element(loaded), size)
        self.load_part(load, op, buffer, Const(begin))
        return Buffered(buffer, own, begin)

    def load_part(self, load: tile.Load, op: tile.Store | tile.AtomicReduce, buffer: SSAValue, begin: Expr) -> None:
        """Loads registers from ``begin`` on of a late load into ``buffer``: without guards where all tiles that the
        store needs lie inside of their domains."""
        here = {t.REGISTER: Sym(t.REGISTER) + begin}

        def emit() -> None:
            coords, guard, width, axis = self.access(load, load.results[0], self.placement.home)
            moved = [c.substitute(here) for c in coords]
            copy = t.Load(self.arguments[load.tensor], buffer, moved, guard.substitute(here), vector=width, axis=axis)
            self.emit(copy, load)

        spans = dict.fromkeys(c for late in self.postponed[op] for c in coords_of(late) if isinstance(c, Span))
        edges = [s for s in spans if s not in self.scope.full and not self.inside(s)]
        if not edges:
            emit()
            return
        whole, cut = Block(), Block()
        with self.within_domain(edges), self.into(whole):
            emit()
        with self.into(cut):
            emit()
        self.emit(t.If(all_of(s.origin + s.size <= s.stop for s in edges), Region(whole), Region(cut)), load)

    def late_loads(self, copied: Collection[Operation]) -> dict[Operation, list[tile.Load]]:
        """Loads that one store alone needs, elementwise and in its own axes, with nothing written in between."""
        found: dict[Operation, list[tile.Load]] = {}
        for op in self.kernel.walk():
            if not isinstance(op, tile.Load) or op in copied:
                continue
            store = sole_store(op)
            if store is None or not set(self.axes_of[op.results[0]]) <= set(self.axes_of[store.value]):
                continue
            home = self.placement.home
            if (
                home.registers(self.axes_of[store.value]) <= CHUNK_REGISTERS
                or home.registers(self.axes_of[op.results[0]]) <= 8
            ):
                continue
            writes = [u.operation for u in op.tensor.uses if isinstance(u.operation, tile.Store | tile.AtomicReduce)]
            if all(w is store for w in writes) and op.parent_block() is store.parent_block():
                found.setdefault(store, []).append(op)
        return found


def feeds(sources: set[SSAValue], value: SSAValue) -> bool:
    """Whether ``value`` is computed from one of ``sources`` by element-wise ops."""
    op = owner(value)
    if value in sources:
        return True
    return op is not None and is_elementwise(op) and any(feeds(sources, v) for v in op.operands)


def sole_store(load: tile.Load) -> tile.Store | tile.AtomicReduce | None:
    """The only store that a loaded tile reaches, through element-wise ops."""
    stores: set[tile.Store | tile.AtomicReduce] = set()
    pending = [load.results[0]]
    while pending:
        for use in pending.pop().uses:
            match use.operation:
                case tile.Store() | tile.AtomicReduce():
                    stores.add(use.operation)
                case op if is_elementwise(op):
                    pending.append(op.results[0])
                case _:
                    return None
    return next(iter(stores)) if len(stores) == 1 else None
