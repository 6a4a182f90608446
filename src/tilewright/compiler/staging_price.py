"""Whether an aligned copy of unaligned tensors pays: the time of the program with it and without, over extents.

Both bring tiles to the SMs while others are multiplied, and take as long as the slowest of three: the SM that brings
most, its tensor cores, the memory. With copies first tiles come by tensor copies, and the copies take time before that;
without, threads bring them, by cp.async where addresses allow (`hw.copy_prices`, `hw.engine_prices`). Their stores to
shared memory and what products read there share its bandwidth.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from xdsl.ir import Operation

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import Const, Expr, ceildiv, expr, maximum
from tilewright.compiler.workspaces import StagedTensor
from tilewright.hw.copy_prices import (
    SHARED_BYTES_PER_CYCLE,
    SLOT_CYCLES,
    THREAD_SLOT_CYCLES,
    CopyMethod,
    memory_seconds,
    staging_seconds,
    thread_copy_cycles,
)
from tilewright.hw.engine_prices import (
    COPY_BYTES_PER_CYCLE,
    FEED_ELEMENT_CYCLES,
    FEED_VECTOR_CYCLES,
    STAGED_COPY_SECONDS,
    TENSOR_BYTES_PER_CYCLE,
)
from tilewright.hw.spaces import WARP_THREADS
from tilewright.hw.target import Target
from tilewright.legal.wgmma import OperandRole
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.placement import loaded_of, symbols_of
from tilewright.schedule.product_schedules import ThreadCopiedOperand, schedules_of
from tilewright.tile import dialect as tile
from tilewright.tile.limits import Limits
from tilewright.tile.ops import program_index
from tilewright.tile.queries import element, moved, source_of, tensor_name

_FEMTO = 10**15
_SAMPLE_BYTES = 10**6


def pays(kernel: tile.Kernel, facts: CallFacts, found: Sequence[StagedTensor], target: Target) -> Expr:
    """Whether copying ``found`` first takes less time; prices in femtoseconds."""
    per_cycle = round(_FEMTO / target.clock_hz)
    waves = ceildiv(_product(extent.expr for extent in kernel.grid), target.sm_count)
    staged, direct = (
        waves
        * sum((block.times * round(block.cycles(names)) for block in _blocks(kernel, facts, target)), Const(0))
        * per_cycle
        for names in (set[str](), {item.name for item in found})
    )
    per_byte = (staging_seconds(_SAMPLE_BYTES, target) - staging_seconds(0, target)) / _SAMPLE_BYTES
    launch = staging_seconds(0, target) + STAGED_COPY_SECONDS
    read = memory_seconds(_SAMPLE_BYTES, target) / _SAMPLE_BYTES
    spent, once = Const(0), Const(0)
    for item in found:
        size = _product(item.dims) * item.element.bytes
        spent = spent + size * round(per_byte * _FEMTO) + round(launch * _FEMTO)
        once = once + size * round(read * _FEMTO)
    return maximum(staged, once) + spent < maximum(direct, once)


@dataclass(frozen=True)
class _Block:
    """The products of one block, with the operands that it loads, as bytes by tensor and how threads would copy them.

    ``times``: how often a program runs it; where that depends on the program, how often the middle one does.
    """

    times: Expr
    operands: tuple[tuple[str, int, ThreadCopiedOperand | None], ...]
    multiplied: float
    read_bytes: int

    def cycles(self, by_threads: Collection[str]) -> float:
        """Cycles of an SM for one round, if threads copy the tensors ``by_threads``."""
        copies, thread_copies, slot = 0.0, 0.0, SLOT_CYCLES
        for name, size, fed in self.operands:
            if name not in by_threads:
                copies += size / COPY_BYTES_PER_CYCLE
                continue
            if fed is None:  # nothing is multiplied meanwhile
                thread_copies += thread_copy_cycles(CopyMethod.LOADS, size, 1)
                continue
            vector = fed.vector * fed.shared.element_bytes
            each = FEED_VECTOR_CYCLES if fed.asynchronous else FEED_ELEMENT_CYCLES
            copies += size / vector / WARP_THREADS * each + size / SHARED_BYTES_PER_CYCLE
            slot = THREAD_SLOT_CYCLES
        if slot == THREAD_SLOT_CYCLES:
            copies += self.read_bytes / SHARED_BYTES_PER_CYCLE
        return max(slot + copies, self.multiplied) + thread_copies


def _blocks(kernel: tile.Kernel, facts: CallFacts, target: Target) -> Iterator[_Block]:
    """The blocks of a kernel that multiply."""
    schedules = schedules_of(target)
    analysis, granule = schedules.operands(kernel, facts, 1), schedules.columns
    dots = [op for op in kernel.walk() if isinstance(op, tile.Dot)]
    for block in dict.fromkeys(dot.parent_block() for dot in dots):
        own = [dot for dot in dots if dot.parent_block() is block]
        loaded: dict[tile.Load, ThreadCopiedOperand | None] = {}
        multiplied, read = 0.0, 0
        for dot in own:
            (rows, columns), depth = tile.tile_type(dot.result).shape, tile.tile_type(dot.a).shape[1]
            warpgroups, width = -(-rows // schedules.rows), -(-columns // granule) * granule
            line = depth * element(dot.b).bytes
            multiplied += warpgroups * width * line / TENSOR_BYTES_PER_CYCLE
            read += warpgroups * (schedules.rows + width) * line
            for value, role in ((dot.a, OperandRole.A), (dot.b, OperandRole.B)):
                load = source_of(value)[0].owner
                if isinstance(load, tile.Load) and load.parent_block() is block:
                    loaded[load] = analysis.thread_copied(value, role, granule)
        operands = tuple((tensor_name(load), _tile_bytes(load), fed) for load, fed in loaded.items())
        yield _Block(_times(kernel, own[0]), operands, multiplied, read)


def _tile_bytes(load: tile.Load) -> int:
    kind = tile.tile_type(moved(load))
    return prod(kind.shape) * kind.element.bytes


def _times(kernel: tile.Kernel, op: Operation) -> Expr:
    """How often a program runs an op; where that depends on the program or on a stream around it, how often the middle
    one does; where it is loaded, half as often as it can at most."""
    total: Expr = Const(1)
    loaded = loaded_of(kernel)
    limits = Limits(frozenset(symbols_of(kernel)))
    for bound in loaded:
        limits.add(bound, Const(MAX_EXTENT + 1))
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, tile.StreamLoop):
            trip = parent.trip.expr
            if trip.symbols & loaded:
                most = limits.upper(trip)
                trip = Const(1) if most is None else most // 2
            total = total.substitute({parent.counter.data: trip // 2}) * trip
        parent = parent.parent_op()
    return total.substitute({program_index(i): extent.expr // 2 for i, extent in enumerate(kernel.grid)})


def _product(items: Iterable[Expr]) -> Expr:
    return reduce(operator.mul, items, expr(1))
