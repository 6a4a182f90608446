"""Estimates register pressure from Transport IR: whether the assembler may have to spill.

A buffer is live from its first use to its last, and throughout every loop in which it is used and not declared. Where
an op reads buffers for the last time and writes others for the first, the larger side counts, since it proceeds element
by element. The assembler needs fewer registers where values are rematerialised or loaded late, and more for addresses.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from tilewright.hw.target import Target
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import RegistersType
from tilewright.transport.ops.tensor_core import Wgmma

_DOUBTFUL = 0.35
"""Of the registers a thread may have. Of 180 texts that NVRTC assembled for ``tools/random_kernels.py``, 146 were below
it, of which 7 spilled, at most 388 bytes, and the next schedule did not; of 34 above it 13 spilled, up to 5460."""


def may_spill(kernel: t.Kernel, target: Target) -> bool:
    """Whether so many values are live at once that only the assembler can tell whether they fit."""
    most = min(target.max_registers_per_thread, target.registers_per_sm // kernel.threads.data)
    return peak_registers(kernel) > _DOUBTFUL * most


def peak_registers(kernel: t.Kernel) -> int:
    """The most 32-bit registers per thread of simultaneously live values. Accumulators of wgmma are left out: schedules
    are chosen for them."""
    ops = list(kernel.walk())
    place = {op: number for number, op in enumerate(ops)}
    last = _ends(ops, place)
    accumulators = {op.accumulator for op in ops if isinstance(op, Wgmma)}
    lives: dict[SSAValue, tuple[int, int]] = {}
    for op in ops:
        for value in op.operands:
            if isinstance(value.type, RegistersType) and value not in accumulators:
                first, end = _span(op, value, place, last)
                known = lives.get(value, (first, end))
                lives[value] = min(known[0], first), max(known[1], end)
    changes = [0] * (2 * len(ops) + 2)  # of an op first what it reads, then what it writes
    for value, (first, end) in lives.items():
        changes[2 * first + (first < end)] += _words(value)
        changes[2 * end + 1] -= _words(value)
    most = now = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _ends(ops: list[Operation], place: Mapping[Operation, int]) -> dict[Operation, int]:
    """The number of the last op inside each op."""
    ends: dict[Operation, int] = {}
    for op in reversed(ops):
        inside = (ends[inner] for region in op.regions for block in region.blocks for inner in block.ops)
        ends[op] = max(inside, default=place[op])
    return ends


def _span(
    op: Operation, value: SSAValue, place: Mapping[Operation, int], last: Mapping[Operation, int]
) -> tuple[int, int]:
    """The live range of one use of a buffer: the op, or the outermost loop around it that does not declare the
    buffer."""
    declared = value.owner
    first, end, around = place[op], last[op], op.parent_op()
    while isinstance(declared, Operation) and around is not None and place.get(around, -1) > place[declared]:
        if isinstance(around, t.For | t.Programs):
            first, end = place[around], last[around]
        around = around.parent_op()
    return first, end


def _words(value: SSAValue) -> int:
    assert isinstance(value.type, RegistersType)
    return -(-value.type.count.data * value.type.dtype.dtype.bits // 32)
