"""The state of a canonical run, made to be copied: small mutable shells around immutable values.

Causality is kept as sets. Every step of a run that leaves a record (an arrival, an access, a completion seen) has a
number; a *clock* is the set of steps known to be past, as bits of an integer, in six segments:

    S  schedule: what must have happened in every execution         (counts, phases)
    M  memory: what is also visible to generic accesses              (release and acquire of the right scope)
    F  of M, what its own thread fenced with fence.proxy.async       (writer-side fences)
    X  of M, what any thread on the way fenced                       (either-side fences)
    T  of S, what tcgen05 before/after fences hand over              (tensor memory)
    A  of S, what was not learned by a relaxed wait                  (asynchronous accesses)

A step of an agent that stands for many threads is in a clock when *all* of them are known to have done it; what one
such thread knows of itself is in ``AgentState.past``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tilewright.protocol import effects
from tilewright.protocol.effects import QUEUES, Queue, Stage
from tilewright.protocol.model import Step
from tilewright.verify.canonical_runs.agents import CompiledAgent

S, M, F, X, T, A = range(6)
Clock: TypeAlias = tuple[int, int, int, int, int, int]
"""Six sets of step numbers, as bits."""

NOTHING: Clock = (0, 0, 0, 0, 0, 0)


def scheduled(clock: Clock) -> Clock:
    """Of a clock, the schedule alone: what a relaxed wait takes from it."""
    return (clock[S], 0, 0, 0, 0, 0)


Stream: TypeAlias = tuple[object, ...]
"""Something that completes in order: the phases of a barrier, a thread's groups of one kind."""


QUEUE_OF = {kind: q for q in QUEUES for kind in (q.name, f"{q.name} {Stage.DONE.value}")}
"""Queues by the kinds of their streams."""


def stream_of(queue: Queue, agent: CompiledAgent, stage: Stage | None = None) -> Stream:
    """How far the ops of an agent in a queue have come to a stage, by default the first one that the queue tells of."""
    kind = queue.name if stage in (None, queue.stages[0]) else f"{queue.name} {stage.value}"
    return kind, agent.role if queue.collective else agent.index


def join(a: Clock, b: Clock) -> Clock:
    """The union of both."""
    return (a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3], a[4] | b[4], a[5] | b[5])


class CompletionMark(NamedTuple):
    """Someone saw a stream complete from ``since`` up to ``upto``: agent ``c`` in step ``e``; ``own`` if by a group
    wait of the issuing threads themselves rather than through a barrier; not ``acquired`` by a relaxed wait, which
    tells that the phase is over and nothing of what it tracked."""

    upto: int
    c: int
    e: int
    own: bool
    acquired: bool = True
    since: int = 0

    def covers(self, seq: int) -> bool:
        """Whether completion ``seq`` of the stream was seen."""
        return self.since <= seq <= self.upto


class Record(NamedTuple):
    """An access that later ones must be ordered with. Synchronous ones end with step ``e``; asynchronous ones when
    ``stream`` completes up to ``seq``."""

    agent: int
    e: int
    effect: effects.Access
    stream: Stream | None
    seq: int
    step: Step


class ByteHistory(NamedTuple):
    """Bytes with one history: the last write (one access per class of threads that shared it among them) and, per
    (agent, engine), the last read since."""

    writes: tuple[Record, ...]
    reads: tuple[Record, ...]
    older: tuple[tuple[Record, bool], ...] = ()
    """What came before a shared write (and whether it wrote), while some class has yet to write its part."""


EMPTY = ByteHistory((), ())


class Peek(NamedTuple):
    """A test_wait of barrier slot ``b`` for phase ``k``, and what it acquires where it returns true."""

    b: int
    k: int
    acquire: bool
    wide: bool
    """Of a scope wider than the CTA."""


