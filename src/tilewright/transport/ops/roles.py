"""Warp roles and what joins threads: elected threads, carried counters, setmaxnreg, named and cluster barriers."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Operation, Region
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def, region_def, traits_def
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.base.expr import Const, Expr, own
from tilewright.hw.spaces import WARPGROUP_THREADS
from tilewright.tile.dialect import ExprAttr
from tilewright.tile.ops import integer, string
from tilewright.transport.ops.base import SyncOp, TransportOp

WARPGROUP = own("warpgroup")
CTA_RANK = own("cluster_ctarank")
"""The executing CTA's rank in its cluster (PTX ISA 9.1, 10.14)."""

MAX_PERIOD = 1 << 16
"""Of a counter; so much more than ``MAX_EXTENT`` fits 32 bits, too."""

_ROLE_BARRIERS = 8


def role_barrier(index: int) -> int:
    """Number of the named barrier that joins the threads of the kernel's ``index``-th role; those below are free."""
    return _ROLE_BARRIERS + index


@irdl_op_definition
class Role(TransportOp):
    """Threads ``first .. first + threads - 1`` of the CTA run the body; other threads skip it.

    Roles are whole warpgroups and stand one after another at the end of the kernel.
    """

    name = "transport.role"
    label = attr_def(StringAttr)
    first = attr_def(IntAttr)
    threads = attr_def(IntAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, label: str, first: int, threads: int, body: Region):
        super().__init__(
            attributes={"label": string(label), "first": integer(first), "threads": integer(threads)},
            regions=[body],
        )

    def verify_(self) -> None:
        if self.first.data % WARPGROUP_THREADS or self.threads.data % WARPGROUP_THREADS or self.threads.data <= 0:
            raise VerifyException(f"a role is whole warpgroups, not threads {self.first.data} + {self.threads.data}")


def warpgroups_of(op: TransportOp) -> int:
    """Warpgroups of the role around ``op``; 1 outside of roles."""
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, Role):
            return parent.threads.data // WARPGROUP_THREADS
        parent = parent.parent_op()
    return 1


@irdl_op_definition
class Elected(TransportOp):
    """One thread of the first warp runs the body, in a role one of every warpgroup: in every body of a role the same.

    Which lane it is, is not specified (``elect.sync``); no access of the body may depend on ``tid``.
    """

    name = "transport.elected"
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, body: Region):
        super().__init__(regions=[body])


@irdl_op_definition
class Counter(TransportOp):
    """An integer that is carried across loops, ``start`` at first; the same for all threads that run it.

    With ``period`` nothing depends on more than its remainder by it: between programs the emitted text keeps that
    alone, so that what a program counts has to fit 32 bits, not what all programs of a CTA do."""

    name = "transport.counter"
    symbol = attr_def(StringAttr)
    start = attr_def(IntAttr)
    period = opt_attr_def(IntAttr)

    def __init__(self, symbol: str, start: int = 0, period: int | None = None):
        attributes = {"symbol": string(symbol), "start": integer(start)}
        super().__init__(attributes=attributes | ({} if period is None else {"period": integer(period)}))

    def verify_(self) -> None:
        if self.period is not None and not 1 <= self.period.data <= MAX_PERIOD:
            raise VerifyException(f"a counter's period is 1 to {MAX_PERIOD}, not {self.period.data}")


@irdl_op_definition
class Advance(TransportOp):
    """Adds ``by`` to a carried counter."""

    name = "transport.advance"
    symbol = attr_def(StringAttr)
    by = attr_def(ExprAttr)

    def __init__(self, symbol: str, by: Expr = Const(1)):  # noqa: B008  (expressions are immutable)
        super().__init__(attributes={"symbol": string(symbol), "by": ExprAttr.of(by)})


@irdl_op_definition
class SetMaxRegisters(TransportOp):
    """setmaxnreg: registers per thread of each warpgroup of the role; more than at launch waits for others to give."""

    name = "transport.setmaxnreg"
    count = attr_def(IntAttr)

    def __init__(self, count: int):
        super().__init__(attributes={"count": integer(count)})

    def verify_(self) -> None:
        if self.count.data % 8 or not 24 <= self.count.data <= 256:
            raise VerifyException(f"setmaxnreg takes a multiple of 8 from 24 to 256, not {self.count.data}")


# -- barriers of threads ----------------------------------------------------------------------------------------------
class _NamedBarrier(TransportOp):
    """Shared by named barriers: ``id`` may use ``warpgroup``; ``threads`` take part."""

    id = attr_def(ExprAttr)
    threads = attr_def(IntAttr)

    def __init__(self, id: Expr, threads: int):
        super().__init__(attributes={"id": ExprAttr.of(id), "threads": integer(threads)})


@irdl_op_definition
class NamedBarrierSync(_NamedBarrier):
    """bar.sync: arrives and waits."""

    name = "transport.named_barrier_sync"


@irdl_op_definition
class NamedBarrierArrive(_NamedBarrier):
    """bar.arrive: arrives without waiting."""

    name = "transport.named_barrier_arrive"


@irdl_op_definition
class ClusterArrive(SyncOp):
    """barrier.cluster.arrive (release): every executing thread arrives at the barrier of the cluster's threads."""

    name = "transport.cluster_arrive"
    INSTRUCTION: ClassVar = "barrier.cluster.arrive"


@irdl_op_definition
class ClusterWait(SyncOp):
    """barrier.cluster.wait (acquire): waits until every thread of the cluster has arrived or ended."""

    name = "transport.cluster_wait"
    INSTRUCTION: ClassVar = "barrier.cluster.wait"


def role_of(op: Operation) -> Role | None:
    """The role whose threads execute an op; None where the kernel has no roles."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, Role):
        parent = parent.parent_op()
    return parent


OPS = [
    Role,
    Elected,
    Counter,
    Advance,
    SetMaxRegisters,
    NamedBarrierSync,
    NamedBarrierArrive,
    ClusterArrive,
    ClusterWait,
]
