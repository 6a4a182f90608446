"""Software-pipelined streams: the last product of a step is issued in the next one, beside that step's first product.

A step of attention is S = Q K, a softmax, O += P V. Pipelined, step i issues S of i and O += P V of i - 1 together, and
the softmax of i runs while the second is under way::

    for i = 0:       S[0] | softmax                       (in causal attention twice: without masks, or with them)
    for i = 1 ..:    S[i], O += P[i-1] V[i-1] | wait for S | softmax | wait for O | what changes O, P
    at the end:      O += P[last] V[last]

Warpgroups that share a tile alternate in issuing, so that one's softmax runs under the other's products.
(Shah et al., FlashAttention-3, 2024, sections 3.1 and 3.2.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Sym, expr, maximum, minimum
from tilewright.schedule.hopper.configuration import RoleContext, SoftwarePipeline, StepRange
from tilewright.schedule.hopper.mask_free_steps import always, leading_steps, whole_first_step, whole_steps
from tilewright.schedule.hopper.operands import AsyncOperand, DotPlan, RegisterOperand, accumulation
from tilewright.schedule.hopper.ping_pong import order_arrive, order_wait
from tilewright.schedule.hopper.pipeline_lowering import counter
from tilewright.schedule.hopper.tails import clear_rows, rows_beyond
from tilewright.schedule.hopper.tile_pipelines import TilePipeline, copied_tiles, other_uses
from tilewright.tile import dialect as tile
from tilewright.tile.queries import defining, element, hint, is_elementwise, owner, spans_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_SHAPES = (tile.Expand, tile.Broadcast, tile.Transpose)


def reordered(kernel: tile.Kernel) -> tile.Kernel | None:
    """A copy in which all ops on the fragment of a stream's last product stand at the end of its body; None where no
    stream has two products of which the last can wait."""
    if not pipelined_streams(kernel):
        return None
    copy = kernel.clone()
    for stream in [op for op in copy.walk() if isinstance(op, tile.StreamLoop)]:
        body = stream.body.block
        for op in _moving(stream):
            op.detach()
            assert body.last_op is not None
            body.insert_op_before(op, body.last_op)
    return copy


def pipelined_streams(kernel: tile.Kernel) -> list[tile.StreamLoop]:
    """The streams with two products of which the last can be delayed."""
    return [op for op in kernel.walk() if isinstance(op, tile.StreamLoop) and _moving(op)]


def _moving(stream: tile.StreamLoop) -> list[Operation]:
    """The ops that move to the end of a stream's body, in their new order: the second of two products, and all ops on
    the fragment it is added to. Empty where it cannot be delayed."""
    body = stream.body.block
    dots = [op for op in body.ops if isinstance(op, tile.Dot)]
    write = accumulation(dots[-1]) if len(dots) == 2 else None
    own = None if write is None else _touching(body, write.frag)
    if write is None or own is None:
        return []
    total = defining(write.value)
    closing = {write, total, *(owner(v) for v in total.operands)}
    return [*(o for o in own if o not in closing), dots[-1], *(o for o in own if o in closing)]


def _touching(block: Block, fragment: SSAValue) -> list[Operation] | None:
    """Ops of a block on a fragment and what is computed from it, in order; None where it flows into anything else."""
    own: list[Operation] = []
    for op in block.ops:
        mine = isinstance(op, tile.FragmentRead | tile.FragmentWrite) and op.frag == fragment
        if not mine and not any(v.owner in own for v in op.operands):
            continue
        if not (mine or is_elementwise(op)):
            return None
        own.append(op)
    for op in reversed(list(block.ops)):  # shapes of smaller values go along: they cost nothing where they are needed
        if isinstance(op, _SHAPES) and op not in own and all(u.operation in own for u in op.results[0].uses):
            own.append(op)
    return sorted(own, key=block.get_operation_index)


def software_pipelines(kernel: tile.Kernel, dots: Sequence[DotPlan]) -> dict[tile.StreamLoop, SoftwarePipeline]:
    """The streams of a reordered kernel that can be software-pipelined, their tiles brought by copies."""
    found: dict[tile.StreamLoop, SoftwarePipeline] = {}
    for stream in [op for op in kernel.walk() if isinstance(op, tile.StreamLoop)]:
        plans = [p for p in dots if stream.is_ancestor(p.dot)]
        if len(plans) != 2 or any(p.dot.parent_op() is not stream for p in plans):
            continue
        early, late = plans
        brought = all(isinstance(operand, AsyncOperand) for operand in (early.a, early.b, late.b))
        alone = not any(other_uses(load) for load in copied_tiles(plans)) and _tile(early) is not _tile(late)
        own = _touching(stream.body.block, late.write.frag) if late.write is not None else None
        if not (brought and alone and early.write is None and isinstance(late.a, RegisterOperand) and own):
            continue
        tail = [op for op in list(stream.body.block.ops)[-len(own) - 2 : -1] if op is not late.dot]
        if tail != own:
            continue
        chain = [op for op in own if op is not late.write]
        found[stream] = SoftwarePipeline(stream, early, late, tuple(chain))
    return found


def _tile(plan: DotPlan) -> tile.Load | tile.Gather | None:
    """The copied tile on a product's right."""
    return plan.b.load if isinstance(plan.b, AsyncOperand) else None


