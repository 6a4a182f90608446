"""The synchronising instructions that a kernel's Transport IR specifies, per role."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, Operation

from tilewright.base.expr import TRUE
from tilewright.codegen.sync_flow import FlowBuilder, SyncFlow, SyncInstruction, SyncRegion
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops import conversion
from tilewright.transport.ops.base import SyncOp

ALL = "all threads"
"""The label of code outside of roles that hold only some of the threads."""
WHOLE_CTA = "cta"
"""The threads of a CTA's barrier."""

_READ = frozenset((*a.OPS, t.For, t.If, t.Programs, t.Barrier, t.BarrierCount, conversion.WarpBarrier))
"""Ops that may hold or be synchronising instructions."""


def planned_flows(kernel: t.Kernel) -> dict[str, SyncFlow]:
    """Per role of some threads, and for what all threads run, the instructions and their order."""
    found = {ALL: _Planned(None).kernel(kernel)}
    return found | {role.label.data: _Planned(role).read(role.body.block) for role in _roles(kernel)}


def role_threads(kernel: t.Kernel) -> dict[str, tuple[int, int]]:
    """First and last thread of every role of some threads."""
    return {r.label.data: (r.first.data, r.first.data + r.threads.data - 1) for r in _roles(kernel)}


def _roles(kernel: t.Kernel) -> list[a.Role]:
    """The roles that do not hold all threads."""
    roles = (op for op in kernel.body.block.ops if isinstance(op, a.Role))
    return [role for role in roles if role.threads.data < kernel.threads.data]


class _Planned(FlowBuilder):
    """Reads one role, or what all threads run."""

    def __init__(self, role: a.Role | None):
        super().__init__()
        self.role = role

    def read(self, block: Block) -> SyncFlow:
        return self.flow(self.block(block))

    def kernel(self, kernel: t.Kernel) -> SyncFlow:
        asked = {"wait": kernel.waits, "launch_dependents": kernel.releases}
        first = [self.one(SyncInstruction(f"griddepcontrol.{do}")) for do, flag in asked.items() if flag]
        return self.flow(self.sequence([*first, self.block(kernel.body.block)]))

    def block(self, block: Block) -> SyncRegion:
        return self.sequence(self.op(op) for op in block.ops)

    def op(self, op: Operation) -> SyncRegion:
        if type(op) not in _READ:
            return SyncRegion()
        match op:
            case a.Role():
                return self.role_of_all(op)
            case a.Elected():
                return self.choice((self.block(op.body.block), SyncRegion()))
            case t.If():
                return self.choice((self.block(op.then.block), self.block(op.otherwise.block)))
            case t.For():
                return self.loop(op)
            case t.Programs():
                body = self.block(op.body.block)
                return self.choice((self.repeated(body), SyncRegion())) if op.persistent.data and op.names else body
            case a.MbarrierWait():
                return self.repeated(self.one(SyncInstruction("mbarrier.try_wait")))
            case t.Barrier():
                threads = WHOLE_CTA if self.role is None else str(self.role.threads.data)
                return self.one(SyncInstruction("bar.sync", threads))
            case t.BarrierCount():
                return self.one(SyncInstruction("bar.red", WHOLE_CTA))
            case a.CpAsync():
                return self.sequence(self.copy(op) for _ in range(op.count.data))
            case a.SetMaxRegisters():
                assert self.role is not None, "registers move between roles"
                kernel = self.role.parent_op()
                assert isinstance(kernel, t.Kernel)
                direction = "dec" if op.count.data <= kernel.registers_at_launch else "inc"
                return self.one(SyncInstruction(f"setmaxnreg.{direction}", str(op.count.data)))
            case _:
                return self.sequence(self.one(i) for i in instructions(op))

    def copy(self, op: a.CpAsync) -> SyncRegion:
        """One copy, which some threads may skip."""
        copy = self.one(SyncInstruction("cp.async", str(op.copy_bytes)))
        return copy if op.active.expr == TRUE else self.choice((copy, SyncRegion()))

    def role_of_all(self, op: a.Role) -> SyncRegion:
        """A role of all threads is emitted in place, without a branch."""
        kernel = op.parent_op()
        assert isinstance(kernel, t.Kernel)
        if op in _roles(kernel):
            return SyncRegion()
        self.role = op
        return self.block(op.body.block)

    def loop(self, op: t.For) -> SyncRegion:
        """A loop of one iteration is none, one of at most one a branch. Only one from a number to a size repeats:
        between two sizes at most one step may be left, which a compiler may know."""
        body = self.block(op.body.block)
        begin, end, step = (e.expr.constant for e in (op.begin, op.end, op.step))
        if begin is None or end is None or step is None:
            repeated = body if op.at_most_one_iteration else self.repeated(body, surely=begin is not None)
            return self.choice((repeated, SyncRegion()))
        iterations = -(-(end - begin) // step)
        return SyncRegion() if iterations <= 0 else body if iterations == 1 else self.repeated(body)


def instructions(op: Operation) -> Iterator[SyncInstruction]:
    """The instructions of an op without regions."""
    match op:
        case SyncOp():
            yield SyncInstruction(op.INSTRUCTION)
        case a.MbarrierInit():
            kind = a.mbarriers_of(op.bars)
            yield from (SyncInstruction("mbarrier.init", str(kind.count.data)),) * kind.slots.data
        case a.MbarrierArriveExpectTx():
            yield SyncInstruction("mbarrier.arrive.expect_tx", str(op.bytes.data))
        case a.MbarrierArrive():
            yield SyncInstruction("mbarrier.arrive" if op.cta is None else "mbarrier.arrive.shared::cluster")
        case a.NamedBarrierSync():
            yield SyncInstruction("bar.sync", str(op.threads.data))
        case a.NamedBarrierArrive():
            yield SyncInstruction("bar.arrive", str(op.threads.data))
        case conversion.WarpBarrier():
            yield SyncInstruction("bar.warp.sync")
        case a.TmaLoad():
            form = "multicast" if op.ctas else "load"
            yield SyncInstruction(f"cp.async.bulk.tensor.{form}", f"{len(op.coords)}d")
        case a.TmaStore():
            yield SyncInstruction("cp.async.bulk.tensor.store", f"{len(op.coords)}d")
        case a.BulkWait():
            yield SyncInstruction("cp.async.bulk.wait_group" + (".read" if op.read.data else ""), str(op.pending.data))
        case a.CpAsyncMbarrierArrive():
            yield SyncInstruction("cp.async.mbarrier.arrive")
        case a.Wgmma():
            yield SyncInstruction("wgmma.mma_async", _shape(op))
        case a.WgmmaWait():
            yield SyncInstruction("wgmma.wait_group", str(op.pending.data))
        case a.StoreMatrix() | a.LoadMatrix():
            name = "stmatrix" if isinstance(op, a.StoreMatrix) else "ldmatrix"
            yield SyncInstruction(name, f"x{op.matrices.data}" + (".trans" if op.trans.data else ""))
        case _:
            pass


def _shape(op: a.Wgmma) -> str:
    """Shape and types as the instruction spells them."""
    kind = op.dtype.dtype
    return f"m64n{op.n.data}k{256 // kind.bits}.f32.{kind.name}.{kind.name}"
