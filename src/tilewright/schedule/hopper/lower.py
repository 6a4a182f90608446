"""Tile IR to transport IR in warp roles: one warpgroup issues tensor copies, the others multiply and do the rest.

Both roles walk the same tile program. The producer keeps only streams and copied tiles; the consumers lower everything
with the plain machinery, on registers laid out as wgmma's accumulators, and products as wgmma groups::

    producer    for each tile in order of first use:   wait empty . expect bytes . copies
    consumers   wait full . fence . wgmma .. commit . wait group . arrive empty

A stream that only accumulates keeps one group in flight: stage i - 1 is released in iteration i, the last one after it.

With ping-pong every consumer warpgroup has whole tiles of its own, and order barriers keep their products apart,
so that one's epilogue runs under the other's products. Each skips the pipeline's stages of the others' tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, expr, maximum, minimum, simplify
from tilewright.lang.axes import Span
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.configuration import ScheduleConfiguration, StepRange
from tilewright.schedule.hopper.converted_operand import convert_tile
from tilewright.schedule.hopper.epilogue_tiles import warpgroup_barrier
from tilewright.schedule.hopper.loaded_bounds import LoadedBounds
from tilewright.schedule.hopper.mask_free_steps import leading_steps
from tilewright.schedule.hopper.operands import (
    AsyncOperand,
    ConvertedOperand,
    DotPlan,
    Operand,
    RegisterOperand,
    StagedOperand,
    WidenedOperand,
)
from tilewright.schedule.hopper.ping_pong import PingPongOrder, order_arrive, order_wait, uses_per_program
from tilewright.schedule.hopper.pipeline_lowering import counter
from tilewright.schedule.hopper.products import issue
from tilewright.schedule.hopper.products_in_flight import ProductsInFlight
from tilewright.schedule.hopper.program_order import program_order
from tilewright.schedule.hopper.program_queue import ProgramQueue
from tilewright.schedule.hopper.program_sums import cluster_barriers_of_sums, lower_program_sum
from tilewright.schedule.hopper.promise_gate import Gate
from tilewright.schedule.hopper.software_pipeline import SoftwarePipelinedLoop
from tilewright.schedule.hopper.tails import clear_rows, rows_beyond
from tilewright.schedule.hopper.tile_pipelines import TilePipeline, accumulates, copied_tiles, only_places, other_uses
from tilewright.schedule.map_builder import Buffered, ClassId, MapBuilder
from tilewright.schedule.placement import Placement
from tilewright.schedule.transforms.numerics import contracted
from tilewright.schedule.values import LoweringScope
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import coords_of, element, hint, is_elementwise, owner, source_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import exprs

REGISTERS = {(2, 1): (24, 240), (3, 1): (32, 160), (4, 1): (24, 112), (1, 2): (40, 216), (1, 3): (24, 136)}
"""setmaxnreg of the producer and of each consumer warpgroup, by the number of these and that of CTAs that share an SM:
24 + 2 * 240 = 3 * 168 registers at launch, 32 + 3 * 160 = 4 * 128, 24 + 4 * 112 of 5 * 96, 40 + 216 = 2 * 128,
24 + 136 = 2 * 80 (measured on H200; benchmarks/results)."""
COPYING_REGISTERS = {(2, 1): (56, 224), (3, 1): (56, 152), (4, 1): (56, 104), (1, 2): (56, 200), (1, 3): (56, 104)}
"""The same where the producer's threads hold addresses of what they copy."""


