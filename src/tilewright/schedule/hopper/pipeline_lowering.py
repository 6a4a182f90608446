"""Lowers the pipelines of a kernel: declares barriers and maps, fills stages in the producer, waits for and releases
them in consumers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from types import MappingProxyType

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, conjuncts, own
from tilewright.lang.axes import Span
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.clusters import origins
from tilewright.schedule.hopper.configuration import ScheduleConfiguration
from tilewright.schedule.hopper.epilogue_tiles import warpgroup_barrier
from tilewright.schedule.hopper.operands import (
    FEW_ROWS,
    ConvertedOperand,
    PagedOperand,
    ThreadCopiedOperand,
    TmaOperand,
    about_strides,
    encoded_strides,
    index_value,
    map_axes,
)
from tilewright.schedule.hopper.register_staged import RegisterStagedOperands
from tilewright.schedule.hopper.stage_vectors import StageVector, vector_copies
from tilewright.schedule.hopper.thread_copy_producer import gathered_copies, producer_copies, row_count, row_integers
from tilewright.schedule.hopper.tile_pipelines import TilePipeline
from tilewright.schedule.map_builder import Buffered
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import coords_of, element, spans_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_READ_BYTES = 16
"""The most that a thread reads of shared memory at once, where every buffer begins at a multiple of it."""


class PipelineLowering(RegisterStagedOperands):
    """Lowers both sides of pipelines."""

    def __init__(
        self, kernel: tile.Kernel, placement: Placement, facts: CallFacts, configuration: ScheduleConfiguration
    ):
        super().__init__(kernel, placement, facts, configuration)
        self.pipelines = configuration.pipelines
        self.data: dict[str, SSAValue] = {}
        self.full: dict[str, SSAValue] = {}
        self.empty: dict[str, SSAValue] = {}
        self.steps: dict[tile.Load, SSAValue] = {}
        """Shared memory of the vectors that are brought to stages."""
        self.rows: dict[tile.Gather, SSAValue] = {}
        """Registers of the producer's threads that hold where the rows of gathered tiles lie."""
        self.maps: dict[tuple[Operation, tuple[int, ...]], SSAValue] = {}
        self.guards: list[Expr] = []

    def declare(self) -> None:
        """Shared buffers, barriers and maps of the pipelines."""
        for pipeline in self.pipelines:
            dtype = element(pipeline.slots[0].copied.load.results[0])
            data = t.Shared(pipeline.name, dtype, pipeline.stages * pipeline.stage_bytes // dtype.bytes, 0)
            full = a.Mbarriers(f"{pipeline.name}_full", pipeline.stages, arrivals(pipeline))
            empty = a.Mbarriers(
                f"{pipeline.name}_empty",
                pipeline.stages,
                self.configuration.candidate.warpgroups * (1 + len(self.others(pipeline))),
            )
            self.declarations += [data, full, empty]
            self.data[pipeline.name] = data.buffer
            self.full[pipeline.name], self.empty[pipeline.name] = full.bars, empty.bars
            for slot in pipeline.slots:
                if isinstance(slot.copied, TmaOperand):
                    self.tensor_map(slot.copied.load, self.map_of(slot.copied))
            for vector in pipeline.vectors:
                load = vector.load
                name, count = f"{tensor_name(load)}_steps", pipeline.stages * vector.size
                stages = t.Shared(name, element(load.result), count, None if vector.map is None else 0)
                self.declarations.append(stages)
                self.steps[load] = stages.buffer
                if vector.map is not None:
                    self.tensor_map(load, vector.map)

        for operand in (plan.b for plan in self.configuration.dots if isinstance(plan.b, ConvertedOperand)):
            kind, held = element(operand.cast.result), operand.plan.shared
            tile_ = t.Shared(f"{tensor_name(operand.source.load)}_tile", kind, held.size_bytes // kind.bytes, 0)
            self.declarations.append(tile_)
            self.converted_tiles[operand] = tile_.buffer

    @property
    def thread_copied(self) -> bool:
        """The producer's threads copy something, all of them: nothing of theirs is left to an elected one alone."""
        return any(pipeline.thread_copied or pipeline.copied_vectors for pipeline in self.pipelines)

    def map_of(self, copied: TmaOperand) -> TensorMapPlan:
        """The map through which a CTA fetches its share of a tile."""
        share = self.configuration.shares.get(copied.load)
        return copied.map if share is None else share.map

    def others(self, pipeline: TilePipeline) -> tuple[Expr, ...]:
        """Ranks of the other CTAs that fill a pipeline's stages."""
        if self.configuration.cluster is None:
            return ()
        return self.configuration.cluster.others(self.configuration.shares[s.copied.load] for s in pipeline.slots)

    def tensor_map(self, op: tile.Load | tile.Gather | tile.Store, plan: TensorMapPlan) -> SSAValue:
        """Declares the map through which an access copies boxes of one size, once."""
        if (op, plan.box) in self.maps:
            return self.maps[op, plan.box]
        declared = a.TensorMap(
            self.arguments[op.tensor],
            f"{tensor_name(op)}_map{sum(isinstance(d, a.TensorMap) for d in self.declarations)}",
            data_type=int(plan.data_type),
            address=plan.address,
            dims=plan.dims,
            strides_bytes=encoded_strides(plan),
            box=plan.box,
            axes=map_axes(plan),
            swizzle=int(plan.swizzle),
            l2_promotion=int(plan.l2_promotion),
            ragged_axis=plan.ragged_axis,
        )
        self.declarations.append(declared)
        # what the encoding of the map needs; what the copies need besides is the access' own condition
        self.guards += [g for g in conjuncts(plan.guard) if not isinstance(op, tile.Store) or about_strides(g)]
        if isinstance(op, tile.Load):
            self.guards += _filled(op)
            if plan.ragged_axis is not None:
                self.require(tile.tensor_type(op.tensor).dims.data[plan.ragged_axis].expr <= FEW_ROWS)
        self.maps[op, plan.box] = declared.map
        return declared.map

    def rendezvous(self) -> list[Operation]:
        """A barrier of all threads that share mbarriers: those of the CTA, or of the cluster."""
        shared = any(share.receivers for share in self.configuration.shares.values())
        return [a.ClusterArrive(), a.ClusterWait()] if shared else [t.Barrier()]

    def role_end(self) -> list[Operation]:
        """The end of a role: in a cluster no CTA exits while others may arrive at its barriers or read its shared
        memory."""
        return [] if self.configuration.cluster is None else [a.ClusterArrive(), a.ClusterWait()]

    # -- stages ---------------------------------------------------------------------------------------------------
    def stage(self, pipeline: TilePipeline, use: Expr) -> Expr:
        """Byte offset of the stage of use ``use``."""
        return use % pipeline.stages * pipeline.stage_bytes if pipeline.stages > 1 else Const(0)

    def fill(self, pipeline: TilePipeline, at: Mapping[str, Expr] = MappingProxyType({})) -> None:
        """The producer's part of one use, of the tiles where counters have the values ``at``."""
        use = Sym(counter(pipeline))
        slot_index = use % pipeline.stages
        for slot in pipeline.slots:
            if isinstance(slot.copied, PagedOperand):
                self.load_pages(pipeline, slot.copied, at)
            elif isinstance(slot.copied, ThreadCopiedOperand) and slot.copied.rows and slot.copied.rows.moves:
                self.load_integers(slot.copied, at)
        all_copy = bool(pipeline.thread_copied or pipeline.copied_vectors)
        if all_copy:
            self.await_empty(pipeline)
        block = Block()
        with self.into(block):
            if not all_copy:  # threads that do not arrive on a full barrier could miss a phase of its empty one
                self.await_empty(pipeline)
            if pipeline.tx_bytes:
                self.emit(a.MbarrierArriveExpectTx(self.full[pipeline.name], slot_index, pipeline.tx_bytes))
            for slot in pipeline.slots:
                if isinstance(slot.copied, PagedOperand):
                    self.fetch_pages(pipeline, slot.copied, slot.offset, use, at)
                elif isinstance(slot.copied, TmaOperand):
                    self.fetch(pipeline, slot.copied, slot.offset, use, at)
            for vector in pipeline.vectors:
                if vector.map is not None:
                    self.fetch_vector(pipeline, vector, vector.map, use)
        if self.thread_copied and block.ops:
            self.emit(a.Elected(Region(block)))
        else:
            for op in list(block.ops):
                op.detach()
                self.block.add_op(op)
        if all_copy:
            self.copy_by_threads(pipeline, use, at)
        self.emit(a.Advance(counter(pipeline)))

    def await_empty(self, pipeline: TilePipeline) -> None:
        """The producer's wait for a released stage."""
        use = Sym(counter(pipeline))
        slot_index = use % pipeline.stages
        self.emit(a.MbarrierWait(self.empty[pipeline.name], slot_index, (use // pipeline.stages + 1) % 2))

    def copy_by_threads(self, pipeline: TilePipeline, use: Expr, at: Mapping[str, Expr]) -> None:
        """The copies of all producer threads, and their arrivals on completion."""
        full, index = self.full[pipeline.name], use % pipeline.stages
        for vector in pipeline.copied_vectors:
            begin = index * (vector.size * element(vector.load.result).bytes)
            tensor, shared = self.arguments[vector.load.tensor], self.steps[vector.load]
            self.emit(vector_copies(vector, tensor, shared, begin), vector.load)
        for asynchronous in (True, False):
            for operand, place in ((s.copied, s.offset) for s in pipeline.thread_copied):
                if isinstance(operand, ThreadCopiedOperand) and operand.asynchronous is asynchronous:
                    for copies in self.tile_copies(pipeline, operand, self.stage(pipeline, use) + place, at):
                        self.emit(copies, operand.load)
            if asynchronous and pipeline.uses_cp_async:
                self.emit(a.CpAsyncMbarrierArrive(full, index))
        if pipeline.uses_loads:  # generic writes, which wgmma reads through the asynchronous proxy
            self.emit(a.FenceProxyAsync())
            self.emit(a.MbarrierArrive(full, index))

    def tile_copies(
        self, pipeline: TilePipeline, operand: ThreadCopiedOperand, begin: Expr, at: Mapping[str, Expr]
    ) -> Iterator[a.ThreadCopies]:
        """The copies of one tile to byte ``begin`` of a pipeline's buffer."""
        tensor, shared, rows = self.arguments[operand.load.tensor], self.data[pipeline.name], operand.rows
        if rows is None:
            return producer_copies(operand, tensor, shared, begin, at, self.placement.bounds)
        dims = (d.expr for d in tile.tensor_type(rows.gather.tensor).dims)
        others = [
            (c.substitute(at), dim)
            for d, (c, dim) in enumerate(zip(rows.coords, dims, strict=True))
            if not isinstance(c, Span) and d != rows.dimension
        ]
        inside = [test for c, dim in others if not self.is_below(c, dim) for test in (Const(0) <= c, c < dim)]
        return gathered_copies(operand, tensor, shared, self.rows[rows.gather], begin, at, inside)

    def load_rows(self, op: Operation) -> None:
        """The integers that name the rows of the tiles that are copied at ``op``, or inside of it."""
        for operand in (slot.copied for pipeline in self.pipelines for slot in pipeline.thread_copied):
            rows = operand.rows if isinstance(operand, ThreadCopiedOperand) else None
            named = rows is not None and not rows.moves and op.is_ancestor(rows.gather)
            if isinstance(operand, ThreadCopiedOperand) and named:
                self.load_integers(operand, {})

    def load_integers(self, operand: ThreadCopiedOperand, at: Mapping[str, Expr]) -> None:
        """The integers that name the rows of one tile, where counters have the values ``at``."""
        rows = operand.rows
        assert rows is not None
        buffer = self.registers(tensor_name(rows.load), element(rows.load.result), row_count(operand))
        self.emit(row_integers(operand, self.arguments[rows.load.tensor], buffer, at), rows.load)
        self.rows[rows.gather] = buffer

    def fetch(self, pipeline: TilePipeline, copied: TmaOperand, place: int, use: Expr, at: Mapping[str, Expr]) -> None:
        """The tensor copies of one tile into the stage of ``use``, or of this CTA's share of it."""
        load, plan, share = copied.load, self.map_of(copied), self.configuration.shares.get(copied.load)
        assert isinstance(load, tile.Load)
        first = [index_value(c, coords_of(load)).substitute(at) for c in plan.coordinates]
        offset = self.stage(pipeline, use) + place
        if share is not None and share.parts > 1:
            first[1] = first[1] + share.place * share.rows
            offset = offset + share.place * share.bytes
        ctas = share.receivers if share is not None else ()
        once = not ctas and self.read_once(load)
        self.copy_boxes(pipeline, self.data[pipeline.name], load, plan, first, offset, use, ctas, evict_first=once)

    def read_once(self, load: tile.Load) -> bool:
        """Whether no program loads elements of this tile that another one has loaded long before."""
        axes = len(self.kernel.grid)
        others = {program_index(axis) for axis in range(axes) if axis != axes - 2}
        return self.configuration.candidate.one_wave or (
            self.configuration.candidate.one_row and others <= origins(load)
        )

    def fetch_vector(self, pipeline: TilePipeline, vector: StageVector, plan: TensorMapPlan, use: Expr) -> None:
        """The tensor copies of one vector into the stage of ``use``."""
        load = vector.load
        first = [index_value(c, coords_of(load)) for c in plan.coordinates]
        begin = use % pipeline.stages * (vector.size * element(load.result).bytes)
        self.copy_boxes(pipeline, self.steps[load], load, plan, first, begin, use)

    def copy_boxes(
        self,
        pipeline: TilePipeline,
        shared: SSAValue,
        load: tile.Load | tile.Gather,
        plan: TensorMapPlan,
        first: Sequence[Expr],
        offset: Expr,
        use: Expr,
        ctas: Sequence[Expr] = (),
        *,
        evict_first: bool = False,
    ) -> None:
        """The copies of a map's boxes, the first of which begins at ``first``, to byte ``offset`` of ``shared``."""
        for box in plan.boxes:
            copy = a.TmaLoad(
                self.maps[load, plan.box],
                shared,
                self.full[pipeline.name],
                coords=[c + s for c, s in zip(first, box.start, strict=True)],
                offset=offset + box.shared_offset_bytes,
                index=use % pipeline.stages,
                box_bytes=plan.box_bytes,
                ctas=ctas,
                evict_first=evict_first,
            )
            self.emit(copy, load)

    def load_pages(self, pipeline: TilePipeline, copied: PagedOperand, at: Mapping[str, Expr]) -> None:
        """Loads the table's entries for the pages of one tile; none for pages beyond the domain."""
        pages = copied.pages
        table, dims = pages.table, tile.tensor_type(pages.table.tensor).dims.data
        for box in range(pages.boxes):
            row = pages.span.origin + box * pages.rows
            entry = [c.substitute(at) for c in pages.entry(row)]
            inside = [
                test
                for c, dim in zip(entry, (d.expr for d in dims), strict=True)
                if not self.is_below(c, dim)
                for test in (Const(0) <= c, c < dim)
            ]
            load = a.LoadCoordinate(
                page_symbol(pipeline, copied, box),
                self.arguments[table.tensor],
                coords=entry,
                guard=all_of([(row < pages.span.stop).substitute(at), *inside]),
                extent=tile.tensor_type(copied.load.tensor).dims.data[pages.number].expr,
            )
            self.emit(load, copied.load)

    def is_below(self, coord: Expr, dim: Expr) -> bool:
        """Whether a coordinate is a program's, or a clipped integer, and so below an extent."""
        below = {program_index(i): g.expr for i, g in enumerate(self.kernel.grid)}
        binds = (op for op in self.kernel.walk() if isinstance(op, tile.Bind))
        below |= {op.symbol.data: op.most.expr + 1 for op in binds if op.most is not None}
        return isinstance(coord, Sym) and below.get(coord.name) == dim

    def fetch_pages(
        self, pipeline: TilePipeline, copied: PagedOperand, place: int, use: Expr, at: Mapping[str, Expr]
    ) -> None:
        """The tensor copies of one tile's pages into the stage of ``use``."""
        pages, plan, held = copied.pages, copied.map, copied.shared
        coords = [c.expr for c in pages.gather.coords]
        spans = spans_of(pages.gather.result)
        for number in range(pages.boxes):
            row = pages.span.origin.substitute(at) + number * pages.rows
            own: list[Expr] = []
            for dim, (coord, axis) in enumerate(zip(coords, pages.axes, strict=True)):
                span = None if axis is None else spans[axis]
                if dim == pages.number:
                    own.append(Sym(page_symbol(pipeline, copied, number)))
                elif dim == pages.slot:
                    own.append(row % pages.page)
                else:
                    own.append((coord if span is None else span.origin).substitute(at))
            first = [index_value(c, own) for c in plan.coordinates]
            panels = [divmod(box.shared_offset_bytes, plan.shared.panel_bytes) for box in plan.boxes]
            begins = [panel * held.panel_bytes + number * pages.rows * held.row_bytes + rest for panel, rest in panels]
            boxes = tuple(replace(b, shared_offset_bytes=begin) for b, begin in zip(plan.boxes, begins, strict=True))
            offset = self.stage(pipeline, use) + place
            self.copy_boxes(
                pipeline, self.data[pipeline.name], copied.load, replace(plan, boxes=boxes), first, offset, use
            )

    def await_full(self, pipeline: TilePipeline) -> None:
        """The consumers' wait for the tiles of one use."""
        use = Sym(counter(pipeline))
        self.emit(a.MbarrierWait(self.full[pipeline.name], use % pipeline.stages, use // pipeline.stages % 2))
        if pipeline.cp_async_tiles:  # what cp.async wrote; who copied has not waited for it
            self.emit(a.FenceProxyAsync())
        for vector in pipeline.vectors:
            if not self.read_in_place(pipeline, vector):
                self.read_vector(pipeline, vector)

    def read_in_place(self, pipeline: TilePipeline, vector: StageVector) -> bool:
        """Whether the vector is read at its load, between the first and the last product of its stage. With ordered
        warpgroups all vectors are read before the products."""
        index = pipeline.block.get_operation_index
        inside = index(pipeline.first) < index(vector.load) < index(pipeline.last)
        return inside and pipeline.block.parent_op() not in self.configuration.ordered

    def read_vector(self, pipeline: TilePipeline, vector: StageVector) -> None:
        """Reads this step's elements to registers."""
        load, home = vector.load, self.placement.home
        axes = self.axes_of[load.result]
        buffer = self.registers(tensor_name(load), element(load.result), home.registers(axes))
        places = home.coordinates(axes, Sym(t.THREAD), Sym(t.REGISTER))
        begin = Sym(counter(pipeline)) % pipeline.stages * vector.size
        (together,) = [home.by_class[c].vector for c in axes if c is not None] or [1]
        width = gcd(together, vector.size, _READ_BYTES // element(load.result).bytes)
        self.emit(t.SharedRead(self.steps[load], buffer, sum(places, begin), TRUE, vector=width), load)
        self.scope.buffers[load.result] = Buffered(buffer, axes)

    def release(self, pipeline: TilePipeline, use: Expr) -> None:
        """One thread of each consumer warpgroup gives the stage of ``use`` back, once all have read its vectors."""
        if pipeline.vectors and pipeline.block.parent_op() not in self.configuration.ordered:
            if any(vector.map is not None for vector in pipeline.vectors):
                self.emit(a.FenceProxyAsync())  # what threads have read is overwritten by tensor copies
            self.emit(warpgroup_barrier(self))
        self.emit(a.Elected(t.block(self.releases(pipeline, use))))

    def releases(self, pipeline: TilePipeline, use: Expr) -> list[Operation]:
        """Arrivals at the empty barriers of all CTAs that fill the stage of ``use``."""
        bars, index = self.empty[pipeline.name], use % pipeline.stages
        return [a.MbarrierArrive(bars, index), *(a.MbarrierArrive(bars, index, rank) for rank in self.others(pipeline))]


def arrivals(pipeline: TilePipeline) -> int:
    """Arrivals that complete a full barrier: one for all TMA copies, one of each thread that copies."""
    return (1 if pipeline.tx_bytes else 0) + a.WARPGROUP_THREADS * (pipeline.uses_cp_async + pipeline.uses_loads)


def _filled(load: tile.Load) -> Iterator[Expr]:
    """A tensor map has no extent of 0, so a copy outside of loops over an axis requires at least one element along
    it."""
    for coord, dim in zip(coords_of(load), tile.tensor_type(load.tensor).dims, strict=True):
        if isinstance(coord, Span) and coord.origin.constant is not None and dim.expr.constant is None:
            yield Const(0) < dim.expr


def page_symbol(pipeline: TilePipeline, copied: PagedOperand, box: int) -> str:
    """The symbol of the page of box ``box``."""
    slot = next(n for n, s in enumerate(pipeline.slots) if s.copied is copied)
    return own(f"page_{pipeline.name}{slot}_{box}")


def counter(pipeline: TilePipeline) -> str:
    """The counter of a pipeline's uses."""
    return own(f"i_{pipeline.name}")
