"""Panels of an epilogue in a loop: what the next panel is computed from always lies in the first registers.

An epilogue of many instructions an element is long machine code that each warp runs through once a tile, and fetching
it takes longer than executing it (GELU of 128 x 256: 62 KB; docs/measured/products.md, "Instructions of an epilogue").
A loop has the code of one panel. Registers have no addresses, so that behind each panel all values move down by a
panel's share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.expr import Const, Expr, Sym
from tilewright.schedule.hopper.configuration import RoleContext
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
    """A stored value as ``panels`` parts of ``count`` registers, of which ``counter`` says which is computed."""

    op: tile.Store
    count: int
    panels: int
    counter: Sym
    shares: dict[SSAValue, int]
    """Buffers that the value is computed from: registers of each that belong to one panel."""
    late: dict[tile.Load, int]
    """The same for loads that only the store needs."""

    @staticmethod
    def of(
        lowering: RoleContext, op: tile.Store, panels: int, count: int, late: Sequence[tile.Load]
    ) -> EpilogueLoop | None:
        """The loop, if the value takes many instructions, nothing else needs what it is computed from, and each
        panel's share of that lies a constant number of registers behind the one before."""
        loop = EpilogueLoop(op, count, panels, Sym(f"$panel{lowering.order[op]}"), {}, {})
        if panels < LEAST_PANELS or op.parent_block() is not lowering.kernel.body.block:
            return None
        loads: dict[SSAValue, tile.Load] = {load.results[0]: load for load in late}
        pending, seen, instructions = [op.value], set[SSAValue](), 0.0
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            held = lowering.scope.buffers.get(value)
            if held is None and value not in loads:
                source = owner(value)
                if source is not None and is_elementwise(source):
                    instructions += scalar_instructions(source)
                    pending += source.operands
                continue
            share = loop.share(lowering, lowering.axes_of[value] if held is None else held.axes)
            if share is None or (held is not None and held.window):
                return None
            if held is None:
                loop.late[loads[value]] = share
            elif share and not any(
                lowering.needed_after(v, op) for v, b in lowering.scope.buffers.items() if b.buffer is held.buffer
            ):
                loop.shares[held.buffer] = share
            elif share:
                return None
        return loop if instructions >= LEAST_INSTRUCTIONS else None

    def share(self, lowering: RoleContext, axes: tuple[int | None, ...]) -> int | None:
        """Registers per panel of a value with these axes; None where the panels' registers are not consecutive."""
        home, outer = lowering.placement.home, lowering.axes_of[self.op.value]

        def place(register: int) -> Expr:
            return home.register_of(axes, outer, Const(register))

        share = (place(self.count) - place(0)).constant
        for panel in range(self.panels):
            for r in range(self.count):
                if share is None or place(panel * self.count + r) != place(r) + panel * share:
                    return None
        return share

    def lower(self, lowering: RoleContext, store: Callable[[Expr, SSAValue], None]) -> None:
        """Emits the loop: ``store`` is given the panel number and its registers."""
        ahead = {
            load: lowering.registers(hint(load.results[0]), element(load.results[0]), share)
            for load, share in self.late.items()
        }
        for load, buffer in ahead.items():
            lowering.load_part(load, self.op, buffer, Const(0))
        body = Block()
        with lowering.into(body):
            self.step(lowering, ahead, store)
        lowering.emit(t.For(self.counter.name, Const(0), Const(self.panels), Const(1), Region(body)), self.op)

    def step(
        self, lowering: RoleContext, ahead: dict[tile.Load, SSAValue], store: Callable[[Expr, SSAValue], None]
    ) -> None:
        """One panel: its loads were issued while the one before was stored."""
        axes = lowering.axes_of
        fetched = {load.results[0]: Buffered(buffer, axes[load.results[0]]) for load, buffer in ahead.items()}
        buffers = {**lowering.scope.buffers, **fetched}
        computed = lowering.computed_chunk(self.op, buffers, 0, self.count, self.counter * self.count)
        following = Block()
        with lowering.into(following):
            for load, buffer in ahead.items():
                lowering.load_part(load, self.op, buffer, (self.counter + 1) * self.late[load])
        if ahead:
            lowering.emit(t.If(self.counter + 1 < self.panels, Region(following), t.block()), self.op)
        store(self.counter, computed)
        for held, share in self.shares.items():
            self.move(lowering, held, share)

    def move(self, lowering: RoleContext, buffer: SSAValue, share: int) -> None:
        """Moves registers from ``share`` on to the first registers."""
        assert isinstance(buffer.type, RegistersType)
        count = buffer.type.count.data - share
        body = Block(arg_types=[tile.TileType.of(buffer.type.dtype.dtype, [])])
        body.add_op(t.Yield([body.args[0]]))
        lowering.emit(t.Map([buffer], [Sym(t.REGISTER) + share], [buffer], count, Region(body)), self.op)
