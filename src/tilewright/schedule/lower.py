"""Lowers Tile IR to Transport IR with a plain schedule: one program per CTA, synchronous copies, CTA barriers.

Element-wise values are computed where they are needed (a reduction, a store, a write to a fragment), fused into one map
over the buffers they depend on; values with several such uses are kept in registers.

Where threads hold several elements the body is lowered twice: without guards for programs whose ranges lie inside their
domains, and with guards for those at an edge. In the first, the last, partial step of a stream is split off likewise.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import Block, Operation, Region

from tilewright.base.expr import TRUE, Sym, all_of
from tilewright.schedule.histogram import count, lower_histogram
from tilewright.schedule.loops import LoopLowering
from tilewright.schedule.misaligned_rows import SYMBOL
from tilewright.schedule.reduce import Reduction
from tilewright.schedule.relayout import Relayout
from tilewright.schedule.scan import ScanLowering
from tilewright.schedule.sort import SortLowering
from tilewright.schedule.transforms.numerics import contracted
from tilewright.schedule.values import LoweringScope
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import (
    spans_of,
)
from tilewright.transport import dialect as t

TID, R = Sym(t.THREAD), Sym(t.REGISTER)


class Lowering(LoopLowering):
    """Lowers one tile kernel; ``run`` returns the transport kernel."""

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> t.Kernel:
        source, home = self.kernel, self.placement.home
        names = [n.data for n in source.arg_names]
        result = t.Kernel(
            source.sym_name.data,
            names,
            [a.type for a in source.body.block.args],
            target=self.placement.target,
            threads=home.threads,
            min_ctas=self.placement.min_ctas,
            index_bits=self.facts.index_bits,
            numerics=source.numerics.data.value,
            assumptions=self.placement.assumptions,
        )
        self.arguments = dict(zip(source.body.block.args, result.body.block.args, strict=True))
        grid = [g.expr for g in source.grid]
        body = Block()
        with self.into(body):
            if self.placement.skew is not None:
                self.emit(t.Let(SYMBOL, self.placement.skew.distance))
            self.bodies()
        programs = t.Programs(
            [program_index(i) for i in range(len(grid))], grid, self.placement.persistent, Region(body)
        )
        result.body.block.add_ops([*self.shared, programs])
        return contracted(result)

    def bodies(self) -> None:
        """Emits the interior body and the guarded body for programs at an edge."""
        spans = [s for s in self.placement.program_spans if not self.inside(s)]
        if self.placement.skew is not None:  # its vectors are guarded at both ends in any body
            spans = [s for s in spans if s not in self.skewed_spans(self.placement.skew)]
        condition = all_of(s.origin + s.size <= s.stop for s in spans)
        if prod(count for _, count, _ in self.placement.home.register_order) == 1:
            self.body(self.kernel.body.block, split=False)  # the guard of an element costs what a test of the tile does
            return
        if condition == TRUE or not spans:
            self.scope.full |= frozenset(spans)
            self.body(self.kernel.body.block, split=True)
            return
        then, otherwise = Block(), Block()
        outer = self.scope
        self.scope = LoweringScope(outer.full | frozenset(spans), dict(outer.buffers))
        shared = len(self.shared)
        with self.into(then):
            self.body(self.kernel.body.block, split=True)
        self.spare = self.shared[shared:]
        self.scope = LoweringScope(outer.full, dict(outer.buffers))
        with self.into(otherwise):
            self.body(self.kernel.body.block, split=False)
        self.spare = []
        self.scope = outer
        self.emit(t.If(condition, Region(then), Region(otherwise)))

    def body(self, block: Block, *, split: bool) -> None:
        for op in block.ops:
            self.op(op, split=split)

    def op(self, op: Operation, *, split: bool) -> None:
        match op:
            case tile.Load():
                self.load(op)
            case tile.Store() | tile.AtomicReduce():
                self.store(op)
            case tile.Gather():
                self.gather(op)
            case tile.Scatter() | tile.ScatterReduce():
                self.scatter(op)
            case tile.FragmentInit():
                self.fragment(op)
            case tile.FragmentRead():
                self.scope.buffers[op.results[0]] = self.scope.buffers[op.operands[0]]
            case tile.FragmentWrite():
                if op not in self.sunk:
                    self.write(op)
            case tile.Reduce() if op in self.partials:
                Reduction(self, op).accumulate(self.partials[op])
            case tile.Reduce():
                Reduction(self, op).lower()
            case tile.Scan():
                ScanLowering(self, op).lower()
            case tile.Sort():
                SortLowering(self, op).lower()
            case tile.Histogram() if op in self.partials:
                count(self, op, self.partials[op][0])
            case tile.Histogram():
                lower_histogram(self, op)
            case tile.StreamLoop():
                self.stream(op, split=split)
            case tile.Bind():
                self.bind(op)
            case Relayout():
                self.relayout(op)
            case tile.Reshape():
                self.reshape(op)
            case tile.Print() | tile.Trap():
                self.print(op)
            case _:
                pass  # element-wise: computed where it is needed

    def print(self, op: tile.Print | tile.Trap) -> None:
        values = [self.materialise(v, op) for v in op.operands]
        shapes = [self.axes_of[v] for v in op.operands]
        axes = max(shapes, key=len, default=())
        home = self.placement.home
        spans = spans_of(op.operands[shapes.index(axes)]) if shapes else ()
        layout = home.layout(axes)
        guard = all_of([layout.owner_predicate(TID), self.valid(axes, spans, home.coordinates(axes, TID, R))])
        indices = [home.register_of(v.axes, axes, R) for v in values]
        kind = t.Print if isinstance(op, tile.Print) else t.Trap
        self.emit(kind(op.format.data, [v.buffer for v in values], indices, guard, home.registers(axes)), op)
