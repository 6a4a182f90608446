"""Every op of Transport IR, and what evaluates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import Operation

from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.transport_ir import accesses, barriers, control, copies, matrices, registers
from tilewright.validate.transport_ir.plan import Plan


def nothing(plan: Plan, op: Operation) -> None:
    """Declarations, and ops without an instruction."""


OPS: dict[type[Operation], Callable[[Plan, Any], None]] = {
    **control.OPS,
    **barriers.OPS,
    t.BarrierCount: barriers.barrier_count,
    **copies.OPS,
    **accesses.OPS,
    **registers.OPS,
    **matrices.OPS,
    **dict.fromkeys((t.Shared, t.Pin, a.Mbarriers, a.TensorMap), nothing),
}
