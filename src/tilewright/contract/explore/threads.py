"""Representatives of the threads of a protocol: as many of each role as can behave differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.expr import Expr
from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step, steps


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
    """Representatives of every role in every CTA: the elected thread and one other, or two where all are alike; with
    per-warp steps two of each warp."""
    return tuple(
        thread
        for cta in range(protocol.cluster)
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
    out: list[Node] = []
    for node in nodes:
        match node:
            case Step():
                one = node.by in (By.ELECTED, By.THREAD_ZERO)
                if node.by is By.ALL or (elected and one) or (lane0 and node.by is By.PER_WARP):
                    out.append(node)
            case Loop():
                out.append(replace(node, body=_mine(node.body, elected, lane0)))
            case If():
                then, otherwise = _mine(node.then, elected, lane0), _mine(node.otherwise, elected, lane0)
                out.append(replace(node, then=then, otherwise=otherwise))
    return tuple(out)


def _pruned(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Without counters that nothing reads, and loops and branches in which nothing happens."""
    while True:
        read = frozenset[str]().union(*(e.symbols for node in body for e in _read(node)))
        smaller = _without(body, read)
        if smaller == body:
            return body
        body = smaller


def _without(nodes: tuple[Node, ...], read: frozenset[str]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        match node:
            case Step(op=ops.Advance(counter)) if counter not in read:
                pass
            case Step():
                out.append(node)
            case Loop():
                inside = _without(node.body, read)
                if inside:
                    out.append(replace(node, body=inside))
            case If():
                then, otherwise = _without(node.then, read), _without(node.otherwise, read)
                if then or otherwise:
                    out.append(replace(node, then=then, otherwise=otherwise))
    return tuple(out)


def _read(node: Node) -> Sequence[Expr]:
    match node:
        case Step():
            return node.op.expressions
        case Loop():
            return [node.begin, node.end, *(e for x in node.body for e in _read(x))]
        case If():
            return [node.condition, *(e for x in node.then + node.otherwise for e in _read(x))]
