"""A protocol: the roles of a kernel, the barriers and bytes they share, and what each role does, in order.

A ``Protocol`` is what the checker proves and what another room extracts from a kernel. It holds no data and no
addresses beyond byte positions in named buffers. A role's program is a tree of steps, loops and branches; every
control decision depends only on loop counters, carried counters, trip symbols, the CTA's rank and tickets drawn by the
CTA, so all threads of a role take it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.diag import Location
from tilewright.hw.spaces import Space
from tilewright.protocol.ops import AtomAdd, Op


class By(Enum):
    """The threads of a role that execute a step."""

    ALL = "all"
    ELECTED = "elected"
    """One thread of the role's first warp, always the same: the lane that ``elect.sync`` selects."""
    PER_WARP = "per_warp"
    """The elected lane of every warp of the role; in the first warp the thread of ELECTED."""
    THREAD_ZERO = "thread_zero"
    """``threadIdx.x == 0``: like ELECTED in the CTA's first role, no thread in other roles. The linter reports it."""


@dataclass(frozen=True)
class Step:
    """One op, executed by some threads of the role. ``where`` is the source line, which equality ignores."""

    op: Op
    by: By = By.ALL
    where: Location | None = field(default=None, compare=False)
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Loop:
    """``for counter in range(begin, end, step)``. The counter keeps its name for the body only."""

    counter: str
    begin: Expr
    end: Expr
    step: int
    body: tuple[Node, ...]
    where: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class If:
    """Runs ``then`` where ``condition`` holds, else ``otherwise``."""

    condition: Expr
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()
    where: Location | None = field(default=None, compare=False)


Node = Step | Loop | If


@dataclass(frozen=True)
class Symbol:
    """An integer unknown until run time: a trip count, a tile count, a condition on a tile.

    Its value is any ``least + i * multiple_of`` up to ``most``. With ``per`` it takes a new value for each value of
    the loop counter of that name; roles that loop over that counter see the same value.
    """

    name: str
    least: int = 0
    most: int | None = None
    multiple_of: int = 1
    per: str | None = None


@dataclass(frozen=True)
class Buffer:
    """Named bytes of a space. ``offset`` places it among the others of its space; overlapping buffers alias.

    ``size`` is in bytes, for tensor memory in columns. Register buffers belong to the role that uses them.
    ``initialised`` bytes may be read before the protocol writes them. ``swizzle`` is the span in bytes of the pattern
    (32, 64, 128) in which TMA and the tensor cores address a shared buffer.
    """

    name: str
    space: Space
    size: int
    offset: int = 0
    initialised: bool = False
    swizzle: int = 0


@dataclass(frozen=True)
class MbarrierArray:
    """An array of mbarriers in shared memory, each initialised with ``count`` arrivals."""

    name: str
    slots: int
    count: int


@dataclass(frozen=True)
class GlobalCounter:
    """Words of 32 bits in global memory, zero when the grid begins, that CTAs add to, set and wait for.

    ``reset``: each launch fills them with zeros before the grid begins. Without, every run must leave them at zero for
    the next launch. They belong to one launch: no other grid touches them while it runs.
    """

    name: str
    slots: int = 1
    reset: bool = False


@dataclass(frozen=True)
class Pipeline:
    """A multi-stage pipeline: ``stages`` stages of every buffer of ``data``, handed over by two arrays of mbarriers.

    A phase of the full barriers has ``producers`` arrivals, one of the empty barriers ``consumers``. ``full`` and
    ``empty`` name the arrays where they are not the pipeline's name with that ending.
    """

    name: str
    stages: int
    data: tuple[str, ...] = ()
    producers: int = 1
    consumers: int = 1
    full: str = ""
    empty: str = ""

    @property
    def full_name(self) -> str:
        """The array on which producers arrive."""
        return self.full or f"{self.name}_full"

    @property
    def empty_name(self) -> str:
        """The array on which consumers arrive."""
        return self.empty or f"{self.name}_empty"


@dataclass(frozen=True)
class Role:
    """Threads that run one program. Roles take warps in the order of the protocol.

    ``registers`` is the per-thread count at launch when setmaxnreg is used. ``ctas`` limits the role to some ranks.
    ``counters`` are carried counters with their start values.
    """

    name: str
    threads: int
    body: tuple[Node, ...]
    counters: tuple[tuple[str, int], ...] = ()
    ctas: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Protocol:
    """Everything the checker sees. ``registers_per_thread`` at launch bounds the pool of setmaxnreg.

    A protocol with ``pipelines`` has ops on their uses; provers judge what it expands to (``protocol.pipelines``).

    ``grid`` CTAs (not of one cluster) share global memory and its ``global_counters``, and nothing else. As many of
    them as are ``resident`` surely run at once, until they end: one, if nothing is known; all of a cooperative launch.

    ``target`` names the row of ``hw.target.TARGETS`` whose limits hold and whose instructions there are; unnamed, it is
    any that has all of the protocol's.
    """

    name: str
    roles: tuple[Role, ...]
    buffers: tuple[Buffer, ...] = ()
    barriers: tuple[MbarrierArray, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    cluster: int = 1
    registers_per_thread: int = 168
    pipelines: tuple[Pipeline, ...] = ()
    global_counters: tuple[GlobalCounter, ...] = ()
    grid: int = 1
    resident: int = 1
    target: str = ""

    @property
    def ctas(self) -> int:
        """CTAs that the protocol speaks of: those of its cluster, or of its grid."""
        return max(self.cluster, self.grid)

    @cached_property
    def tickets(self) -> frozenset[str]:
        """Buffers that hold tickets, which conditions may name."""
        drawn = (s.op for role in self.roles for s in steps(role.body))
        return frozenset(op.ticket.buffer for op in drawn if isinstance(op, AtomAdd) and op.ticket is not None)

    def buffer(self, name: str) -> Buffer:
        """The buffer ``name``."""
        return next(b for b in self.buffers if b.name == name)

    def barrier(self, name: str) -> MbarrierArray:
        """The barrier array ``name``."""
        return next(b for b in self.barriers if b.name == name)

    def role(self, name: str) -> Role:
        """The role ``name``."""
        return next(r for r in self.roles if r.name == name)


def body_of(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside a node; of a branch those of ``then``, then those of ``otherwise``."""
    match node:
        case Step():
            return ()
        case Loop():
            return node.body
        case If():
            return node.then + node.otherwise


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """The nodes at all depths, in order of text."""
    for node in nodes:
        yield node
        if not isinstance(node, Step):
            yield from walk(body_of(node))


def steps(nodes: tuple[Node, ...]) -> Iterator[Step]:
    """All steps of a program, in order of text."""
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        if isinstance(node, Step):
            yield node
        else:
            pending.extend(reversed(body_of(node)))


def control_of(node: Node) -> tuple[Expr, ...]:
    """The expressions on which it depends what runs: bounds of a loop, the condition of a branch."""
    match node:
        case Step():
            return ()
        case Loop():
            return node.begin, node.end
        case If():
            return (node.condition,)


def with_bodies(node: Node, change: Callable[[tuple[Node, ...]], tuple[Node, ...]]) -> Node:
    """The node with the programs inside it replaced."""
    match node:
        case Step():
            return node
        case Loop():
            return replace(node, body=change(node.body))
        case If():
            return replace(node, then=change(node.then), otherwise=change(node.otherwise))