class SoftwarePipelinedLoop:
    """Lowers one software-pipelined stream, in the producer or in the consumers."""

    def __init__(
        self,
        lowering: RoleContext,
        software_pipeline: SoftwarePipeline,
        pipelines: Mapping[tile.Load | tile.Gather, TilePipeline],
    ):
        self.lowering, self.software_pipeline = lowering, software_pipeline
        self.counter, self.trip = software_pipeline.stream.counter.data, software_pipeline.stream.trip.expr
        early, late = software_pipeline.early.b, software_pipeline.late.b
        assert isinstance(early, AsyncOperand)
        assert isinstance(late, AsyncOperand)
        self.early_pipeline, self.late_pipeline = pipelines[early.load], pipelines[late.load]

    def lower(self, *, split: bool) -> None:
        """The loop and what stands before and after it. Where a stream may have no steps these are loops too, of one
        iteration or none, so that uses of pipelines are counted by loops in any case."""
        low, stream = self.lowering, self.software_pipeline.stream
        whole = leading_steps(stream) is not None and self.asked(whole_steps(low.kernel, stream))
        with low.within_domain([stream.axis.data] if whole else []):
            self.lower_parts(split=split)

    def lower_parts(self, *, split: bool) -> None:
        """The loop with what is known of the stream's domain."""
        low, stream = self.lowering, self.software_pipeline.stream
        filled = always(low.kernel, stream, low.placement.bounds)
        held = None if low.producing else self.operand()
        one = Const(1) if filled is not None else minimum(self.trip, 1)
        opening, others = self.parts(one, split=split)
        for part in opening:
            with low.within_range(part):
                self.loop(part.begin, part.end, lambda: self.first(held))
        for part in others:
            with low.within_range(part):
                self.loop(part.begin, part.end, lambda: self.step(held, split=split and part.whole))  # noqa: B023
        if not low.producing:
            for pipeline in low.read_before_drain(stream):
                low.end_use(pipeline)
        if filled is not None:
            low.require(filled)
            self.drain(held, {self.counter: self.trip - 1})
        else:
            self.loop(maximum(self.trip - 1, 0), self.trip, lambda: self.drain(held, {}))

    def parts(self, one: Expr, *, split: bool) -> tuple[Sequence[StepRange], Sequence[StepRange]]:
        """The first step of the stream, ``0 .. one``, and the others.

        Where comparisons hold in leading steps the first is lowered twice, as one of those and as one of the rest: no
        product of a step before hides its masks, and whether it needs them depends on the program (H200, causal
        attention of 512 keys 113 us instead of 121, of 4,096 448 instead of 457).
        """
        low, stream = self.lowering, self.software_pipeline.stream
        if not split or leading_steps(stream) is None:
            first = StepRange(Const(0), one, stream, whole=self.asked(whole_first_step(low.kernel, stream)))
            return [first], low.step_ranges(stream, 1, split=split)
        ranges = low.step_ranges(stream, 0, split=split)
        if len(ranges) == 1:
            return [replace(ranges[0], end=one)], [replace(ranges[0], begin=Const(1))]
        leading, rest = ranges
        name = f"{self.counter}_first"
        low.emit(t.Let(name, minimum(leading.end, one)))
        opening = replace(leading, end=Sym(name)), replace(rest, begin=maximum(Sym(name), 0), end=one)
        return opening, (replace(leading, begin=Const(1)), replace(rest, begin=maximum(rest.begin, 1)))

    def asked(self, inside: Expr | None) -> bool:
        """Whether steps are known to lie inside of their domain, because the launch requires it."""
        if not self.lowering.configuration.candidate.whole_steps or inside is None:
            return False
        self.lowering.require(inside)
        return True

    def loop(self, begin: Expr, end: Expr, body: Callable[[], None]) -> None:
        """A loop over steps of the stream."""
        low, block = self.lowering, Block()
        low.loops += 1
        with low.into(block):
            body()
        low.loops -= 1
        low.emit(t.For(self.counter, begin, end, expr(1), Region(block)), self.software_pipeline.stream)

    def first(self, held: SSAValue | None) -> None:
        """The first step: only its early product."""
        if held is None:
            self.lowering.fill(self.early_pipeline)
        else:
            self.open(held)

    def step(self, held: SSAValue | None, *, split: bool) -> None:
        """The early product of a step and the late one of the preceding step."""
        if held is None:
            self.lowering.fill(self.early_pipeline)
            self.lowering.fill(self.late_pipeline, {self.counter: Sym(self.counter) - 1})
        else:
            self.multiply(held, split=split)

    # -- consumers ------------------------------------------------------------------------------------------------
    def operand(self) -> SSAValue:
        """Registers for the late product's left operand, which outlive a step."""
        value = self.software_pipeline.late.dot.a
        low = self.lowering
        return low.registers(hint(value), element(value), low.placement.home.registers(low.axes_of[value]))

    def open(self, held: SSAValue) -> None:
        """The consumers' first step."""
        low, software_pipeline = self.lowering, self.software_pipeline
        low.await_full(self.early_pipeline)
        low.product(software_pipeline.early)
        self.free(self.early_pipeline)
        self.run(software_pipeline.between, split=False)
        self.run(software_pipeline.apart, split=False)
        self.keep(held)

    def multiply(self, held: SSAValue, *, split: bool) -> None:
        """Both products are issued; what does not need the late one runs before it has ended."""
        low, software_pipeline = self.lowering, self.software_pipeline
        assert software_pipeline.late.write is not None
        ordered, place = low.configuration.candidate.warpgroups > 1, Sym(a.WARPGROUP)
        low.await_full(self.early_pipeline)
        if ordered:
            low.emit(order_wait(place))
        early = low.accumulator(software_pipeline.early)
        low.multiply(software_pipeline.early, early)
        low.emit(a.WgmmaCommit())
        low.await_full(self.late_pipeline)
        late = low.accumulator(software_pipeline.late)
        low.multiply(software_pipeline.late, late, (held, Const(0)))
        low.emit(a.WgmmaCommit())
        if ordered:
            low.emit(order_arrive(place, low.configuration.candidate.warpgroups))
        low.emit(a.WgmmaWait(1, [early]))
        self.free(self.early_pipeline)
        self.run(software_pipeline.between, split=split)
        low.emit(a.WgmmaWait(0, [late, held]))
        self.free(self.late_pipeline)
        self.run(software_pipeline.apart, split=split)
        self.keep(held)

    def drain(self, held: SSAValue | None, last: Mapping[str, Expr]) -> None:
        """The late product of the last step, whose counter has the value ``last`` says."""
        low, software_pipeline = self.lowering, self.software_pipeline
        if held is None:
            low.fill(self.late_pipeline, last)
            return
        late = low.accumulator(software_pipeline.late)
        low.await_full(self.late_pipeline)
        beyond = rows_beyond(software_pipeline.late)
        if beyond is not None and beyond not in low.scope.full:
            clear_rows(low, software_pipeline.late, last, last=True)
        low.multiply(software_pipeline.late, late, (held, Const(0)))
        low.emit(a.WgmmaCommit())
        low.emit(a.WgmmaWait(0, [late, held]))
        self.free(self.late_pipeline)

    def run(self, ops: Sequence[Operation], *, split: bool) -> None:
        for op in ops:
            self.lowering.op(op, split=split)

    def free(self, pipeline: TilePipeline) -> None:
        """Ends one use of a pipeline."""
        self.lowering.release(pipeline, Sym(counter(pipeline)))
        self.lowering.emit(a.Advance(counter(pipeline)))

    def keep(self, held: SSAValue) -> None:
        """Computes the left operand of the late product, zero beyond its domain."""
        low, dot = self.lowering, self.software_pipeline.late.dot
        value, axes, spans = dot.a, low.axes_of[dot.a], spans_of(dot.a)
        wide = value.owner.x if isinstance(value.owner, tile.Cast) and element(value).is_float else value
        builder = low.mapping(axes, wide)
        result = builder.value(wide)
        valid = low.valid([axes[1]], [spans[1]], [builder.coordinate(axes[1])])
        if valid != TRUE:  # before it is rounded: two elements are rounded and packed by one instruction
            result = builder.select(valid, result, builder.constant(0.0, element(wide)))
        result = builder.cast(result, element(value))
        low.finish(builder, [result], [held], dot, spans, constant=False)
