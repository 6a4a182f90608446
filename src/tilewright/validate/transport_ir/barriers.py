"""Barriers of threads, fences, and mbarriers."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.transport_ir.plan import Plan
from tilewright.validate.undecided import Undecided

_PLAIN: dict[type[Operation], str] = {
    a.FenceProxyAsync: "fence.proxy.async.shared::cta",
    a.FenceMbarrierInit: "fence.mbarrier_init.release.cluster",
    a.ClusterArrive: "barrier.cluster.arrive.release",
    a.ClusterWait: "barrier.cluster.wait.acquire",
    a.BulkCommit: "cp.async.bulk.commit_group",
    a.WgmmaFence: "wgmma.fence",
    a.WgmmaCommit: "wgmma.commit_group",
}


def barrier(plan: Plan, op: t.Barrier) -> None:
    """All threads of the CTA, in a role those of the role."""
    if plan.role is None:
        number, threads = 0, plan.kernel.threads.data
    else:
        number, threads = a.role_barrier(plan.roles), plan.role.threads.data
    plan.synchronised(plan.event(op, "bar.sync", plan.word(number), plan.word(threads)))


def barrier_count(plan: Plan, op: t.BarrierCount) -> None:
    """All threads of the CTA, which then hold one number: of the n-th such op what the n-th such instruction gives."""
    every = [other for other in plan.kernel.walk() if isinstance(other, t.BarrierCount)]
    if op.parent is not plan.kernel.body.block:
        raise Undecided("threads that are counted in a part of the kernel", plan.where(op))
    word = plan.buffers[op.buffer][0]
    counted = plan.values.select(plan.arithmetic.compare("ne", "s32", word, plan.word(0)), plan.word(1), plan.word(0))
    kind, number = plan.values.threads_counted(every.index(op))
    plan.synchronised(plan.event(op, kind, plan.word(0), counted))
    plan.buffers[op.buffer][0] = number


def named_barrier(plan: Plan, op: a.NamedBarrierSync | a.NamedBarrierArrive) -> None:
    """A named barrier."""
    kind = "bar.sync" if isinstance(op, a.NamedBarrierSync) else "bar.arrive"
    number = plan.values.resize(plan.expr(op.id.expr), 32)
    plan.synchronised(plan.event(op, kind, number, plan.word(op.threads.data)))


def warp_barrier(plan: Plan, op: t.WarpBarrier) -> None:
    """The warp."""
    plan.synchronised(plan.event(op, "bar.warp.sync", plan.word(-1)))


def plain(plan: Plan, op: Operation) -> None:
    """Ops that are one instruction without operands."""
    event = plan.event(op, _PLAIN[type(op)])
    if type(op) in (a.ClusterArrive, a.ClusterWait):
        plan.synchronised(event)


def set_registers(plan: Plan, op: a.SetMaxRegisters) -> None:
    """setmaxnreg: up or down from what a thread has at launch."""
    at_launch = 65536 // (plan.kernel.threads.data * plan.kernel.min_ctas.data)
    way = "dec" if op.count.data <= at_launch else "inc"
    plan.event(op, f"setmaxnreg.{way}", plan.word(op.count.data))


def mbarrier_init(plan: Plan, op: a.MbarrierInit) -> None:
    """Every barrier of the array."""
    kind = a.mbarriers_of(op.bars)
    for slot in range(kind.slots.data):
        plan.event(op, "mbarrier.init", plan.bar(op.bars, plan.terms.const(0, slot)), plan.word(kind.count.data))


def mbarrier_arrive(plan: Plan, op: a.MbarrierArrive) -> None:
    """An arrival, here or at a peer."""
    at = plan.bar(op.bars, plan.expr(op.index.expr))
    if op.cta is None:
        event = plan.event(op, "mbarrier.arrive", at)
    else:
        event = plan.event(op, "mbarrier.arrive.remote", at, plan.expr(op.cta.expr))
    plan.synchronised(event)


def mbarrier_expect(plan: Plan, op: a.MbarrierArriveExpectTx) -> None:
    """An arrival that expects bytes."""
    at = plan.bar(op.bars, plan.expr(op.index.expr))
    plan.synchronised(plan.event(op, "mbarrier.expect_tx", at, plan.word(op.bytes.data)))


def mbarrier_wait(plan: Plan, op: a.MbarrierWait) -> None:
    """A wait for a phase."""
    at = plan.bar(op.bars, plan.expr(op.index.expr))
    plan.synchronised(plan.event(op, "mbarrier.wait", at, plan.values.resize(plan.expr(op.parity.expr), 32)))


OPS: dict[type[Operation], Callable[..., None]] = {
    t.Barrier: barrier,
    t.WarpBarrier: warp_barrier,
    a.SetMaxRegisters: set_registers,
    a.NamedBarrierSync: named_barrier,
    a.NamedBarrierArrive: named_barrier,
    a.MbarrierInit: mbarrier_init,
    a.MbarrierArrive: mbarrier_arrive,
    a.MbarrierArriveExpectTx: mbarrier_expect,
    a.MbarrierWait: mbarrier_wait,
    **dict.fromkeys(_PLAIN, plain),
}
"""Ops that change no register, which ``validate.tile_to_transport`` passes over."""