class RoleLowering(ProductsInFlight):
    """Lowers one kernel under one candidate schedule."""

    warps_meet = False
    matrices_move = True
    kept_registers = 128

    def __init__(
        self, kernel: tile.Kernel, placement: Placement, facts: CallFacts, configuration: ScheduleConfiguration
    ):
        super().__init__(kernel, placement, facts, configuration)
        self.dots = {p.dot: p for p in configuration.dots}
        self.by_write = {p.write: p for p in configuration.dots if p.write is not None}
        self.accumulations = {
            op for op in kernel.walk() if isinstance(op, tile.StreamLoop) and accumulates(op, configuration.dots)
        }
        self.loaded_bounds = LoadedBounds(kernel)
        self.gate = Gate(kernel)
        self.queue = ProgramQueue(kernel, serves=self._draws())
        self.in_flight: dict[SSAValue, Expr] = {}
        self.number = Sym(a.WARPGROUP)
        self.ping_pong: PingPongOrder | None = None
        self.required: list[Expr] = []
        self.holds: frozenset[SSAValue] = frozenset()
        """Conditions that are true for all elements in the steps being lowered."""

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> t.Kernel:
        source = self.kernel
        producers = 1 if self.pipelines else 0
        kernel = t.Kernel(
            source.sym_name.data,
            [n.data for n in source.arg_names],
            [arg.type for arg in source.body.block.args],
            target=self.placement.target,
            threads=a.WARPGROUP_THREADS * (self.configuration.consumers + producers),
            min_ctas=self.placement.min_ctas,
            index_bits=self.facts.index_bits,
            numerics=source.numerics.data.value,
            assumptions=self.placement.assumptions,
        )
        self.arguments: dict[SSAValue, SSAValue] = dict(
            zip(source.body.block.args, kernel.body.block.args, strict=True)
        )
        self.declare()
        if producers:
            self.loaded_bounds.declare(self)
            self.queue.declare(self)
        roles = [*([self.producer()] if producers else []), *self.consumers(a.WARPGROUP_THREADS * producers)]
        opening: list[Operation] = []
        if self.pipelines:
            bars = [*self.full.values(), *self.empty.values(), *self.loaded_bounds.bars, *self.queue.bars]
            opening.append(a.Elected(t.block([*(a.MbarrierInit(b) for b in bars), a.FenceMbarrierInit()])))
        barrier = self.rendezvous() if opening or self.gate.flags is not None else []
        opening += self.gate.open(self, kernel.threads.data, barrier)
        kernel.body.block.add_ops([*self.declarations, *self.shared, *opening, *roles])
        kernel.attributes["assumptions"] = exprs([*self.placement.assumptions, *dict.fromkeys(self.required)])
        if self.configuration.cluster is not None:
            kernel.attributes["cluster"] = IntAttr(self.configuration.cluster.size)
        return contracted(kernel)

    def require(self, condition: Expr) -> None:
        """The kernel runs only where ``condition`` holds: asked at launch, known to the proofs."""
        if condition != TRUE:
            self.required.append(condition)
            self.guards.append(condition)

    def programs(self, body: Block) -> Operation:
        """The loop over this CTA's programs, behind the gate; with ping-pong, over the warpgroup's own."""
        cluster, target = self.configuration.cluster, self.placement.target
        loads, few = bool(self.loaded_bounds.binds), self.configuration.candidate.few_lengths
        order = program_order(self.kernel, target, cluster, loads=loads, few_lengths=few)
        walk = t.Programs(
            [program_index(i) for i in range(len(order.extents))],
            order.extents,
            self.placement.persistent,
            Region(body),
            order.group,
            cluster=None if cluster is None else cluster.shape,
            interleave=None if self.ping_pong is None else (self.ping_pong.place, self.ping_pong.count),
            descending=order.descending,
            ascending=order.ascending,
            drawn=self.queue.drawn,
        )
        return self.gate.around(walk)

    def producer(self) -> a.Role:
        """The producer role: one thread issues all copies, or all threads of the warpgroup copy."""
        body, inner = Block(), Block()
        self.producing = True
        with self.into(inner):
            self.body(self.kernel.body.block, split=True)
            self.queue.lower(self)
        self.producing = False
        if self.redistributes:
            body.add_op(a.SetMaxRegisters(self.register_shares[0]))
        walk = [*self.counters(), self.programs(inner)]
        body.add_ops(walk if self.thread_copied else [a.Elected(t.block(walk))])
        body.add_ops(cluster_barriers_of_sums(self.kernel))
        body.add_ops(self.role_end())
        return a.Role("producer", 0, a.WARPGROUP_THREADS, Region(body))

    def counters(self) -> list[a.Counter]:
        """The counters of every role: uses of pipelines, of the slot of loaded bounds and of the queue. Where a CTA may
        draw all programs, pipeline counters are periodic."""
        drawn = self.queue.drawn is not None
        uses = [a.Counter(counter(p), period=2 * p.stages if drawn else None) for p in self.pipelines]
        return [*uses, *self.loaded_bounds.counters, *self.queue.counters] if self.pipelines else uses

    def _draws(self) -> bool:
        """Whether CTAs draw programs from a queue: their lengths are loaded, and all warpgroups of a CTA execute the
        same program."""
        whole = self.configuration.cluster is None and self.configuration.candidate.ping_pong == 1
        fed = bool(self.pipelines) and not self.thread_copied
        return whole and fed and bool(self.loaded_bounds.binds) and self.placement.persistent

    @property
    def redistributes(self) -> bool:
        """Whether registers are moved from the producer to the consumers by setmaxnreg."""
        return bool(self.pipelines) and (self.configuration.consumers, self.placement.min_ctas) in REGISTERS

    @property
    def register_shares(self) -> tuple[int, int]:
        """Registers per thread of the producer and of the consumers."""
        vectors_alone = not any(pipeline.thread_copied for pipeline in self.pipelines)
        few = vectors_alone and bool(self.configuration.in_flight)
        known = COPYING_REGISTERS if self.thread_copied and not few else REGISTERS
        return known[self.configuration.consumers, self.placement.min_ctas]

    def consumers(self, first: int) -> list[a.Role]:
        """The consumer roles: one, or one for each set of warpgroups that alternates."""
        count = self.configuration.candidate.ping_pong
        if count == 1:
            return [self.consumer("consumer", first)]
        roles: list[a.Role] = []
        for place in range(count):
            self.ping_pong, self.number = (
                PingPongOrder.of(self.kernel, self.configuration.dots, place, count),
                Const(place),
            )
            roles.append(
                self.consumer(
                    f"consumer{place}", first + a.WARPGROUP_THREADS * self.configuration.candidate.warpgroups * place
                )
            )
        return roles

    def consumer(self, label: str, first: int) -> a.Role:
        """One role of consumers."""
        body, inner = Block(), Block()
        with self.into(inner):
            self.body(self.kernel.body.block, split=True)
            self.queue.lower(self)
            self.skip(lambda role: role.count - 1)
        if self.redistributes:
            body.add_op(a.SetMaxRegisters(self.register_shares[1]))
        body.add_ops(self.counters())
        with self.into(body):
            self.skip(lambda role: role.place)
            self.open_order()
        body.add_op(self.programs(inner))
        if self.configuration.copies_out:
            body.add_op(a.Elected(t.block([a.BulkWait(0, read=False)])))
        body.add_ops(self.role_end())
        return a.Role(label, first, a.WARPGROUP_THREADS * self.configuration.candidate.warpgroups, Region(body))

    def open_order(self) -> None:
        """Opens the order of products: the last of the warpgroups arrives for the first."""
        if self.ping_pong is not None and self.ping_pong.opens:
            self.emit(self.ping_pong.arrive())
        shared = self.configuration.candidate.warpgroups
        if self.configuration.orders_products:
            last = Sym(a.WARPGROUP).eq(shared - 1)
            self.emit(t.If(last, t.block([order_arrive(Const(shared - 1), shared)]), t.block()))

    def skip(self, programs: Callable[[PingPongOrder], int]) -> None:
        """Advances pipeline counters past the stages of programs that other roles execute."""
        if self.ping_pong is None or programs(self.ping_pong) == 0:
            return
        for pipeline in self.pipelines:
            self.emit(a.Advance(counter(pipeline), uses_per_program(pipeline) * programs(self.ping_pong)))

    # -- walk -----------------------------------------------------------------------------------------------------
    def body(self, block: Block, *, split: bool) -> None:
        ops = self.walk_of(block)
        users = {p.name: sorted(p.users, key=ops.index) for p in self.pipelines if p.block is block}
        for op in ops:
            if self.producing and block is self.kernel.body.block:
                self.load_rows(op)
            for pipeline in self.pipelines:
                if pipeline.block is block and users[pipeline.name][0] is op:
                    self.fill(pipeline) if self.producing else self.await_full(pipeline)
            if self.ping_pong is not None and op is self.ping_pong.first:
                self.emit(self.ping_pong.wait())
            self.op(op, split=split)
            if self.ping_pong is not None and op is self.ping_pong.last and not self.accumulating(op):
                self.emit(self.ping_pong.arrive())
            if not self.producing:
                early = self.read_before_drain(op)
                for pipeline in self.pipelines:
                    ends = pipeline.block is block and users[pipeline.name][-1] is op
                    if ends and pipeline not in early and not self.deferred(pipeline):
                        self.release_with_last(pipeline) if self.groups else self.end_use(pipeline)
        self.wait_for_all()

    def end_use(self, pipeline: TilePipeline) -> None:
        """The last product of a program that reads the pipeline's tiles has ended: the stage is given back."""
        if isinstance(pipeline.last, tile.StreamLoop):
            # a stream of no steps multiplies nothing: only a barrier says that all warps saw the tile
            self.emit(warpgroup_barrier(self))
        self.release(pipeline, Sym(counter(pipeline)))
        self.emit(a.Advance(counter(pipeline)))

    def read_before_drain(self, op: Operation) -> list[TilePipeline]:
        """The pipelines around a software-pipelined stream that only its early product reads: they can be released
        before its drain."""
        if not isinstance(op, tile.StreamLoop) or op not in self.configuration.software_pipelines:
            return []
        early = self.configuration.software_pipelines[op].early
        uses = copied_tiles(self.configuration.dots)
        return [
            p
            for p in self.pipelines
            if p.last is op and all(plan is early for slot in p.slots for plan, _ in uses[slot.copied.load])
        ]

    def op(self, op: Operation, *, split: bool) -> None:
        if self.producing:
            if isinstance(op, tile.StreamLoop) and any(
                r.block.parent_op() is not None and self.within(r, op) for r in self.pipelines
            ):
                self.loops_of(op, split=split)
            elif isinstance(op, tile.Bind):
                self.loaded_bounds.lower(self, op)
            elif op in self.loaded_bounds.sources:
                super().op(op, split=False)
            return
        if self.groups and not (
            isinstance(op, tile.Load | tile.Dot | tile.FragmentRead) or op in self.by_write or is_elementwise(op)
        ):
            self.wait_for_all()
        match op:
            case tile.Bind() if self.pipelines:
                self.loaded_bounds.lower(self, op)
            case _ if self.pipelines and self.loaded_bounds.only_for_bounds(op):
                pass
            case tile.Load() | tile.Gather() if op in self.copied and not other_uses(op):
                pass
            case tile.Load() if op in self.steps:
                self.read_step(op)
            case tile.Load() | tile.Gather() if only_places(op, self.copied):
                pass
            case tile.Cast() if self.is_converted(op):
                pass
            case tile.Load() if any(op in loads for loads in self.postponed.values()):
                pass
            case tile.Dot() if self.dots[op].write is None:
                self.product(self.dots[op])
            case tile.Dot():
                pass
            case tile.ProgramSum():
                lower_program_sum(self, op)
            case tile.FragmentWrite() if op in self.by_write:
                self.snapshot([op.frag], op)
                self.product(self.by_write[op])
            case _:
                super().op(op, split=split)

    def read_step(self, op: tile.Load) -> None:
        """A vector of a stage, unless it was read when the stage was full."""
        for pipeline in self.pipelines:
            for vector in pipeline.vectors:
                if vector.load is op and self.read_in_place(pipeline, vector):
                    self.read_vector(pipeline, vector)

    @staticmethod
    def within(pipeline: TilePipeline, op: tile.StreamLoop) -> bool:
        """The pipeline's block lies in the stream."""
        parent = pipeline.block.parent_op()
        return parent is not None and op.is_ancestor(parent)

    def deferred(self, pipeline: TilePipeline) -> bool:
        """Whether the pipeline's stages are released one iteration late."""
        return self.accumulating(pipeline.block.parent_op())

    def accumulating(self, op: Operation | None) -> bool:
        """Whether a stream's body only adds products to fragments."""
        return op in self.accumulations

    # -- products -------------------------------------------------------------------------------------------------
    def product(self, plan: DotPlan) -> None:
        """Emits one product, and waits for it unless its stream keeps it in flight."""
        buffer = self.accumulator(plan)
        if isinstance(plan.a, WidenedOperand):
            self.ordinary_product(plan, buffer, fresh=plan.write is None)
            return
        in_flight = self.keeps_in_flight(plan.dot.parent_op())
        left = self.left(plan)
        flies = self.accumulating(plan.dot.parent_op())
        beyond = rows_beyond(plan)
        if beyond is not None and beyond not in self.scope.full and not self.inside(beyond):
            self.wait_for_all()
            clear_rows(self, plan, {})
        if plan.write is not None and not flies:
            # Else the compiler behind us may move the sum's registers after the fence, and the assembler fences again.
            self.emit(t.Pin(buffer))
        ordered = plan.dot.parent_op() in self.configuration.ordered
        if ordered:
            self.emit(order_wait(Sym(a.WARPGROUP)))
        self.multiply(plan, buffer, left)
        if flies:
            self.in_flight[buffer] = Const(1)
            return
        if in_flight:
            self.commit_group([buffer, *([left[0]] if isinstance(plan.a, RegisterOperand) else [])])
            return
        self.emit(a.WgmmaCommit())
        if ordered:
            self.emit(order_arrive(Sym(a.WARPGROUP), self.configuration.candidate.warpgroups))
        held = [buffer] + ([left[0]] if isinstance(plan.a, RegisterOperand) else [])
        self.emit(a.WgmmaWait(0, held))
        if isinstance(plan.a, StagedOperand) or isinstance(plan.b, StagedOperand | ConvertedOperand):
            self.emit(t.Barrier())  # nobody writes the staged tiles again before all have multiplied

    def keeps_in_flight(self, stream: Operation | None) -> bool:
        """Products of this step are waited for where their results are needed. Those of steps with masks, for which no
        registers are left, are waited for at once."""
        if not isinstance(stream, tile.StreamLoop) or stream not in self.configuration.in_flight:
            return False
        return stream.axis.data in self.scope.full or self.inside(stream.axis.data)

    def walk_of(self, block: Block) -> list[Operation]:
        """A block's ops in the order in which they are lowered: products that stay in flight and read only copied tiles
        follow directly after the first one."""
        ops = list(block.ops)
        if not self.keeps_in_flight(block.parent_op()):
            return ops
        own = [op for op in ops if isinstance(op, tile.Dot)]
        ahead = [op for op in own[1:] if self.dots[op].write is None and isinstance(self.dots[op].a, AsyncOperand)]
        rest = [op for op in ops if op not in ahead]
        place = rest.index(own[0]) + 1
        return [*rest[:place], *ahead, *rest[place:]]

    def accumulator(self, plan: DotPlan) -> SSAValue:
        """Registers that a product goes to: its fragment's, or new ones."""
        if plan.write is not None:
            return self.scope.buffers[plan.write.frag].buffer
        dot = plan.dot
        axes = self.axes_of[dot.result]
        buffer = self.registers(hint(dot.result), element(dot.result), self.placement.home.registers(axes))
        self.scope.buffers[dot.result] = Buffered(buffer, axes)
        return buffer

    def multiply(self, plan: DotPlan, buffer: SSAValue, left: tuple[SSAValue, Expr] | None = None) -> None:
        """The instructions of a product, in the open group."""
        here, right = left or self.left(plan), self.shared_operand(plan.b, plan.dot)
        self.emit(a.WgmmaFence())
        digits, scale = self.placement.home.by_class, plan.write is not None
        for op in issue(plan, buffer, here, right, digits, self.axes_of, scale_first=scale):
            self.emit(op, plan.dot)

    def left(self, plan: DotPlan) -> tuple[SSAValue, Expr]:
        if isinstance(plan.a, RegisterOperand):
            return self.masked(plan.a.value, 1, plan.dot), Const(0)
        return self.shared_operand(plan.a, plan.dot)

    def shared_operand(self, operand: Operand, dot: tile.Dot) -> tuple[SSAValue, Expr]:
        """Buffer and byte offset of an operand's tile."""
        if isinstance(operand, AsyncOperand):
            pipeline, slot = self.copied[operand.load]
            return self.data[pipeline.name], self.stage(pipeline, Sym(counter(pipeline))) + slot.offset
        if isinstance(operand, ConvertedOperand):
            convert_tile(self, operand, dot, self.shared_operand(operand.source, dot))
            return self.converted_tiles[operand], Const(0)
        assert isinstance(operand, StagedOperand)
        return self.stage_value(operand, dot), Const(0)

    # -- streams --------------------------------------------------------------------------------------------------
    def stream(self, op: tile.StreamLoop, *, split: bool) -> None:
        if not self.accumulating(op):
            super().stream(op, split=split)
            return
        written = dict.fromkeys(w.frag for w in op.walk() if isinstance(w, tile.FragmentWrite))
        self.snapshot([f for f in written if f in self.scope.buffers], op)
        pipelines = [r for r in self.pipelines if r.block is op.body.block]
        block = Block()
        previous = {r.name: Sym(counter(r)) - 1 for r in pipelines}
        with self.into(block):
            self.body(op.body.block, split=False)
            self.emit(a.WgmmaCommit())
            self.emit(a.WgmmaWait(1))
            earlier = [op for r in pipelines for op in self.releases(r, previous[r.name])]
            release = a.Elected(t.block(earlier))
            self.emit(t.If(Sym(op.counter.data) > 0, t.block([release]), t.block()))
            for pipeline in pipelines:
                self.emit(a.Advance(counter(pipeline)))
        trip = op.trip.expr
        self.emit(t.For(op.counter.data, Const(0), trip, expr(1), Region(block)), op)
        if self.ping_pong is not None and op is self.ping_pong.last:
            self.emit(self.ping_pong.arrive())  # the others may multiply while the last group ends
        self.emit(a.WgmmaWait(0, list(self.in_flight)))
        self.in_flight.clear()
        last = [op for r in pipelines for op in self.releases(r, previous[r.name])]
        self.emit(t.If(trip > 0, t.block([a.Elected(t.block(last))]), t.block()))

    def step_ranges(self, op: tile.StreamLoop, first: int, *, split: bool) -> list[StepRange]:
        """The steps of a stream from ``first`` on: those that need no guards, then the rest."""
        span, trip, begin = op.axis.data, op.trip.expr, Const(first)
        leading = leading_steps(op)
        inside = span in self.scope.full or self.inside(span)
        if not split or (inside and leading is None):
            return [StepRange(begin, trip, op)]
        whole = trip
        if not inside:
            whole = minimum(whole, (span.stop - span.origin.substitute({op.counter.data: 0})) // span.size)
        if leading is not None:
            whole = minimum(whole, leading[0])
        holds = leading[1] if leading is not None else frozenset[SSAValue]()
        if simplify(whole - trip, self.placement.bounds) == Const(0):
            return [StepRange(begin, trip, op, whole=True, holds=holds)]
        if simplify(whole <= begin, self.placement.bounds) == TRUE:  # a loop without steps would be in no PTX
            return [StepRange(begin, trip, op)]
        name = f"{op.counter.data}_full"
        self.emit(t.Let(name, whole))
        return [
            StepRange(begin, Sym(name), op, whole=True, holds=holds),
            StepRange(maximum(Sym(name), begin), trip, op),
        ]

    @contextmanager
    def within_range(self, part: StepRange) -> Generator[None]:
        """What is known of every step of a part."""
        holds, self.holds = self.holds, self.holds | part.holds
        with self.within_domain([part.stream.axis.data] if part.whole else []):
            yield
        self.holds = holds

    def mapping(self, axes: tuple[ClassId | None, ...], *needed: SSAValue) -> MapBuilder:
        builder = super().mapping(axes, *needed)
        builder.holds = self.holds
        return builder

    def loops_of(self, op: tile.StreamLoop, *, split: bool) -> None:
        if self.accumulating(op):
            self.loop(op, Const(0), op.trip.expr, split=False)
            return
        software_pipeline = self.configuration.software_pipelines.get(op)
        if software_pipeline is not None:
            SoftwarePipelinedLoop(
                self, software_pipeline, {load: pipeline for load, (pipeline, _) in self.copied.items()}
            ).lower(split=split)
            return
        for part in self.step_ranges(op, 0, split=split):
            with self.within_range(part):
                self.loop(op, part.begin, part.end, split=split and part.whole)

    def trivial(self, value: SSAValue) -> bool:
        source, _ = source_of(value) if isinstance(value.type, tile.TileType) and value.type.rank == 2 else (value, ())
        load = owner(source)
        if isinstance(load, tile.Load | tile.Gather) and load in self.copied and not other_uses(load):
            return True
        if isinstance(load, tile.Cast) and self.is_converted(load):
            return True
        return super().trivial(value)

    def is_converted(self, op: tile.Cast) -> bool:
        """Whether the op is the cast of a tile that is converted in shared memory."""
        return any(operand.cast is op for operand in self.converted_tiles)

    def live(self, axes: Sequence[ClassId | None], spans: Sequence[Span | None]) -> Expr:
        """Every register is computed: accumulators are spread over all rows and columns of a tile."""
        return TRUE

    # -- stores ---------------------------------------------------------------------------------------------------
    def store(self, op: tile.Store | tile.AtomicReduce) -> None:
        """Stores a tile, behind a test for rows where it may be empty."""
        loaded = {bind.symbol.data for bind in self.loaded_bounds.binds}
        spans = (c for c in coords_of(op) if isinstance(c, Span))
        some = all_of(s.origin < s.stop for s in spans if not loaded.isdisjoint(s.origin.symbols | s.stop.symbols))
        if some == TRUE:
            self.store_tile(op)
            return
        block, outer = Block(), self.scope
        self.scope = LoweringScope(outer.full, dict(outer.buffers))
        with self.into(block):
            self.store_tile(op)
        self.scope = outer
        self.emit(t.If(some, Region(block), t.block()), op)

    def store_tile(self, op: tile.Store | tile.AtomicReduce) -> None:
        """A store whose tile has elements."""
        plan = self.configuration.stores.get(op) if isinstance(op, tile.Store) else None
        if plan is not None:
            plan.lower(self)
        elif self.chunked(op):
            self.prepare(op)
            self.store_chunks(op)
        else:
            super().store(op)
