"""Whether an aligned copy of unaligned tensors pays: the time of the program with it and without, over extents.

Both bring tiles to the SMs while others are multiplied, and take as long as the slowest of three: the SM that brings
most, its tensor cores, the memory. With copies first tiles come by tensor copies, and the copies take time before that;
without, threads bring them, by cp.async where addresses allow (`hw.copy_prices`, `hw.engine_prices`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import Operation

from tilewright.base.expr import Const, Expr, ceildiv, expr, maximum
from tilewright.compiler.staging import Staged
from tilewright.hw.copy_prices import CopyMethod, copy_seconds, memory_seconds, staging_seconds
from tilewright.hw.engine_prices import TENSOR_BYTES_PER_CYCLE
from tilewright.hw.target import Target
from tilewright.hw.wgmma import INSTRUCTION_M
from tilewright.legal.wgmma import Role
from tilewright.schedule.facts import Facts
from tilewright.schedule.hopper.operands import COLUMNS, Analysis, Fed, source_of
from tilewright.schedule.tiles import element, moved, tensor_name
from tilewright.tile import dialect as tile

_FEMTO = 10**15
_SAMPLE_BYTES = 10**6


def pays(kernel: tile.Kernel, facts: Facts, found: Sequence[Staged], target: Target) -> Expr:
    """Whether copying ``found`` first takes less time; prices in femtoseconds."""
    names = {item.name for item in found}
    loads = {op: _bytes(kernel, op) for op in kernel.walk() if isinstance(op, tile.Load)}
    multiplied = _total(_dot_femtoseconds(kernel, op, target) for op in kernel.walk() if isinstance(op, tile.Dot))
    quick = _per_byte(CopyMethod.TENSOR_COPY, 0, target)
    brought, by_hand, aligned = Const(0), Const(0), Const(0)
    for load, size in loads.items():
        aligned = aligned + size * quick
        if tensor_name(load) not in names:
            brought = brought + size * quick
            continue
        vector = _fed_by(kernel, facts, load)
        if vector:
            brought = brought + size * _per_byte(CopyMethod.CP_ASYNC, vector, target)
        else:
            width = facts.of(tensor_name(load)).vector(element(load.result)) * element(load.result).bytes
            by_hand = by_hand + size * _per_byte(CopyMethod.LOADS, width, target)
    waves = ceildiv(_total((extent.expr for extent in kernel.grid), product=True), target.sm_count)
    launch = staging_seconds(0, target)
    spent: Expr = Const(0)
    once: Expr = Const(0)
    for item in found:
        size = _total(item.dims, product=True) * item.element.bytes
        per_byte = (staging_seconds(_SAMPLE_BYTES, target) - launch) / _SAMPLE_BYTES
        spent = spent + size * round(per_byte * _FEMTO) + round(launch * _FEMTO)
        once = once + size * round(memory_seconds(_SAMPLE_BYTES, target) / _SAMPLE_BYTES * _FEMTO)
    with_copies = maximum(waves * maximum(aligned, multiplied), once) + spent
    without = maximum(waves * (maximum(brought, multiplied) + by_hand), once)
    return with_copies < without


def _fed_by(kernel: tile.Kernel, facts: Facts, load: tile.Load) -> int:
    """Bytes that threads copy at a time where they feed the load's tile to a ring; 0 where they don't."""
    analysis = Analysis(kernel, facts, 1)
    for dot in (op for op in kernel.walk() if isinstance(op, tile.Dot)):
        for value, role in ((dot.a, Role.A), (dot.b, Role.B)):
            if source_of(value)[0].owner is load:
                fed = analysis.brought(value, role, COLUMNS)
                return fed.copies.vector_bytes if isinstance(fed, Fed) else 0
    return 0


def _per_byte(method: CopyMethod, vector_bytes: int, target: Target) -> int:
    """Femtoseconds of one SM."""
    return round(copy_seconds(method, _SAMPLE_BYTES, vector_bytes, target) / _SAMPLE_BYTES * target.sm_count * _FEMTO)


def _bytes(kernel: tile.Kernel, load: tile.Load) -> Expr:
    """Bytes that one program brings by a load."""
    kind = tile.tile_type(moved(load))
    return _total((expr(n) for n in kind.shape), product=True) * kind.element.bytes * _times(kernel, load)


def _dot_femtoseconds(kernel: tile.Kernel, dot: tile.Dot, target: Target) -> Expr:
    """Tensor-core time of one program's products."""
    (rows, columns), depth = tile.tile_type(dot.result).shape, tile.tile_type(dot.a).shape[1]
    right = -(-columns // COLUMNS) * COLUMNS * depth * element(dot.b).bytes
    cycles = -(-rows // INSTRUCTION_M) * right / TENSOR_BYTES_PER_CYCLE
    return _times(kernel, dot) * round(cycles / target.clock_hz * _FEMTO)


def _times(kernel: tile.Kernel, op: Operation) -> Expr:
    """How often a program runs an op; where that depends on the program, how often the middle one does."""
    middle: dict[str, Expr] = {f"p{i}": extent.expr // 2 for i, extent in enumerate(kernel.grid)}
    total: Expr = Const(1)
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, tile.Stream):
            total = total * parent.trip.expr.substitute(middle)
            middle[parent.counter.data] = expr(0)
        parent = parent.parent_op()
    return total


def _total(items: Iterable[Expr], *, product: bool = False) -> Expr:
    found: Expr = Const(1 if product else 0)
    for item in items:
        found = found * item if product else found + item
    return found
