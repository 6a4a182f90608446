"""What every re-created bug is made of: the protocol, its twin, and what the checker must say."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.base.expr import Expr
from tilewright.protocol import Build, Protocol, Ring, RoleBuilder
from tilewright.protocol import ops as o


@dataclass(frozen=True)
class Exhibit:
    """A bug of ``tests/data/real_bugs.json``.

    ``build(fixed)`` gives the buggy protocol or its twin. ``code`` names the bug under the strict policy. ``fix`` is
    what the twin adds (+) and drops (-), line by line. ``lenient`` and ``advisory``: the bug is only warned of when
    lenient, or always.
    """

    entry: str
    build: Callable[[bool], Protocol]
    code: str
    fix: tuple[str, ...]
    lenient: bool = False
    advisory: bool = False


def rewritten(*kinds: str) -> tuple[str, ...]:
    """A fix that changes lines of these kinds."""
    return tuple(sign + kind for kind in kinds for sign in "-+")


def fill(b: Build, ring: Ring, kt: Expr, before: tuple[o.Op, ...] = ()) -> None:
    """A producer warp that fills the ring by TMA; ``before`` stands between the wait and the copy."""
    with b.role("producer", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.wait_empty(k))
            for op in before:
                p.one(op)
            p.one(ring.expect(k))
            p.one(ring.load(k))


@contextmanager
def drain(
    b: Build, ring: Ring, kt: Expr, name: str = "consumer", threads: int = 128
) -> Generator[tuple[RoleBuilder, Expr]]:
    """A role that waits for every stage in turn; the body says what it does with it, and how it releases it."""
    with b.role(name, threads) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.wait_full(k))
            yield c, k


def fill_once(role: RoleBuilder, data: o.Region, full: o.Slot) -> None:
    """One copy of ``data``, expected and tracked by ``full``."""
    role.one(o.ArriveExpectTx(full, data.size))
    role.one(o.TmaLoad(data, full))
