"""An instance of a protocol for the explorer: real threads in place of roles, trip counts in place of symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tilewright.base.expr import Const, Expr
from tilewright.protocol import ops
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step, steps

Sizes = Callable[[str, int], int]
"""The value of a trip symbol, given the value of the counter it varies with (-1 without one)."""


@dataclass(frozen=True)
class Thread:
    """A representative of ``weight`` threads that run the same code."""

    role: str
    cta: int
    label: str
    weight: int
    lane0: bool
    first_warp: bool
    body: tuple[Node, ...]
    counters: tuple[tuple[str, int], ...]
    threads_of_role: int


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
        warps = n // 32
        shape = [
            ("", 1, True, True),
            (" lanes", 31, False, True),
            (" lane0", warps - 1, True, False),
            (" others", (warps - 1) * 31, False, False),
        ]
    elif bys & {By.ELECTED, By.THREAD_ZERO}:
        shape = [("", 1, True, True), (" rest", n - 1, False, True)]
    else:
        shape = [("", n - 1, False, True), (" last", 1, False, True)]
    out: list[Thread] = []
    for suffix, weight, lane0, first in shape:
        if weight:
            body = tuple(_mine(role.body, lane0 and first, lane0))
            out.append(Thread(role.name, cta, role.name + suffix, weight, lane0, first, body, role.counters, n))
    return out


def _mine(nodes: tuple[Node, ...], elected: bool, lane0: bool) -> list[Node]:
    out: list[Node] = []
    for node in nodes:
        match node:
            case Step():
                one = node.by in (By.ELECTED, By.THREAD_ZERO)
                if node.by is By.ALL or (elected and one) or (lane0 and node.by is By.PER_WARP):
                    out.append(node)
            case Loop():
                out.append(
                    Loop(
                        node.counter,
                        node.begin,
                        node.end,
                        node.step,
                        tuple(_mine(node.body, elected, lane0)),
                        node.where,
                    )
                )
            case If():
                out.append(
                    If(
                        node.condition,
                        tuple(_mine(node.then, elected, lane0)),
                        tuple(_mine(node.otherwise, elected, lane0)),
                        node.where,
                    )
                )
    return out


@dataclass(frozen=True)
class Call:
    """One op of a straight-line program, with its expressions replaced by numbers."""

    op: ops.Op
    step: Step
    env: tuple[tuple[str, int], ...]


class TooLong(Exception):
    """The instance has more steps than asked for."""


def unrolled(protocol: Protocol, thread: Thread, sizes: Sizes, limit: int) -> tuple[Call, ...]:
    """The straight line of ops that the thread executes in this instance; raises ``TooLong`` beyond ``limit``."""
    per = {s.name: s.per for s in protocol.symbols}
    env: dict[str, int] = {**dict(thread.counters), ops.CTA_RANK: thread.cta}
    out: list[Call] = []
    turns = 0

    def value(e: Expr) -> int:
        names = e.symbols & per.keys()
        if not names:
            return int(e.evaluate(env))
        full: dict[str, int] = dict(env)
        for name in names:
            counter = per[name]
            full[name] = sizes(name, -1 if counter is None else env.get(counter, -1))
        return int(e.evaluate(full))

    def run(nodes: tuple[Node, ...]) -> None:
        nonlocal turns
        for node in nodes:
            match node:
                case Step(op=ops.Advance(counter, by)):
                    env[counter] += value(by)
                case Step():
                    out.append(Call(concrete(node.op, value), node, tuple(env.items())))
                    if len(out) > limit:
                        raise TooLong
                case Loop():
                    env[node.counter] = value(node.begin)
                    while env[node.counter] < value(node.end):
                        turns += 1
                        if turns > limit:
                            raise TooLong
                        run(node.body)
                        env[node.counter] += node.step
                    del env[node.counter]
                case If():
                    run(node.then if value(node.condition) else node.otherwise)

    run(thread.body)
    return tuple(out)


def concrete(op: ops.Op, value: Callable[[Expr], int]) -> Any:
    """The op with each expression replaced by its value."""
    return _concrete(op, value)


def _concrete(item: Any, value: Callable[[Expr], int]) -> Any:
    if isinstance(item, Expr):
        return Const(value(item))
    if isinstance(item, tuple):
        return tuple(_concrete(x, value) for x in cast(tuple[Any, ...], item))
    names: Mapping[str, object] | None = getattr(item, "__dataclass_fields__", None)
    if names is None or isinstance(item, type):
        return item
    return type(item)(**{n: _concrete(getattr(item, n), value) for n in names})
