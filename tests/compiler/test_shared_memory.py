"""Shared memory between threads: what is read and not written is found, whichever write is missing."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821, UP037

from __future__ import annotations

import pytest
from xdsl.ir import Block, Region

import tilewright as tw
from tilewright.base.expr import Sym, all_of, sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.plain import require_memory
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.proofs.obligations import missing
from tilewright.compiler.proofs.shared_memory import OBLIGATION, prove_initialised, shared_scratch
from tilewright.diag import TilewrightError
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import dialect as t


@tw.kernel
def column_sums(x: tw.Tensor["M", "N"], y: tw.Tensor["N"]):
    n = tw.grid(x.shape[1], 48)
    m = tw.axis(x.shape[0], upto=256)
    y[n] = x[m, n].to(tw.f32).sum(0)


@tw.kernel
def product_sums(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], s: tw.Tensor["N"]):
    """Partial results of 192 cells, whose sums 128 threads share."""
    m, n = tw.grid((a.shape[0], b.shape[1]), (64, 48))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[k, n])
    tw.reduce_add(s, n, acc.sum(0))


@pytest.fixture(scope="module", params=[column_sums, product_sums], ids=["columns", "products"])
def planned(request: pytest.FixtureRequest) -> PlannedKernel:
    kernel: tw.Kernel = request.param
    dtypes = {tensor.name: "f32" if tensor.name in "sy" else "bf16" for tensor in kernel.tensors}
    return kernel.compiled._plan(kernel.compiled._ahead("sm_90a", dtypes, None, None, None, {})).variants[-1]


def writes(lowered: t.Kernel) -> list[t.SharedWrite]:
    return [op for ops in shared_scratch(lowered).values() for op in ops if isinstance(op, t.SharedWrite)]


def test_what_is_read_was_written(planned: PlannedKernel) -> None:
    answer = prove_initialised(planned.transport)
    assert isinstance(answer, Proved)
    assert [o.name for o in answer.obligations] == [OBLIGATION]
    assert OBLIGATION in {o.name for o in planned.certificate}
    rest = tuple(o for o in planned.certificate if o.name != OBLIGATION)
    assert missing(rest, planned.transport) == (OBLIGATION,)


@pytest.mark.parametrize("fault", ["dropped", "narrowed", "shifted", "moved behind", "skipped", "late"])
def test_a_write_that_is_wrong_is_found(planned: PlannedKernel, fault: str) -> None:
    for number in range(len(writes(planned.transport))):
        lowered = planned.transport.clone()
        write = writes(lowered)[number]
        block = write.parent
        assert block is not None
        match fault:
            case "dropped":
                write.detach()
            case "narrowed":
                write.attributes["guard"] = ExprAttr.of(all_of([write.guard.expr, Sym(t.THREAD) < 32]))
            case "shifted":
                write.attributes["offset"] = ExprAttr.of(write.offset.expr + 1)
            case "moved behind":
                read = next(u.operation for u in write.shared.uses if isinstance(u.operation, t.SharedRead))
                write.detach()
                assert read.parent is not None
                read.parent.insert_op_after(write, read)
            case "skipped":
                perhaps = t.If(sym("M") > 1, Region(Block()), Region(Block()))
                block.insert_op_before(perhaps, write)
                write.detach()
                perhaps.regions[0].block.add_op(write)
            case "late":
                write.attributes["guard"] = ExprAttr.of(all_of([write.guard.expr, sym("M") > 1]))
            case _:
                raise ValueError(fault)
        answer = prove_initialised(lowered)
        assert isinstance(answer, Refuted), f"write {number}"
        assert "nobody writes element" in answer.witness
        with pytest.raises(TilewrightError, match="CRT005"):
            require_memory(planned.tile, lowered)


def test_an_offset_that_threads_do_not_tell_is_open(planned: PlannedKernel) -> None:
    lowered = planned.transport.clone()
    (read, *_) = (op for ops in shared_scratch(lowered).values() for op in ops if isinstance(op, t.SharedRead))
    read.attributes["offset"] = ExprAttr.of(read.offset.expr + sym("M"))
    assert not isinstance(prove_initialised(lowered), Proved | Refuted)
