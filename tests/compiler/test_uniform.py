"""A bound that is loaded is the same in all threads: one element of shared memory, which all of them read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.indexed import CASES
from support.lowered import lowered
from tilewright.base.expr import Sym
from tilewright.base.verdict import Proved, Unknown
from tilewright.compiler.obligations import missing
from tilewright.compiler.proofs.uniform import UNIFORM, bound_in, prove_uniform
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import dialect as t


def kernel() -> t.Kernel:
    case = CASES["mean_of_lengths"]
    found = lowered(case.kernel, {"lengths": "i32", "x": "f32", "y": "f32"})
    return next(iter(found.values()))[1]


def read_of(bind: t.Bind) -> t.SharedRead:
    return next(use.operation for use in bind.buffer.uses if isinstance(use.operation, t.SharedRead))


def by_some(read: t.SharedRead) -> None:
    read.attributes["guard"] = ExprAttr(Sym(t.THREAD) < 16)


def each_its_own(read: t.SharedRead) -> None:
    read.attributes["offset"] = ExprAttr(Sym(t.THREAD))


def as_loaded(read: t.SharedRead) -> None:
    read.detach()


def behind(read: t.SharedRead) -> None:
    bind = next(use.operation for use in read.buffer.uses if isinstance(use.operation, t.Bind))
    read.detach()
    block = bind.parent
    assert block is not None
    block.insert_op_after(read, bind)


def test_what_all_read_is_the_same() -> None:
    made = kernel()
    answer = prove_uniform(made)
    assert isinstance(answer, Proved)
    assert [o.name for o in answer.obligations] == [UNIFORM]
    assert UNIFORM in missing((), made)


@pytest.mark.parametrize("change", [by_some, each_its_own, as_loaded, behind])
def test_other_ways_are_not(change: Callable[[t.SharedRead], None]) -> None:
    made = kernel()
    (bind,) = bound_in(made)
    change(read_of(bind))
    assert isinstance(prove_uniform(made), Unknown)
