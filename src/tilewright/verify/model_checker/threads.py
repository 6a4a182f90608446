"""Representatives of the threads of a protocol: as many of each role as can behave differently."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.model import (
    By,
    Node,
    Protocol,
    Role,
    Step,
    body_of,
    control_of,
    steps,
    walk,
    with_bodies,
)


@dataclass(frozen=True)
class Thread:
    """A representative of ``weight`` threads that run the same code."""

    role: str
    cta: int
    label: str
    weight: int
    first_warp: bool
    body: tuple[Node, ...]
    counters: tuple[tuple[str, int], ...]
    threads_of_role: int

    @property
    def team(self) -> tuple[str, int]:
        """The role in its CTA."""
        return self.role, self.cta


def threads_of(protocol: Protocol) -> tuple[Thread, ...]:
    """Representatives of every role in every CTA: the elected thread and one other, or two if all threads behave the
    same; with per-warp steps two of each warp."""
    return tuple(
        thread
        for cta in range(protocol.ctas)
        for role in protocol.roles
        if role.ctas is None or cta in role.ctas
        for thread in _representatives(role, cta)
    )


def _representatives(role: Role, cta: int) -> list[Thread]:
    bys = {s.by for s in steps(role.body)}
    warp_wise = By.PER_WARP in bys or any(isinstance(s.op, ops.WarpSync) for s in steps(role.body))
    n = role.threads
    if n == 1:
        shape = [("", 1, True, True)]
    elif warp_wise:
        warps, lanes = n // WARP_THREADS, WARP_THREADS - 1
        shape = [
            ("", 1, True, True),
            (" lanes", lanes, False, True),
            (" lane0", warps - 1, True, False),
            (" others", (warps - 1) * lanes, False, False),
        ]
    elif bys & {By.ELECTED, By.THREAD_ZERO}:
        shape = [("", 1, True, True), (" rest", n - 1, False, True)]
    else:
        shape = [("", n - 1, False, True), (" last", 1, False, True)]
    out: list[Thread] = []
    for suffix, weight, lane0, first in shape:
        if weight:
            body = _pruned(_mine(role.body, lane0 and first, lane0))
            out.append(Thread(role.name, cta, role.name + suffix, weight, first, body, role.counters, n))
    return out


def _mine(nodes: tuple[Node, ...], elected: bool, lane0: bool) -> tuple[Node, ...]:
    """The steps that a thread executes; loops and branches stay."""
    bys = {By.ALL}
    bys |= {By.ELECTED, By.THREAD_ZERO} if elected else set()
    bys |= {By.PER_WARP} if lane0 else set()
    mine = (node for node in nodes if not isinstance(node, Step) or node.by in bys)
    return tuple(with_bodies(node, lambda body: _mine(body, elected, lane0)) for node in mine)


def _pruned(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Without counters that nothing reads, and loops and branches in which nothing happens."""
    while True:
        found = (
            e for node in walk(body) for e in (node.op.expressions if isinstance(node, Step) else control_of(node))
        )
        smaller = _without(body, frozenset[str]().union(*(e.symbols for e in found)))
        if smaller == body:
            return body
        body = smaller


def _without(nodes: tuple[Node, ...], read: frozenset[str]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        inside = with_bodies(node, lambda body: _without(body, read))
        if isinstance(inside, Step):
            idle = isinstance(inside.op, ops.Advance) and inside.op.counter not in read
        else:
            idle = not body_of(inside)
        if not idle:
            out.append(inside)
    return tuple(out)
