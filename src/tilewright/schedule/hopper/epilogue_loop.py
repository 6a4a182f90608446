"""Panels of an epilogue in a loop: what the next panel is computed from always lies in the first registers.

An epilogue of many instructions an element is long machine code that each warp runs through once a tile, and fetching
it takes longer than executing it (GELU of 128 x 256: 62 KB; docs/measured/products.md, "Instructions of an epilogue").
A loop has the code of one panel, for all blocks of rows. Registers have no addresses, so that behind each panel all
values move down by a panel's share. Beside panels of another width there is none: two loops, the second of which begins
with what the first one leaves, are not validated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
LEAST_PANELS = 3
"""NVRTC replaces a loop over two panels by a flag; it gains nothing."""


@dataclass(frozen=True)
class EpilogueLoop:
    """A stored value as panels of ``count`` registers, of which ``counter`` says which is computed."""

    op: tile.Store
    panels: tuple[EpilogueTile, ...]
    count: int
    counter: Sym
    shares: dict[SSAValue, int]
    """Buffers that the value is computed from: registers of each that belong to one panel."""
    late: tuple[tile.Load, ...]
    """Loads that only the store needs."""

    @staticmethod
    def of(lowering: RoleContext, panels: AccumulatorTile) -> EpilogueLoop | None:
        """The loop, if the value takes many instructions, or loads that nothing hides where warpgroups take turns;
        nothing else needs what it is computed from, and each panel's share of that lies a constant number of registers
        behind the one before."""
        op, every = panels.op, tuple(panels.side_by_side)
        outermost = op.parent_block() is lowering.kernel.body.block
        if len(panels.widths) > 1 or len(every) < LEAST_PANELS or not outermost:
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
        if instructions < LEAST_INSTRUCTIONS and not (turns and tiles):
            return None
        count = panels.registers(every[0])[1]
        loop = EpilogueLoop(op, every, count, Sym(f"$panel{lowering.order[op]}"), {}, tuple(used))
        return loop if loop._moves(lowering, held) and loop._loads(lowering) else None

    @property
    def place(self) -> tuple[Expr, Expr]:
        """Block and first column of the panel that is computed."""
        width, beside = self.panels[0].width, sum(panel.block == 0 for panel in self.panels)
        if beside == len(self.panels):
            return Const(0), self.counter * width
        return self.counter // beside, self.counter % beside * width

    def _moves(self, lowering: RoleContext, held: dict[SSAValue, Buffered]) -> bool:
        """Whether all panels find their share of what is in registers in the first ones; notes how far it moves."""
        for each in held.values():
            share = (self._place(lowering, each.axes, self.count) - self._place(lowering, each.axes, 0)).constant
            if share is None or each.window or not self._consecutive(lowering, each.axes, lambda n, s=share: n * s):
                return False
            same = (v for v, b in lowering.scope.buffers.items() if b.buffer is each.buffer)
            if share and any(lowering.needed_after(v, self.op) for v in same):
                return False
            if share:
                self.shares[each.buffer] = share
        return True

    def _loads(self, lowering: RoleContext) -> bool:
        """Whether each panel's share of late loads is consecutive registers of theirs."""
        return all(
            self._consecutive(lowering, lowering.axes_of[load.results[0]], partial(self._begin, lowering, load))
            for load in self.late
        )

    def _consecutive(
        self, lowering: RoleContext, axes: tuple[int | None, ...], begin: Callable[[Const], Expr | int]
    ) -> bool:
        """Whether the registers of a value with these axes that a panel needs lie as the first panel's do, from
        ``begin`` of its number on."""
        return all(
            self._place(lowering, axes, panel * self.count + r) == self._place(lowering, axes, r) + begin(Const(panel))
            for panel in range(len(self.panels))
            for r in range(self.count)
        )

    def _place(self, lowering: RoleContext, axes: tuple[int | None, ...], register: Expr | int) -> Expr:
        """Where a value with these axes has what a register of the stored value needs."""
        return lowering.placement.home.register_of(axes, lowering.axes_of[self.op.value], Const(0) + register)

    def _begin(self, lowering: RoleContext, load: tile.Load, panel: Expr) -> Expr:
        """The first register of a late load that belongs to a panel."""
        return self._place(lowering, lowering.axes_of[load.results[0]], panel * self.count)

    def lower(self, lowering: RoleContext, store: Callable[[SSAValue], None]) -> None:
        """Emits the loop: ``store`` is given the registers of a panel, whose loads are issued while the panel before is
        stored."""
        loads = {load: self._share(lowering, load.results[0]) for load in self.late}

        def load_panel(panel: Expr) -> None:
            for load, buffer in loads.items():
                lowering.load_part(load, self.op, buffer, self._begin(lowering, load, panel))

        load_panel(Const(0))
        body, following = Block(), Block()
        with lowering.into(body):
            computed = self._computed(lowering, loads)
            with lowering.into(following):
                load_panel(self.counter + 1)
            if loads:
                lowering.emit(t.If(self.counter + 1 < len(self.panels), Region(following), t.block()), self.op)
            store(computed)
            for held, share in self.shares.items():
                self._move(lowering, held, share)
        lowering.emit(t.For(self.counter.name, Const(0), Const(len(self.panels)), Const(1), Region(body)), self.op)

    def _share(self, lowering: RoleContext, value: SSAValue) -> SSAValue:
        """Registers for a panel's share of a late load."""
        places = [self._place(lowering, lowering.axes_of[value], r).constant for r in range(self.count)]
        return lowering.registers(hint(value), element(value), int(max(r for r in places if r is not None)) + 1)

    def _computed(self, lowering: RoleContext, loads: dict[tile.Load, SSAValue]) -> SSAValue:
        """A panel of the stored value."""
        axes = lowering.axes_of
        fetched = {load.results[0]: Buffered(buffer, axes[load.results[0]]) for load, buffer in loads.items()}
        buffers = {**lowering.scope.buffers, **fetched}
        return lowering.computed_chunk(self.op, buffers, 0, self.count, self.counter * self.count)

    def _move(self, lowering: RoleContext, buffer: SSAValue, share: int) -> None:
        """Moves registers from ``share`` on to the first registers."""
        assert isinstance(buffer.type, RegistersType)
        count = buffer.type.count.data - share
        body = Block(arg_types=[tile.TileType.of(buffer.type.dtype.dtype, [])])
        body.add_op(t.Yield([body.args[0]]))
        lowering.emit(t.Map([buffer], [Sym(t.REGISTER) + share], [buffer], count, Region(body)), self.op)
