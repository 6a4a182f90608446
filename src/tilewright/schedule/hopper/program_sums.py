"""Sums over the CTAs of a cluster: each leaves its part in its shared memory, and adds up a share of all parts.

    rank 0   columns 0 .. w of the parts of ranks 0, 1, ..        all write . cluster barrier . each reads its columns
    rank 1   columns w .. 2 w of them                             of all parts, and adds them in the order of ranks

A thread reads what the threads of its own number have written: parts lie as the threads hold them, ``VECTOR`` registers
side by side. The end of the roles is the barrier behind which a CTA's shared memory may go.
"""

from __future__ import annotations

from xdsl.ir import Block, Region

from tilewright.base.expr import TRUE, Expr, Sym
from tilewright.hw.spaces import WARPGROUP_THREADS
from tilewright.lang.enums import BinaryFn
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.clusters import RANK
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.schedule.map_builder import Buffered, scalar_type
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

VECTOR = 4
"""Registers of f32 per shared memory access."""
TID, R = Sym(t.THREAD), Sym(t.REGISTER)


def program_sums(kernel: tile.Kernel) -> list[tile.ProgramSum]:
    """A kernel's sums over programs."""
    return [op for op in kernel.walk() if isinstance(op, tile.ProgramSum)]


def summed_alike(op: tile.ProgramSum, placement: Placement) -> Refused | None:
    """Why the shares of a sum are not equal runs of each thread's registers; None if they are."""
    whole, share = (placement.home.layout(placement.axes_of[value]) for value in (op.x, op.result))
    parts, width = op.parts.data, share.shape[-1]
    if whole.registers != parts * share.registers or share.registers % VECTOR:
        return Refused(f"{whole.registers} registers of a part are not {parts} shares in whole vectors")
    for thread in (0, *(1 << bit for bit in range((placement.home.threads - 1).bit_length()))):
        for register in range(whole.registers):
            part, own = divmod(register, share.registers)
            *rows, column = share.coordinate(thread, own)
            if whole.coordinate(thread, register) != (*rows, part * width + column):
                return Refused("the shares of a sum are not equal runs of each thread's registers")
    return None


def lower_program_sum(lowering: RoleContext, op: tile.ProgramSum) -> None:
    """The consumers' side: write, cluster barrier, read of every part, additions."""
    held, axes, parts = lowering.materialise(op.x, op), lowering.axes_of[op.result], op.parts.data
    kind = element(op.result)
    own = lowering.placement.home.registers(axes)
    threads = lowering.configuration.candidate.warpgroups * WARPGROUP_THREADS
    shared = lowering.shared_buffer("parts", kind, parts * own * threads)

    def place(register: Expr) -> Expr:
        return register // VECTOR * (VECTOR * threads) + TID * VECTOR + register % VECTOR

    if lowering.configuration.candidate.warpgroups > 1:
        lowering.emit(t.Barrier(), op)  # stages lie there, which another warpgroup may be multiplying
    lowering.emit(t.SharedWrite(shared, held.buffer, place(R), TRUE, vector=VECTOR), op)
    lowering.emit(a.ClusterArrive(), op)
    lowering.emit(a.ClusterWait(), op)
    read = lowering.registers("part", kind, parts * own)
    here = RANK * (own // VECTOR * VECTOR * threads) + place(R % own)
    lowering.emit(t.ClusterRead(shared, read, here, TRUE, cta=R // own, vector=VECTOR), op)
    total = lowering.registers("sum", kind, own)
    body = Block(arg_types=[scalar_type(kind)] * parts)
    result = body.args[0]
    for part in body.args[1:]:
        add = tile.Binary(BinaryFn.ADD, result, part)
        body.add_op(add)
        result = add.result
    body.add_op(t.Yield([result]))
    lowering.emit(t.Map([read] * parts, [R + part * own for part in range(parts)], [total], own, Region(body)), op)
    lowering.scope.buffers[op.result] = Buffered(total, axes)


def cluster_barriers_of_sums(kernel: tile.Kernel) -> list[a.ClusterArrive | a.ClusterWait]:
    """The producer's side: its threads take part in the cluster barriers."""
    return [barrier for _ in program_sums(kernel) for barrier in (a.ClusterArrive(), a.ClusterWait())]