@dataclass
class BarState:
    """One mbarrier of one CTA."""

    pending: int
    phase: int = 0
    """Number of the current incomplete phase; phases of a barrier that is initialised again count on."""
    begin: int = 0
    """The first phase since the barrier was initialised, an even number: its parity is 0."""
    tx: int = 0
    clock: Clock | None = None
    """Join of the current phase's arrivals."""
    remote: Clock | None = None
    """The same for remote arrivals, whose M part only a wait of cluster scope acquires."""
    copies: Clock | None = None
    """S parts of the copies that landed in the current phase."""
    arrivals: tuple[tuple[int, int], ...] = ()
    expects: tuple[tuple[int, int], ...] = ()
    carries: tuple[tuple[Stream, int], ...] = ()
    """Streams whose completion up to a number the current phase tracks (tcgen05.commit, cp.async arrive)."""
    landed: bool = False
    done_clock: Clock | None = None
    done_remote: Clock | None = None
    done_arrivals: tuple[tuple[int, int], ...] | None = None
    """Arrivals of the last complete phase; None if copies took part too."""
    done_carries: tuple[tuple[Stream, int], ...] = ()
    done_landed: bool = False
    waiters: tuple[tuple[int, int, int], ...] = ()
    """Per agent that waited: phase, agent, step of its last wait."""
    asked: tuple[tuple[int, int], ...] = ()
    """Of a barrier that ends, per agent: the step of its last wait or test."""
    ended: tuple[int, int] | None = None
    """Who ended the life before, until the next one begins."""
    init: tuple[int, int] | None = None
    init_fence: tuple[int, int] | None = None

    def copy(self) -> BarState:
        """A shell around the same values."""
        new = object.__new__(BarState)
        new.__dict__.update(self.__dict__)
        return new


@dataclass
class Rendezvous:
    """One use after another of a named barrier, a warp's sync or the cluster barrier."""

    generation: int = 0
    arrived: int = 0
    threads: int = 0
    clock: Clock | None = None
    arrivals: tuple[tuple[int, int], ...] = ()
    sites: frozenset[str] = frozenset()
    done_clock: Clock | None = None
    done_arrivals: tuple[tuple[int, int], ...] = ()
    passed: tuple[tuple[int, int], ...] = ()
    """The agents that returned from the last complete use."""

    def copy(self) -> Rendezvous:
        """A shell around the same values."""
        new = object.__new__(Rendezvous)
        new.__dict__.update(self.__dict__)
        return new


class ReleasedState(NamedTuple):
    """What a release pattern on a word hands on: of which agent and CTA; ``wide``: to other CTAs too."""

    agent: int
    cta: int
    wide: bool
    clock: Clock


class WordUse(NamedTuple):
    """The last strong operation of its kind by an agent on a word; one that ``sets`` it, so that it ``falls``."""

    agent: int
    cta: int
    step: int
    where: Step
    writes: bool
    wide: bool
    sets: bool
    falls: bool


class WordState(NamedTuple):
    """One word of a counter in global memory."""

    value: int = 0
    handed: tuple[ReleasedState, ...] = ()
    uses: tuple[WordUse, ...] = ()


@dataclass
class AgentState:
    """An agent's position and knowledge."""

    pc: int
    env: dict[str, int]
    clock: Clock = NOTHING
    epoch: int = 0
    """Number of the current step."""
    past: int = 0
    """Own steps so far."""
    fence: int = 0
    """Own steps before the last fence.proxy.async."""
    before: int = 0
    """Own steps before the last tcgen05 before-fence."""
    after: int = 0
    """Own steps before the last tcgen05 after-fence."""
    tensor: int = 0
    """T knowledge acquired but not yet behind an after-fence."""
    extra: Clock = NOTHING
    """What a warp sync taught about the own warp only; an arrive of all warps' leaders makes it general."""
    inside: tuple[Stream, int] | None = None
    """The rendezvous the agent is in, with its generation."""
    gift: Clock | None = None
    """What that rendezvous hands on, once complete."""
    waiting: tuple[int, int] | None = None
    """The barrier and phase of the wait the agent is blocked in."""
    cluster: int = -1
    """Generation of the cluster barrier arrived at and not yet waited for."""
    groups: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Per engine: number of the open group, and up to where completion was waited for."""
    filled: dict[str, int] = field(default_factory=dict[str, int])
    """Per engine: the newest group with ops in it."""
    issued: frozenset[str] = frozenset()
    """Engines with ops in the open group."""
    dirty: bool = True
    """Registers touched since the last wgmma.fence."""
    registers: int = 0
    waited: dict[int, int] = field(default_factory=dict[int, int])
    """Per barrier slot: the last phase waited for."""
    signalled: dict[int, int] = field(default_factory=dict[int, int])
    """Per barrier slot: the last phase arrived in, before which all others were complete."""
    peeked: tuple[Peek, ...] = ()
    """Tests whose result has not been used yet."""
    fenced_widely: Clock | None = None
    """What relaxed writes to words hand on since the last fence.acq_rel of scope gpu."""
    fenced_narrowly: Clock | None = None
    """The same of narrower scope."""
    owed: tuple[ReleasedState, ...] = ()
    """What relaxed reads of words have seen handed on, which a fence acquires."""
    done: bool = False

    def copy(self) -> AgentState:
        """A copy that shares only immutable values."""
        new = object.__new__(AgentState)
        new.__dict__.update(self.__dict__)
        new.env = self.env.copy()
        new.groups = self.groups.copy()
        new.filled = self.filled.copy()
        new.waited = self.waited.copy()
        new.signalled = self.signalled.copy()
        return new


TripKey: TypeAlias = tuple[str, int]
"""A symbol and the value of the counter it depends on (-1 without one)."""


class StepEvent(NamedTuple):
    """A step that ran, with the counters in force; ``previous`` links the run backwards."""

    agent: int
    step: Step
    env: tuple[tuple[str, int], ...]
    previous: StepEvent | None


class TripDecision(NamedTuple):
    """A trip count that a run settled; ``previous`` links the run's decisions backwards."""

    key: TripKey
    value: int
    previous: TripDecision | None


