"""Matrices: stmatrix, ldmatrix, mma, wgmma."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation, SSAValue

from tilewright.transport import asynchronous as a
from tilewright.validate.memory import SHARED
from tilewright.validate.transport_ir.plan import Plan
from tilewright.validate.transport_ir.registers import packed
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value


def matrices(plan: Plan, op: a.StoreMatrix | a.LoadMatrix) -> None:
    """stmatrix and ldmatrix."""
    buffer, first, count = plan.buffers[op.buffer], op.first.data, op.matrices.data
    form = f"x{count}{'.trans' if op.trans.data else ''}"
    at = plan.place(op.shared, plan.values.add(plan.expr(op.base.expr), plan.expr(op.offset.expr)))
    if isinstance(op, a.StoreMatrix):
        words = [packed(plan, buffer, first + 2 * k, 0, 2) for k in range(count)]
        plan.event(op, "stmatrix", form, at, *words)
        plan.stored(SHARED, plan.holds)
        return
    state = plan.states.get(SHARED)
    plan.event(op, "ldmatrix", form, at, state)
    for k in range(count):
        word = plan.terms.data(32, 32, "ldmatrix", form, k, at, state)
        for half in (0, 1):
            buffer[first + 2 * k + half] = plan.terms.field(word, 16 * half, 16, 16)


def mma(plan: Plan, op: a.Mma) -> None:
    """mma.sync, whose results follow from what the warp's lanes give it."""
    accumulator, first = plan.buffers[op.accumulator], op.first.data
    left = [packed(plan, plan.buffers[op.a], op.a_register.data + 2 * k, 0, 2) for k in range(4)]
    right = [packed(plan, plan.buffers[op.b], op.b_register.data + 2 * k, 0, 2) for k in range(2)]
    form = f"m16n8k16.row.col.f32.{op.dtype.name}.{op.dtype.name}.f32"
    given = (form, *left, *right, *accumulator[first : first + 4])
    plan.event(op, "mma", *given)
    accumulator[first : first + 4] = [plan.terms.data(32, 32, "mma", k, *given) for k in range(4)]


def wgmma(plan: Plan, op: a.Wgmma) -> None:
    """One wgmma.mma_async."""
    n, kind = op.n.data, op.dtype.dtype
    accumulator, first = plan.buffers[op.accumulator], op.first.data
    old = accumulator[first : first + n // 2]
    majors = [op.b_operand.data.major]
    if op.a_operand is not None:
        left = [descriptor(plan, op.a_operand.data.template, op.a, plan.expr(op.a_offset.expr))]
        majors.insert(0, op.a_operand.data.major)
    else:
        left = [packed(plan, plan.buffers[op.a], op.a_register.data + 2 * k, 0, 2) for k in range(4)]
        if kind.bits != 16:
            raise Undecided("a left operand of bytes in registers", plan.where(op))
    right = descriptor(plan, op.b_operand.data.template, op.b, plan.expr(op.b_offset.expr))
    flags = ["1", "1"] + ([str(m) for m in majors] if kind.bits == 16 else [])
    name = f"wgmma.m64n{n}k{256 // kind.bits}.f32.{kind.name}.{kind.name}"
    event = plan.event(op, name, ",".join(flags), op.scale_d.data, right, *left, *old)
    if event is None:
        return
    plan.marks[event.order] = event
    for k in range(n // 2):
        accumulator[first + k] = plan.terms.data(32, 32, "result", "ir", event.order, k)


def descriptor(plan: Plan, template: int, buffer: SSAValue, offset: Value) -> Value:
    """A matrix descriptor: in its low bits the address in 16 bytes, without the CTA's rank (PTX ISA 9.1,
    9.7.15.5.1.2.2, ``matrix-descriptor-encode``)."""
    inside = plan.values.sub(plan.place(buffer, offset), plan.terms.shared_window())
    start = plan.values.lift(lambda x: plan.terms.floordiv(x, 16), inside)
    return plan.values.add(plan.terms.const(64, template), plan.values.resize(start, 64))


def wgmma_wait(plan: Plan, op: a.WgmmaWait) -> None:
    """wgmma.wait_group."""
    plan.event(op, "wgmma.wait_group", op.pending.data)


OPS: dict[type[Operation], Callable[..., None]] = {
    a.StoreMatrix: matrices,
    a.LoadMatrix: matrices,
    a.Mma: mma,
    a.Wgmma: wgmma,
    a.WgmmaWait: wgmma_wait,
}
