"""Roles that most small protocols need: one that fills a ring by TMA, one that waits for its stages in turn."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tilewright.base.expr import Expr
from tilewright.protocol import Build, PipelineHandle, RoleBuilder
from tilewright.protocol import ops as o


def load(p: RoleBuilder, ring: PipelineHandle, use: Expr, before: tuple[o.Op, ...] = ()) -> None:
    """One stage of a ring by TMA; ``before`` stands between the wait and the copy."""
    p.one(ring.producer_acquire(use))
    for op in before:
        p.one(op)
    p.one(ring.producer_commit(use))
    p.one(ring.load(use))


def fill(b: Build, ring: PipelineHandle, kt: Expr, before: tuple[o.Op, ...] = (), threads: int = 32) -> None:
    """A producer that fills the ring by TMA; ``before`` stands between the wait and the copy."""
    with b.role("producer", threads) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            load(p, ring, k, before)


@contextmanager
def drain(
    b: Build, ring: PipelineHandle, kt: Expr, name: str = "consumer", threads: int = 128
) -> Generator[tuple[RoleBuilder, Expr]]:
    """A role that waits for every stage in turn; the body says what it does with it, and how it releases it."""
    with b.role(name, threads) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            yield c, k


def fill_once(role: RoleBuilder, data: o.Region, full: o.Slot) -> None:
    """One copy of ``data``, expected and tracked by ``full``."""
    role.one(o.ArriveExpectTx(full, data.size))
    role.one(o.TmaLoad(data, full))