def begun(rank: int) -> int:
    """The number of the step by which a CTA begins, known to each of its threads."""
    return 1 + rank


class Trip(NamedTuple):
    """A trip count: at least ``low``; ``exact`` once a run has decided it."""

    low: int
    exact: bool


class MapBytes(NamedTuple):
    """Bytes of a tensor map that were written alike."""

    writers: tuple[tuple[int, int], ...]
    """Agents and the steps of their last writes."""
    releases: tuple[tuple[int, int], ...] = ()
    """Per agent the step of its last release, if that covered all writes."""
    acquired: frozenset[int] = frozenset()
    """Agents that have acquired it."""
    by_copy: bool = False
    """Whether an asynchronous copy wrote it."""


@dataclass
class RunState:
    """All of a run at one point."""

    agents: list[AgentState]
    bars: list[BarState]
    rendezvous: dict[Stream, Rendezvous] = field(default_factory=dict[Stream, Rendezvous])
    memory: dict[Stream, tuple[list[int], list[ByteHistory]]] = field(
        default_factory=dict[Stream, tuple[list[int], list[ByteHistory]]]
    )
    """Per space: start of each cell and the cells, which together cover it."""
    marks: dict[Stream, tuple[CompletionMark, ...]] = field(default_factory=dict[Stream, tuple[CompletionMark, ...]])
    issues: dict[Stream, Clock] = field(default_factory=dict[Stream, Clock])
    """Per wgmma group: join of what its issuing threads knew."""
    tmem: dict[tuple[str, int], tuple[str, int, int]] = field(
        default_factory=dict[tuple[str, int], tuple[str, int, int]]
    )
    maps: dict[tuple[int, int], MapBytes] = field(default_factory=dict[tuple[int, int], MapBytes])
    """Bytes of tensor maps that were written, from one to another."""
    remote: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """Per (target rank, agent): step of the last remote op."""
    outlived: dict[tuple[int, int, Stream], int] = field(default_factory=dict[tuple[int, int, Stream], int])
    """Per (rank, agent, stream): up to where asynchronous ops of the agent reach memory or barriers of that CTA, which
    must know at its end that they are done."""
    pool: dict[int, int] = field(default_factory=dict[int, int])
    """Free registers per CTA."""
    trips: dict[TripKey, Trip] = field(default_factory=dict[TripKey, Trip])
    steps: int = 1
    """Number of the next step."""
    trace: StepEvent | None = None
    decided: TripDecision | None = None
    blocked: set[int] = field(default_factory=set[int])
    relinquished: frozenset[int] = frozenset()
    """CTAs that may allocate tensor memory no more."""
    in_global: int = 0
    """Steps that reached global memory through the generic proxy."""
    words: dict[tuple[str, int], WordState] = field(default_factory=dict[tuple[str, int], WordState])
    turn: int | None = None
    """The agent whose strong operation is next."""
    acted: frozenset[int] = frozenset()
    """CTAs that have done a strong operation, so that they have begun."""

    def copy(self) -> RunState:
        """A state that runs on without touching this one."""
        return RunState(
            [a.copy() for a in self.agents],
            [b.copy() for b in self.bars],
            {k: r.copy() for k, r in self.rendezvous.items()},
            self.memory.copy(),
            self.marks.copy(),
            self.issues.copy(),
            self.tmem.copy(),
            self.maps.copy(),
            self.remote.copy(),
            self.outlived.copy(),
            self.pool.copy(),
            self.trips.copy(),
            self.steps,
            self.trace,
            self.decided,
            set(self.blocked),
            self.relinquished,
            self.in_global,
            self.words,
            self.turn,
            self.acted,
        )
