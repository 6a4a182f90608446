"""From roles to the agents of a run: classes of threads that behave alike, each with flat code.

A role's threads split only where its ops tell them apart:

    warp 0:   E W W W ...     E  elected (lane 0 of warp 0)      W  the other lanes of warp 0
    warp 1..: L R R R ...     L  lane 0 of the other warps       R  the other lanes of the other warps

Without per-warp steps and warp syncs the classes are E and R (everyone else), without elected steps R alone. One agent
stands for all threads of its class; what holds between two threads of one class is tracked apart from what a thread
knows of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilewright.base.expr import Compare, Expr, sym
from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step, body_of, steps, walk, with_bodies


class ThreadKind(Enum):
    """A class of threads of a role."""

    ELECTED = "elected"
    WARP0 = "other lanes of its warp"
    LEADERS = "lane 0 of the other warps"
    REST = "other threads"


@dataclass(frozen=True)
class ThreadClass:
    """A class of threads: ``size`` threads of ``role`` that run the same code."""

    role: str
    kind: ThreadKind
    size: int
    primary: bool
    """The first class of its role: does what the role does once."""

    @property
    def label(self) -> str:
        """Name for people."""
        return self.role if self.primary else f"{self.role} ({self.kind.value})"


def groups_of(role: Role) -> tuple[ThreadClass, ...]:
    """The classes of ``role``, the primary one first."""
    program = list(steps(role.body))
    per_warp = any(s.by is By.PER_WARP or isinstance(s.op, ops.WarpSync) for s in program)
    elected = any(s.by in (By.ELECTED, By.THREAD_ZERO) for s in program)
    n = role.threads
    if n == 1:
        found = [(ThreadKind.ELECTED, 1)]
    elif per_warp:
        warps = n // WARP_THREADS
        found = [
            (ThreadKind.ELECTED, 1),
            (ThreadKind.WARP0, WARP_THREADS - 1),
            (ThreadKind.LEADERS, warps - 1),
            (ThreadKind.REST, (warps - 1) * (WARP_THREADS - 1)),
        ]
    elif elected:
        found = [(ThreadKind.ELECTED, 1), (ThreadKind.REST, n - 1)]
    else:
        found = [(ThreadKind.REST, n)]
    return tuple(ThreadClass(role.name, kind, size, i == 0) for i, (kind, size) in enumerate(f for f in found if f[1]))


_RUNS: dict[ThreadKind, frozenset[By]] = {
    ThreadKind.ELECTED: frozenset(By),
    ThreadKind.WARP0: frozenset((By.ALL,)),
    ThreadKind.LEADERS: frozenset((By.ALL, By.PER_WARP)),
    ThreadKind.REST: frozenset((By.ALL,)),
}


def runs(kind: ThreadKind) -> frozenset[By]:
    """The steps that threads of this kind execute."""
    return _RUNS[kind]


def program_of(role: Role, group: ThreadClass) -> tuple[Node, ...]:
    """The steps that ``group`` executes; unused counters and empty loops are dropped."""
    body = _only(role.body, _RUNS[group.kind])
    while True:
        used = frozenset[str]().union(*(e.symbols for e in expressions(body)))
        smaller = _pruned(body, used)
        if smaller == body:
            return body
        body = smaller


def _only(nodes: tuple[Node, ...], runs: frozenset[By]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        if not isinstance(node, Step):
            out.append(with_bodies(node, lambda body: _only(body, runs)))
        elif node.by in runs:
            out.append(node)
    return tuple(out)


def _pruned(nodes: tuple[Node, ...], used: frozenset[str]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        if isinstance(node, Step):
            kept = not isinstance(node.op, ops.Advance) or node.op.counter in used
        else:
            node = with_bodies(node, lambda body: _pruned(body, used))
            kept = bool(body_of(node))
        if kept:
            out.append(node)
    return tuple(out)


def expressions(nodes: tuple[Node, ...]) -> list[Expr]:
    """Every expression whose value the nodes' behaviour depends on. A counter is not a use of itself, so advancing by
    a constant adds none; a loop's continuation is the comparison of its counter with its end."""
    out: list[Expr] = []
    for node in walk(nodes):
        match node:
            case Step():
                out += node.op.expressions
            case Loop():
                out += [node.begin, Compare("<", sym(node.counter), node.end)]
            case If():
                out.append(node.condition)
    return out


# -- flat code -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RunStep:
    """Execute a step."""

    step: Step


@dataclass(frozen=True)
class LoopEntry:
    """Set the loop's counter to its begin."""

    loop: Loop


@dataclass(frozen=True)
class LoopTest:
    """Go on if the counter is below the end, else jump to ``out``."""

    loop: Loop
    out: int


@dataclass(frozen=True)
class BackEdge:
    """Add the step to the counter and jump back to the test at ``back``."""

    loop: Loop
    back: int


@dataclass(frozen=True)
class Branch:
    """Go on if the condition holds, else jump to ``out``."""

    node: If
    out: int


@dataclass(frozen=True)
class Jump:
    """Jump to ``out``."""

    out: int


Instruction = RunStep | LoopEntry | LoopTest | BackEdge | Branch | Jump


def flatten(nodes: tuple[Node, ...]) -> tuple[Instruction, ...]:
    """The program as instructions with jump targets."""
    code: list[Instruction] = []

    def emit(body: tuple[Node, ...]) -> None:
        for node in body:
            match node:
                case Step():
                    code.append(RunStep(node))
                case Loop():
                    code.append(LoopEntry(node))
                    test = len(code)
                    code.append(Jump(0))
                    emit(node.body)
                    code.append(BackEdge(node, test))
                    code[test] = LoopTest(node, len(code))
                case If():
                    branch = len(code)
                    code.append(Jump(0))
                    emit(node.then)
                    if node.otherwise:
                        jump = len(code)
                        code.append(Jump(0))
                        code[branch] = Branch(node, len(code))
                        emit(node.otherwise)
                        code[jump] = Jump(len(code))
                    else:
                        code[branch] = Branch(node, len(code))

    emit(nodes)
    return tuple(code)


def ranks(protocol: Protocol, role: Role) -> tuple[int, ...]:
    """CTA ranks in which the role exists."""
    return tuple(range(protocol.ctas)) if role.ctas is None else role.ctas
