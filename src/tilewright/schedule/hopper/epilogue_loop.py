"""Panels of an epilogue in a loop: what the next panel is computed from always lies in the first registers.

An epilogue of many instructions an element is long machine code that each warp runs through once a tile, and fetching
it takes longer than executing it (GELU of 128 x 256: 62 KB; docs/measured/products.md, "Instructions of an epilogue").
A loop has the code of one panel. Registers have no addresses, so that behind each panel all values move down by a
panel's share. Panels of a width of which there are few are computed one by one, between loops:

    128 columns, 2 blocks    loop over 4 panels: blocks 0, 0, 1, 1
    208 columns, 2 blocks    loop over 3 panels of 64 columns, one of 16, loop over 3 panels, one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.expr import Const, Expr, Sym
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.schedule.hopper.epilogue_tiles import AccumulatorTile, EpilogueTile
from tilewright.schedule.map_builder import Buffered
from tilewright.schedule.unrolled import scalar_instructions
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, hint, is_elementwise, owner
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import RegistersType

LEAST_INSTRUCTIONS = 16
"""Instructions per element from which an epilogue's panels are computed in a loop."""
FIRST = Const(0)
LEAST_PANELS = 3
"""NVRTC replaces a loop over two panels by a flag; it gains nothing."""


@dataclass(frozen=True)
class Run:
    """Panels of one width, each ``count`` registers of the stored value behind the one before."""

    panels: tuple[EpilogueTile, ...]
    first: int
    """The first panel's first register."""
    count: int
    number: int
    """Panels before it."""
    counter: Expr = FIRST
    """Which of them is computed."""
    shares: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """Buffers that the value is computed from: registers of each that belong to one panel."""

    @property
    def place(self) -> tuple[Expr, Expr]:
        """Block and first column of the panel that is computed."""
        first = self.panels[0]
        beside = sum(panel.block == first.block for panel in self.panels)
        block, panel = (
            (self.counter // beside, self.counter % beside) if beside < len(self.panels) else (Const(0), self.counter)
        )
        return block + first.block, panel * first.width + first.start


@dataclass(frozen=True)
class EpilogueLoop:
    """A stored value as runs of panels, of which the longer ones are loops."""

    op: tile.Store
    runs: tuple[Run, ...]
    late: tuple[tile.Load, ...]
    """Loads that only the store needs."""

    @staticmethod
    def of(lowering: RoleContext, panels: AccumulatorTile) -> EpilogueLoop | None:
        """The loop, if the value takes many instructions, nothing else needs what it is computed from, and each
        panel's share of that lies a constant number of registers behind the one before."""
        op = panels.op
        if op.parent_block() is not lowering.kernel.body.block:
            return None
        late: dict[SSAValue, tile.Load] = {load.results[0]: load for load in lowering.postponed.get(op, ())}
        held, used, instructions = dict[SSAValue, Buffered](), list[tile.Load](), 0.0
        pending, seen = [op.value], set[SSAValue]()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            source = owner(value)
            if value in lowering.scope.buffers:
                held[value] = lowering.scope.buffers[value]
            elif value in late:
                used.append(late[value])
            elif source is not None and is_elementwise(source):
                instructions += scalar_instructions(source)
                pending += source.operands
        turns = lowering.configuration.candidate.ping_pong > 1
        tiles = any(lowering.axes_of[load.results[0]] == lowering.axes_of[op.value] for load in used)
        long = instructions >= LEAST_INSTRUCTIONS or (turns and tiles)
        if not long or any(each.window for each in held.values()):
            return None
        for runs in _runs(panels, f"$panel{lowering.order[op]}"):
            loop = EpilogueLoop(op, runs, tuple(used))
            if any(len(run.panels) > 1 for run in runs) and loop._moves(lowering, held) and loop._loads(lowering):
                return loop
        return None

    def _moves(self, lowering: RoleContext, held: dict[SSAValue, Buffered]) -> bool:
        """Whether all panels find their share of what is in registers in the first ones; notes how far it moves."""
        for value, each in held.items():
            moved = 0
            for run in self.runs:
                begin, share = self._places(lowering, each.axes, run)
                if begin is None or share is None or begin != moved:
                    return False
                moved += share * len(run.panels)
                if share:
                    run.shares[each.buffer] = share
            same = (v for v, b in lowering.scope.buffers.items() if b.buffer is held[value].buffer)
            if moved and any(lowering.needed_after(v, self.op) for v in same):
                return False
        return True

    def _loads(self, lowering: RoleContext) -> bool:
        """Whether each panel's share of late loads is consecutive registers of theirs."""
        return all(
            self._place(lowering, axes, run.first + panel * run.count + r)
            == self._place(lowering, axes, r) + self._begin(lowering, load, run, Const(panel))
            for load in self.late
            for axes in [lowering.axes_of[load.results[0]]]
            for run in self.runs
            for panel in range(len(run.panels))
            for r in range(run.count)
        )

    def _places(self, lowering: RoleContext, axes: tuple[int | None, ...], run: Run) -> tuple[int | None, int | None]:
        """Where a run's share of a value with these axes begins, and registers per panel; None where the panels'
        registers are not consecutive."""
        first, second = (self._place(lowering, axes, run.first + count) for count in (0, run.count))
        begin = first.constant
        share = (second - first).constant if len(run.panels) > 1 else self._registers(lowering, axes, run)
        if begin is None or share is None:
            return None, None
        for panel in range(len(run.panels)):
            for r in range(run.count):
                here = self._place(lowering, axes, run.first + panel * run.count + r)
                if here != self._place(lowering, axes, r) + begin + panel * share:
                    return None, None
        return begin, share

    def _place(self, lowering: RoleContext, axes: tuple[int | None, ...], register: Expr | int) -> Expr:
        return lowering.placement.home.register_of(axes, lowering.axes_of[self.op.value], Const(0) + register)

    def _begin(self, lowering: RoleContext, load: tile.Load, run: Run, panel: Expr) -> Expr:
        """The first register of a late load that belongs to a panel."""
        return self._place(lowering, lowering.axes_of[load.results[0]], panel * run.count + run.first)

    def lower(self, lowering: RoleContext, store: Callable[[Run, SSAValue], None]) -> None:
        """Emits the runs: ``store`` is given the registers of a run's panel."""
        for run in self.runs:
            ahead = {load: self._share(lowering, load.results[0], run) for load in self.late}
            for load, buffer in ahead.items():
                lowering.load_part(load, self.op, buffer, self._begin(lowering, load, run, Const(0)))
            if not isinstance(run.counter, Sym):
                self._step(lowering, run, ahead, store)
                continue
            body = Block()
            with lowering.into(body):
                self._step(lowering, run, ahead, store)
            end = Const(len(run.panels))
            lowering.emit(t.For(run.counter.name, Const(0), end, Const(1), Region(body)), self.op)

    def _share(self, lowering: RoleContext, value: SSAValue, run: Run) -> SSAValue:
        """Registers for a panel's share of a late load."""
        return lowering.registers(hint(value), element(value), self._registers(lowering, lowering.axes_of[value], run))

    def _registers(self, lowering: RoleContext, axes: tuple[int | None, ...], run: Run) -> int:
        """How many registers of a value with these axes a panel needs."""
        places = [self._place(lowering, axes, r).constant for r in range(run.count)]
        return int(max(r for r in places if r is not None)) + 1

    def _step(
        self,
        lowering: RoleContext,
        run: Run,
        ahead: dict[tile.Load, SSAValue],
        store: Callable[[Run, SSAValue], None],
    ) -> None:
        """One panel: its loads were issued while the one before was stored."""
        axes = lowering.axes_of
        fetched = {load.results[0]: Buffered(buffer, axes[load.results[0]]) for load, buffer in ahead.items()}
        buffers = {**lowering.scope.buffers, **fetched}
        moved = run.counter * run.count + run.first
        computed = lowering.computed_chunk(self.op, buffers, 0, run.count, moved)
        if ahead and len(run.panels) > 1:
            following = Block()
            with lowering.into(following):
                for load, buffer in ahead.items():
                    lowering.load_part(load, self.op, buffer, self._begin(lowering, load, run, run.counter + 1))
            lowering.emit(t.If(run.counter + 1 < len(run.panels), Region(following), t.block()), self.op)
        store(run, computed)
        for buffer, share in run.shares.items():
            self._move(lowering, buffer, share)

    def _move(self, lowering: RoleContext, buffer: SSAValue, share: int) -> None:
        """Moves registers from ``share`` on to the first registers."""
        assert isinstance(buffer.type, RegistersType)
        count = buffer.type.count.data - share
        if count:
            body = Block(arg_types=[tile.TileType.of(buffer.type.dtype.dtype, [])])
            body.add_op(t.Yield([body.args[0]]))
            lowering.emit(t.Map([buffer], [Sym(t.REGISTER) + share], [buffer], count, Region(body)), self.op)


def _runs(panels: AccumulatorTile, counter: str) -> Iterator[tuple[Run, ...]]:
    """All panels as one run, if they have one width. Else those of each block and width, if there are enough of them,
    or one by one: for several blocks alone (GELU, 128 x 224 of two warpgroups, H200: 675 us, text 666; by ping-pong in
    128 x 208 620 instead of 755)."""
    every = tuple(panels.side_by_side)
    if len(panels.widths) == 1 and len(every) >= LEAST_PANELS:
        yield (Run(every, *panels.registers(every[0]), 0, Sym(counter)),)
    if len(panels.widths) > 1 and panels.blocks > 1:
        found: list[Run] = []
        for _, group in groupby(enumerate(every), lambda each: (each[1].block, each[1].width)):
            numbers, those = zip(*group, strict=True)
            if len(those) >= LEAST_PANELS:
                own = Sym(counter + f"_{len(found)}" * bool(found))
                found.append(Run(those, *panels.registers(those[0]), numbers[0], own))
                continue
            found += (Run((p,), *panels.registers(p), i) for i, p in zip(numbers, those, strict=True))
        yield tuple(found)
