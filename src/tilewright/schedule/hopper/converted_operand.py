"""Right operands of 8 bits that are multiplied in 16: the tile lands in a stage as memory has it, and the threads that
multiply read it there, convert it, and write it where wgmma reads::

    producer    wait empty . tensor copies
    consumers   wait full . ld.shared . convert . st.shared . fence.proxy.async . barrier . wgmma . arrive empty

Rows beyond the domain become zeros on the way. Threads take vectors of a row in turn, so that neighbours read and write
consecutive bytes."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Expr, Sym
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.schedule.hopper.operands import ConvertedOperand
from tilewright.schedule.hopper.products import staging_offset
from tilewright.schedule.map_builder import MapBuilder
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, hint
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class _Shares:
    """``count`` registers of each of ``threads`` threads take a tile of ``width`` columns, ``vector`` at a time."""

    threads: int
    width: int
    vector: int
    count: int

    @property
    def place(self) -> tuple[Expr, Expr]:
        """Row and column of a register's element."""
        number = Sym(t.THREAD) + Sym(t.REGISTER) // self.vector * self.threads
        lanes = self.width // self.vector
        return number // lanes, number % lanes * self.vector + Sym(t.REGISTER) % self.vector


def convert_tile(lowering: RoleContext, operand: ConvertedOperand, dot: tile.Dot, begin: tuple[SSAValue, Expr]) -> None:
    """Converts the tile that begins at byte ``begin[1]`` of a stage to the operand's own buffer."""
    stage, base = begin
    shares, source, kind = _shares(lowering, operand), element(operand.cast.x), element(operand.cast.result)
    (row, column), name = shares.place, hint(operand.cast.result)
    read = lowering.registers(f"{name}_read", source, shares.count)
    offset = base // source.bytes + row * shares.width + column
    lowering.emit(t.SharedRead(stage, read, offset, TRUE, vector=shares.vector), operand.cast)
    builder = MapBuilder(lowering.placement.home, (), {}, {}, {}, window=(0, shares.count))
    result = builder.cast(builder.read_at(read, Sym(t.REGISTER), source), kind)
    rows = operand.rows
    if rows is not None and rows not in lowering.scope.full and not lowering.inside(rows):
        inside = rows.origin + row < rows.stop
        result = builder.select(inside, result, builder.constant(0.0, kind))
    converted = lowering.registers(name, kind, shares.count)
    lowering.emit(builder.finish([result], [converted]), operand.cast)
    shared = operand.plan.shared
    place = staging_offset(shared, column, row)
    lowering.emit(t.SharedWrite(lowering.converted_tiles[operand], converted, place, TRUE, vector=shares.vector), dot)
    lowering.emit(a.FenceProxyAsync())
    lowering.emit(t.Barrier())


def _shares(lowering: RoleContext, operand: ConvertedOperand) -> _Shares:
    width, rows = operand.plan.shared.extents
    threads = a.WARPGROUP_THREADS * lowering.configuration.candidate.warpgroups
    vector = MAX_VECTOR_BYTES // operand.plan.shared.element_bytes
    return _Shares(threads, width, vector, width * rows // threads)
