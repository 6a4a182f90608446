"""Tile IR to transport IR in warp roles: one warpgroup issues tensor copies, the others multiply and do the rest.

Both roles walk the same tile program. The producer keeps only streams and copied tiles; the consumers lower everything
with the plain machinery, on registers laid out as wgmma's accumulators, and products as wgmma groups::

    producer    for each tile in order of first use:   wait empty . expect bytes . copies
    consumers   wait full . fence . wgmma .. commit . wait group . arrive empty

A stream that only accumulates keeps one group in flight: stage i - 1 is released in iteration i, the last one after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, expr, minimum
from tilewright.lang.axes import Span
from tilewright.lang.fns import BinaryFn
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import Facts
from tilewright.schedule.hopper.epilogue import WARPGROUP_BARRIER, MatrixStore
from tilewright.schedule.hopper.operands import (
    Copied,
    DotPlan,
    InPlace,
    Operand,
    Staged,
    Widened,
    about_strides,
    conjuncts,
    index_value,
    map_axes,
    source_of,
)
from tilewright.schedule.hopper.products import issue, staging_offset
from tilewright.schedule.hopper.rings import Ring, accumulates, other_uses
from tilewright.schedule.lower import Lowering, hint, is_arithmetic, is_elementwise, owner
from tilewright.schedule.mapping import Buffered, ClassId, MapBuilder
from tilewright.schedule.plan import Placement
from tilewright.schedule.tiles import coords_of, element, spans_of, tensor_name
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

PRODUCER_REGISTERS = 24
CONSUMER_REGISTERS = 240
"""setmaxnreg with two consumer warpgroups: 24 + 2 * 240 = 3 * 168 (measured on H200; benchmarks/results)."""
PART = 32
"""Registers of a large value that are computed and stored at a time."""
GROUP = 16
"""Bands of so many row tiles, walked column by column, so that operands are found in L2."""


class RoleLowering(Lowering):
    """Lowers one kernel under one candidate schedule."""

    kept_registers = 128

    def __init__(
        self,
        kernel: tile.Kernel,
        placement: Placement,
        facts: Facts,
        dots: Sequence[DotPlan],
        rings: Sequence[Ring],
        warpgroups: int,
        *,
        matrix_stores: bool = True,
    ):
        super().__init__(kernel, placement, facts)
        self.matrix_stores = matrix_stores
        self.dots = {p.dot: p for p in dots}
        self.by_write = {p.write: p for p in dots if p.write is not None}
        self.rings = tuple(rings)
        self.warpgroups = warpgroups
        self.copied = {s.copied.load: (ring, s) for ring in rings for s in ring.slots}
        self.producing = False
        self.declarations: list[Operation] = []
        self.data: dict[str, SSAValue] = {}
        self.full: dict[str, SSAValue] = {}
        self.empty: dict[str, SSAValue] = {}
        self.maps: dict[tile.Load, SSAValue] = {}
        self.panels: SSAValue | None = None
        self.staged: dict[SSAValue, SSAValue] = {}
        self.in_flight: dict[SSAValue, Expr] = {}
        self.guards: list[Expr] = []
        self.postponed = self.late_loads()

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> t.Kernel:
        source = self.kernel
        producers = 1 if self.rings else 0
        kernel = t.Kernel(
            source.sym_name.data,
            [n.data for n in source.arg_names],
            [arg.type for arg in source.body.block.args],
            threads=128 * (self.warpgroups + producers),
            min_ctas=1,
            index_bits=self.facts.index_bits,
            numerics=source.numerics.data.value,
            assumptions=self.placement.assumptions,
        )
        self.arguments: dict[SSAValue, SSAValue] = dict(
            zip(source.body.block.args, kernel.body.block.args, strict=True)
        )
        self.declare()
        roles = [self.producer()] if producers else []
        roles.append(self.consumer(128 * producers))
        opening: list[Operation] = []
        if self.rings:
            bars = [*self.full.values(), *self.empty.values()]
            opening.append(a.Elected(t.block([*(a.MbarrierInit(b) for b in bars), a.FenceMbarrierInit()])))
            opening.append(t.Barrier())
        kernel.body.block.add_ops([*self.declarations, *self.shared, *opening, *roles])
        return kernel

    def declare(self) -> None:
        """Shared buffers, barriers and maps of the rings."""
        for ring in self.rings:
            dtype = element(ring.slots[0].copied.load.results[0])
            data = t.Shared(ring.name, dtype, ring.stages * ring.stage_bytes // dtype.bytes, 0)
            full = a.Mbarriers(f"{ring.name}_full", ring.stages, 1)
            empty = a.Mbarriers(f"{ring.name}_empty", ring.stages, self.warpgroups)
            self.declarations += [data, full, empty]
            self.data[ring.name] = data.buffer
            self.full[ring.name], self.empty[ring.name] = full.bars, empty.bars
            for slot in ring.slots:
                self.maps[slot.copied.load] = self.tensor_map(slot.copied.load, slot.copied.map)

    def tensor_map(self, op: tile.Load | tile.Store, plan: TensorMapPlan) -> SSAValue:
        """Declares the map of an access."""
        declared = a.TensorMap(
            self.arguments[op.tensor],
            f"{tensor_name(op)}_map{sum(isinstance(d, a.TensorMap) for d in self.declarations)}",
            data_type=int(plan.data_type),
            address=plan.address,
            dims=plan.dims,
            strides_bytes=plan.strides,
            box=plan.box,
            axes=map_axes(plan),
            swizzle=int(plan.swizzle),
            l2_promotion=int(plan.l2_promotion),
        )
        self.declarations.append(declared)
        # what the encoding of the map needs; what the copies need besides is the access' own condition
        self.guards += [g for g in conjuncts(plan.guard) if isinstance(op, tile.Load) or about_strides(g)]
        return declared.map

    def programs(self, body: Block) -> t.Programs:
        """The loop over this CTA's programs."""
        grid = [g.expr for g in self.kernel.grid]
        group = GROUP if len(grid) >= 2 else None
        names = [f"p{i}" for i in range(len(grid))]
        return t.Programs(names, grid, self.placement.persistent, Region(body), group)

    def producer(self) -> a.Role:
        """One thread that issues all copies."""
        body, inner = Block(), Block()
        self.producing = True
        with self.into(inner):
            self.body(self.kernel.body.block, split=True)
        self.producing = False
        counters = [a.Counter(counter(ring)) for ring in self.rings]
        if self.redistributes:
            body.add_op(a.SetMaxRegisters(PRODUCER_REGISTERS))
        body.add_op(a.Elected(t.block([*counters, self.programs(inner)])))
        return a.Role("producer", 0, 128, Region(body))

    @property
    def redistributes(self) -> bool:
        """Registers move from the producer to the consumers: the compiler's even share would not do."""
        return bool(self.rings) and self.warpgroups == 2

    def consumer(self, first: int) -> a.Role:
        """The warpgroups that multiply, and do everything else."""
        body, inner = Block(), Block()
        with self.into(inner):
            self.body(self.kernel.body.block, split=True)
        if self.redistributes:
            body.add_op(a.SetMaxRegisters(CONSUMER_REGISTERS))
        body.add_ops([a.Counter(counter(ring)) for ring in self.rings])
        body.add_op(self.programs(inner))
        if self.panels is not None:
            body.add_op(a.Elected(t.block([a.BulkWait(0, read=False)])))
        return a.Role("consumer", first, 128 * self.warpgroups, Region(body))

    # -- walk -----------------------------------------------------------------------------------------------------
    def body(self, block: Block, *, split: bool) -> None:
        for op in block.ops:
            for ring in self.rings:
                if ring.block is block and ring.first is op:
                    self.fill(ring) if self.producing else self.await_full(ring)
            self.op(op, split=split)
            for ring in self.rings:
                if ring.block is block and ring.last is op and not self.producing and not self.deferred(ring):
                    if isinstance(op, tile.Stream):
                        # a stream of no steps multiplies nothing: only a barrier says that all warps saw the tile
                        meet = WARPGROUP_BARRIER + Sym(a.WARPGROUP)
                        self.emit(a.NamedBarrierSync(meet, a.WARPGROUP_THREADS))
                    self.release(ring, Sym(counter(ring)))
                    self.emit(a.Advance(counter(ring)))

    def op(self, op: Operation, *, split: bool) -> None:
        if self.producing:
            if isinstance(op, tile.Stream) and any(
                r.block.parent_op() is not None and self.within(r, op) for r in self.rings
            ):
                self.loops_of(op, split=split)
            return
        match op:
            case tile.Load() if op in self.copied and not other_uses(op):
                pass
            case tile.Load() if any(op in loads for loads in self.postponed.values()):
                pass
            case tile.Dot() if self.dots[op].write is None:
                self.product(self.dots[op])
            case tile.Dot():
                pass
            case tile.Write() if op in self.by_write:
                self.snapshot([op.frag], op)
                self.product(self.by_write[op])
            case _:
                super().op(op, split=split)

    @staticmethod
    def within(ring: Ring, op: tile.Stream) -> bool:
        """The ring's block lies in the stream."""
        parent = ring.block.parent_op()
        return parent is not None and op.is_ancestor(parent)

    def deferred(self, ring: Ring) -> bool:
        """The ring's stages are released one iteration late."""
        stream = ring.block.parent_op()
        return isinstance(stream, tile.Stream) and accumulates(stream, list(self.dots.values()))

    # -- rings ----------------------------------------------------------------------------------------------------
    def stage(self, ring: Ring, use: Expr) -> Expr:
        """Byte offset of the stage of use ``use``."""
        return use % ring.stages * ring.stage_bytes if ring.stages > 1 else Const(0)

    def fill(self, ring: Ring) -> None:
        """The producer's part of one use."""
        use = Sym(counter(ring))
        slot_index = use % ring.stages
        self.emit(a.MbarrierWait(self.empty[ring.name], slot_index, (use // ring.stages + 1) % 2))
        self.emit(a.MbarrierArriveExpectTx(self.full[ring.name], slot_index, ring.tx_bytes))
        for slot in ring.slots:
            plan, load = slot.copied.map, slot.copied.load
            first = [index_value(c, coords_of(load)) for c in plan.coordinates]
            for box in plan.boxes:
                self.emit(
                    a.TmaLoad(
                        self.maps[load],
                        self.data[ring.name],
                        self.full[ring.name],
                        coords=[c + s for c, s in zip(first, box.start, strict=True)],
                        offset=self.stage(ring, use) + slot.offset + box.shared_offset_bytes,
                        index=slot_index,
                        box_bytes=plan.box_bytes,
                    ),
                    load,
                )
        self.emit(a.Advance(counter(ring)))

    def await_full(self, ring: Ring) -> None:
        """The consumers' wait for the tiles of one use."""
        use = Sym(counter(ring))
        self.emit(a.MbarrierWait(self.full[ring.name], use % ring.stages, use // ring.stages % 2))

    def release(self, ring: Ring, use: Expr) -> None:
        """One thread of each consumer warpgroup gives the stage of ``use`` back."""
        self.emit(a.Elected(t.block([a.MbarrierArrive(self.empty[ring.name], use % ring.stages)])))

    # -- products -------------------------------------------------------------------------------------------------
    def product(self, plan: DotPlan) -> None:
        """One product, waited for at once unless its stream keeps it in flight."""
        dot = plan.dot
        fresh = plan.write is None
        if fresh:
            axes = self.axes_of[dot.result]
            count = self.placement.home.registers(axes)
            buffer = self.registers(hint(dot.result), element(dot.result), count)
            self.scope.buffers[dot.result] = Buffered(buffer, axes)
        else:
            assert plan.write is not None
            buffer = self.scope.buffers[plan.write.frag].buffer
        if isinstance(plan.a, Widened):
            self.ordinary_product(plan, buffer, fresh=fresh)
            return
        left = self.left(plan)
        right = self.shared_operand(plan.b, dot)
        self.emit(a.WgmmaFence())
        for op in issue(plan, buffer, left, right, self.placement.home.by_class, self.axes_of, scale_first=not fresh):
            self.emit(op, dot)
        stream = dot.parent_op()
        if isinstance(stream, tile.Stream) and accumulates(stream, list(self.dots.values())):
            self.in_flight[buffer] = Const(1)
            return
        self.emit(a.WgmmaCommit())
        held = [buffer] + ([left[0]] if isinstance(plan.a, InPlace) else [])
        self.emit(a.WgmmaWait(0, held))
        if isinstance(plan.a, Staged) or isinstance(plan.b, Staged):
            self.emit(t.Barrier())  # nobody writes the staged tiles again before all have multiplied

    def ordinary_product(self, plan: DotPlan, buffer: SSAValue, *, fresh: bool) -> None:
        """Both operands through shared memory in the accumulator's type, then one multiply-add per element and step."""
        dot, home = plan.dot, self.placement.home
        axes, kind = self.axes_of[dot.result], element(dot.result)
        depth = tile.tile_type(dot.a).shape[1]
        left = self.widened(dot.a, kind, dot)
        right = self.widened(dot.b, kind, dot)
        self.emit(t.Barrier())
        if fresh:
            zero = self.mapping(axes)
            self.emit(zero.finish([zero.constant(0.0 if kind.is_float else 0, kind)], [buffer]), dot)
        loop, step = Block(), f"d{self.order[dot]}"
        with self.into(loop):
            parts: list[SSAValue] = []
            for side, (shared, pitch) in enumerate((left, right)):
                cls = axes[side]
                assert cls is not None
                own = (cls,)
                part = self.registers("ab"[side], kind, home.registers(own))
                (at,) = home.layout(own).coordinates(Sym(t.THREAD), Sym(t.REGISTER))
                size = tile.tile_type(dot.result).shape[side]
                if home.by_class[own[0]].covered > size:  # registers beyond the tile repeat its last row or column
                    at = minimum(at, size - 1)
                offset = at * pitch + Sym(step) if side == 0 else Sym(step) * pitch + at
                self.emit(t.SharedRead(shared, part, offset, TRUE), dot)
                parts.append(part)
            builder = self.mapping(axes)
            a_value, b_value = (builder.read(Buffered(part, (axes[side],)), kind) for side, part in enumerate(parts))
            total = builder.read(Buffered(buffer, axes), kind)
            product = builder.binary(BinaryFn.MUL, a_value, b_value)
            self.emit(builder.finish([builder.binary(BinaryFn.ADD, total, product)], [buffer]), dot)
        self.emit(t.For(step, Const(0), expr(depth), expr(1), Region(loop)), dot)
        self.emit(t.Barrier())

    def widened(self, value: SSAValue, kind: DType, dot: tile.Dot) -> tuple[SSAValue, int]:
        """Writes a value row by row to shared memory, zero beyond its domains; returns the buffer and its pitch."""
        axes, spans = self.axes_of[value], spans_of(value)
        shape = tile.tile_type(value).shape
        builder = self.mapping(axes, value)
        result = builder.cast(builder.value(value), kind)
        places = [builder.coordinate(c) for c in axes]
        valid = self.valid(axes, spans, places)
        if valid != TRUE:
            result = builder.select(valid, result, builder.constant(0.0 if kind.is_float else 0, kind))
        buffer = self.registers(hint(value), kind, builder.count)
        self.emit(builder.finish([result], [buffer]), dot)
        pitch = shape[1] + 1
        if value not in self.staged:
            declared = t.Shared(f"{hint(value)}_tile", kind, shape[0] * pitch, 0)
            self.shared.append(declared)
            self.staged[value] = declared.buffer
        inside = all_of(at < size for at, size in zip(places, shape, strict=True))
        guard = all_of([self.placement.home.layout(axes).owner_predicate(Sym(t.THREAD)), inside])
        self.emit(t.SharedWrite(self.staged[value], buffer, places[0] * pitch + places[1], guard), dot)
        return self.staged[value], pitch

    def left(self, plan: DotPlan) -> tuple[SSAValue, Expr]:
        if isinstance(plan.a, InPlace):
            return self.masked(plan.a.value, 1, plan.dot), Const(0)
        return self.shared_operand(plan.a, plan.dot)

    def masked(self, value: SSAValue, axis: int, source: Operation) -> SSAValue:
        """``value`` in registers of its own, zero beyond the domain of ``axis``."""
        axes, spans = self.axes_of[value], spans_of(value)
        builder = self.mapping(axes, value)
        result = builder.value(value)
        valid = self.valid([axes[axis]], [spans[axis]], [builder.coordinate(axes[axis])])
        if valid == TRUE and value in self.scope.buffers:
            return self.scope.buffers[value].buffer
        if valid != TRUE:
            result = builder.select(valid, result, builder.constant(0.0, element(value)))
        buffer = self.registers(hint(value), element(value), builder.count)
        self.finish(builder, [result], [buffer], source, spans, constant=valid == TRUE)
        return buffer

    def shared_operand(self, operand: Operand, dot: tile.Dot) -> tuple[SSAValue, Expr]:
        """Buffer and byte offset of an operand's tile."""
        if isinstance(operand, Copied):
            ring, slot = self.copied[operand.load]
            return self.data[ring.name], self.stage(ring, Sym(counter(ring))) + slot.offset
        assert isinstance(operand, Staged)
        return self.stage_value(operand, dot), Const(0)

    def stage_value(self, operand: Staged, dot: tile.Dot) -> SSAValue:
        """Writes a value to shared memory in the operand's layout, zero beyond its domains."""
        value = operand.value
        axes, spans = self.axes_of[value], spans_of(value)
        builder = self.mapping(axes, value)
        result = builder.value(value)
        places = [builder.coordinate(c) for c in axes]
        valid = self.valid(axes, spans, places)
        if valid != TRUE:
            result = builder.select(valid, result, builder.constant(0.0, element(value)))
        buffer = self.registers(hint(value), element(value), builder.count)
        self.finish(builder, [result], [buffer], dot, [None] * len(spans), constant=valid == TRUE)
        shared = operand.plan.shared
        if value not in self.staged:
            declared = t.Shared(f"{hint(value)}_tile", element(value), shared.size_bytes // shared.element_bytes, 0)
            self.shared.append(declared)
            self.staged[value] = declared.buffer
        k, mn = (0, 1) if operand.transposed else (1, 0)
        layout = self.placement.home.layout(axes)
        fits = all_of([places[k] < shared.extents[0], places[mn] < shared.extents[1]])
        guard = all_of([layout.owner_predicate(Sym(t.THREAD)), fits])
        self.emit(t.SharedWrite(self.staged[value], buffer, staging_offset(shared, places[k], places[mn]), guard), dot)
        self.emit(a.FenceProxyAsync())
        self.emit(t.Barrier())
        return self.staged[value]

    # -- streams --------------------------------------------------------------------------------------------------
    def stream(self, op: tile.Stream, *, split: bool) -> None:
        if not accumulates(op, list(self.dots.values())):
            super().stream(op, split=split)
            return
        written = dict.fromkeys(w.frag for w in op.walk() if isinstance(w, tile.Write))
        self.snapshot([f for f in written if f in self.scope.buffers], op)
        rings = [r for r in self.rings if r.block is op.body.block]
        block = Block()
        previous = {r.name: Sym(counter(r)) - 1 for r in rings}
        with self.into(block):
            self.body(op.body.block, split=False)
            self.emit(a.WgmmaCommit())
            self.emit(a.WgmmaWait(1))
            earlier = [a.MbarrierArrive(self.empty[r.name], previous[r.name] % r.stages) for r in rings]
            release = a.Elected(t.block(earlier))
            self.emit(t.If(Sym(op.counter.data) > 0, t.block([release]), t.block()))
            for ring in rings:
                self.emit(a.Advance(counter(ring)))
        trip = op.trip.expr
        self.emit(t.For(op.counter.data, Const(0), trip, expr(1), Region(block)), op)
        self.emit(a.WgmmaWait(0, list(self.in_flight)))
        self.in_flight.clear()
        last = [a.MbarrierArrive(self.empty[r.name], previous[r.name] % r.stages) for r in rings]
        self.emit(t.If(trip > 0, t.block([a.Elected(t.block(last))]), t.block()))

    def loops_of(self, op: tile.Stream, *, split: bool) -> None:
        if accumulates(op, list(self.dots.values())):
            self.loop(op, Const(0), op.trip.expr, split=False)
            return
        super().loops_of(op, split=split)

    def trivial(self, value: SSAValue) -> bool:
        source, _ = source_of(value) if isinstance(value.type, tile.TileType) and value.type.rank == 2 else (value, ())
        load = owner(source)
        if isinstance(load, tile.Load) and load in self.copied and not other_uses(load):
            return True
        return super().trivial(value)

    def live(self, axes: Sequence[ClassId | None], spans: Sequence[Span | None]) -> Expr:
        """Every register is computed: accumulators are spread over all rows and columns of a tile."""
        return TRUE

    # -- stores ---------------------------------------------------------------------------------------------------
    def store(self, op: tile.Store | tile.ReduceAdd) -> None:
        plan = MatrixStore.plan(self, op) if isinstance(op, tile.Store) else None
        if plan is not None:
            plan.lower()
        elif self.home_parts(op):
            self.prepare(op)
            self.store_parts(op)
        else:
            super().store(op)

    def home_parts(self, op: tile.Store | tile.ReduceAdd) -> bool:
        """The value has so many registers that it is better computed and stored part by part."""
        count = self.placement.home.registers(self.axes_of[op.value])
        return count > PART and count % PART == 0

    def prepare(self, op: tile.Store | tile.ReduceAdd) -> None:
        """Computes what has fewer axes than the stored value once, before its parts; not what late loads feed."""
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

    def store_parts(self, op: tile.Store | tile.ReduceAdd) -> None:
        """Stores from registers, in parts."""
        value = op.value
        coords, guard, width, axis = self.access(op, value, self.placement.home)
        guard = all_of([self.placement.home.layout(self.axes_of[value]).owner_predicate(Sym(t.THREAD)), guard])
        kind = t.Store if isinstance(op, tile.Store) else t.ReduceAdd
        count = self.placement.home.registers(self.axes_of[value])
        size = PART if count % PART == 0 else count
        for first in range(0, count, size):
            source, at = self.part(value, op, first, size, alone=True)
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

    def part(
        self, value: SSAValue, op: tile.Store | tile.ReduceAdd, first: int, count: int, *, alone: bool = False
    ) -> tuple[SSAValue, int]:
        """A buffer that holds registers ``first .. first + count`` of a value, and where in it they begin.

        Loads that only this store needs are issued with their part. ``alone``: the buffer holds nothing else.
        """
        if value in self.scope.buffers and not alone:
            return self.scope.buffers[value].buffer, first
        axes = self.axes_of[value]
        buffers = dict(self.scope.buffers)
        home = self.placement.home
        for load in self.postponed.get(op, ()):
            loaded = load.results[0]
            own = self.axes_of[loaded]
            places = [home.register_of(own, axes, Const(r)).constant for r in range(first, first + count)]
            begin = int(min(r for r in places if r is not None))
            size = int(max(r for r in places if r is not None)) + 1 - begin
            coords, guard, width, axis = self.access(load, loaded, home)
            here = {t.REGISTER: Sym(t.REGISTER) + begin}
            buffer = self.registers(hint(loaded), element(loaded), size)
            moved = [c.substitute(here) for c in coords]
            copy = t.Load(self.arguments[load.tensor], buffer, moved, guard.substitute(here), vector=width, axis=axis)
            self.emit(copy, load)
            buffers[loaded] = Buffered(buffer, own, begin)
        builder = MapBuilder(home, axes, buffers, self.axes_of, self.arguments, (first, count))
        result = builder.value(value)
        buffer = self.registers(hint(value), element(value), count)
        self.emit(builder.finish([result], [buffer]), op)
        return buffer, 0

    def late_loads(self) -> dict[Operation, list[tile.Load]]:
        """Loads that one store alone needs, elementwise and in its own axes, with nothing written in between."""
        found: dict[Operation, list[tile.Load]] = {}
        for op in self.kernel.walk():
            if not isinstance(op, tile.Load) or op in self.copied:
                continue
            store = sole_store(op)
            if store is None or not set(self.axes_of[op.results[0]]) <= set(self.axes_of[store.value]):
                continue
            home = self.placement.home
            if home.registers(self.axes_of[store.value]) <= PART or home.registers(self.axes_of[op.results[0]]) <= 8:
                continue
            writes = [u.operation for u in op.tensor.uses if isinstance(u.operation, tile.Store | tile.ReduceAdd)]
            if all(w is store for w in writes) and op.parent_block() is store.parent_block():
                found.setdefault(store, []).append(op)
        return found


def counter(ring: Ring) -> str:
    """The carried counter of a ring's uses."""
    return f"i_{ring.name}"


def feeds(sources: set[SSAValue], value: SSAValue) -> bool:
    """``value`` is computed from one of ``sources`` through element-wise ops."""
    op = owner(value)
    if value in sources:
        return True
    return op is not None and is_elementwise(op) and any(feeds(sources, v) for v in op.operands)


def sole_store(load: tile.Load) -> tile.Store | tile.ReduceAdd | None:
    """The one store that a loaded tile goes to, through element-wise ops only."""
    stores: set[tile.Store | tile.ReduceAdd] = set()
    pending = [load.results[0]]
    while pending:
        for use in pending.pop().uses:
            match use.operation:
                case tile.Store() | tile.ReduceAdd():
                    stores.add(use.operation)
                case op if is_elementwise(op):
                    pending.append(op.results[0])
                case _:
                    return None
    return next(iter(stores)) if len(stores) == 1 else None
