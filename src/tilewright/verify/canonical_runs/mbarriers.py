"""The effects of mbarrier ops in a canonical run."""

from __future__ import annotations

from tilewright.base.expr import Expr
from tilewright.protocol.effects import Await, BarrierLife, Release, Signal
from tilewright.protocol.model import Step
from tilewright.protocol.operands import Scope
from tilewright.protocol.well_formed import MAX_ARRIVALS
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.peers import note_remote, outlives
from tilewright.verify.canonical_runs.state import (
    BarState,
    Clock,
    CompletionMark,
    M,
    Peek,
    RunState,
    S,
    Stream,
    join,
    scheduled,
    stream_of,
)
from tilewright.verify.rules import Rule

MAX_TX = MAX_ARRIVALS  # both counters have 20 bits (PTX ISA 9.1, 9.7.13.15.2)


# -- life ----------------------------------------------------------------------------------------------------------
def life(x: StepExecution, effect: BarrierLife) -> bool:
    """Barriers of an array are initialised, or invalidated."""
    m, slots = x.m, x.m.barriers[effect.barrier].slots
    first = x.agent.cta * m.slots_per_cta + m.bar_base[effect.barrier]
    if effect.begins:
        m.spend(slots)
    for b in range(first, first + (slots if effect.slots is None else min(slots, effect.slots))):
        (_init if effect.begins else _inval)(x, b)
    return True


def _init(x: StepExecution, b: int) -> None:
    bar = x.st.bars[b]
    if bar.init is not None:
        raise x.breach(Rule.INIT, f"{x.m.bar_name(b)} is initialised twice without inval between")
    if bar.ended is not None and not x.knows(M, *bar.ended):
        raise x.breach(Rule.INIT, f"{x.m.bar_name(b)} is initialised by {x.label} when it may not have ended yet")
    bar.init, bar.ended = (x.agent.index, x.a.epoch), None
    bar.init_fence = None


def _inval(x: StepExecution, b: int) -> None:
    _visible(x, b)
    bar = x.st.bars[b]
    if not all(x.saw(M, c, e) for c, e in bar.asked):
        raise x.breach(Rule.INIT, f"{x.m.bar_name(b)} is invalidated while others may use it")
    begun = [by for by in (*bar.arrivals, *bar.expects) if by[0] != x.agent.index and not x.knows(S, *by)]
    if begun or bar.landed or bar.carries or not _knows_phase(x, b, bar.phase - 1):
        detail = f"{x.m.bar_name(b)} is invalidated while copies or arrivals may be on their way to it"
        raise x.breach(Rule.INIT, detail)
    begin = bar.phase + bar.phase % 2
    x.st.bars[b] = BarState(x.m.barrier_of(b).count, begin, begin, ended=(x.agent.index, x.a.epoch))


def fence_init(x: StepExecution) -> None:
    """The agent's initialisations so far are fenced."""
    for bar in x.st.bars:
        if bar.init is not None and bar.init[0] == x.agent.index and bar.init_fence is None:
            bar.init_fence = (x.agent.index, x.a.epoch)


def _visible(x: StepExecution, b: int) -> None:
    """The barrier is initialised, and the agent may know it."""
    bar, name = x.st.bars[b], x.m.bar_name(b)
    if bar.init is None:
        raise x.breach(Rule.INIT, f"{name} is not initialised when {x.label} uses it")
    if bar.init[0] == x.agent.index and x.agent.group.size == 1:
        return
    fenced = bar.init_fence is not None and x.knows(S, *bar.init_fence)
    if not x.knows(M, *bar.init) and not fenced:
        raise x.breach(Rule.INIT, f"the initialisation of {name} is not ordered before {x.label}")
    if not fenced:
        found = x.breach(Rule.INIT_FENCE, f"no init fence between the init of {name} and use")
        if x.m.protocol.cluster > 1:
            raise found
        x.m.warnings.setdefault((Rule.INIT_FENCE, name.partition("[")[0]), found)


# -- phases --------------------------------------------------------------------------------------------------------
def _knows_phase(x: StepExecution, b: int, k: int) -> bool:
    """Whether phase ``k`` of barrier ``b`` is complete before the agent's next step, in every schedule."""
    bar = x.st.bars[b]
    if k < bar.begin or x.a.waited.get(b, -1) >= k or x.a.signalled.get(b, -1) > k:
        return True
    for mark in x.st.marks.get(("bar", b), ()):
        if mark.upto >= k and x.saw(S, mark.c, mark.e):
            return True
    if k > bar.phase - 1 or bar.done_arrivals is None:
        return False
    return all(x.knows(S, c, e) for c, e in bar.done_arrivals)


def _phase_open(x: StepExecution, b: int, what: str) -> None:
    """An arrival (or bytes, or an expectation) belongs to the current phase in every schedule."""
    bar = x.st.bars[b]
    if x.m.barrier_of(b).name in x.m.users.unwatched:
        return
    if not _knows_phase(x, b, bar.phase - 1):
        detail = f"{what} of {x.label} on {x.m.bar_name(b)} may fall into phase {bar.phase - 1} instead of {bar.phase}"
        raise x.breach(Rule.RECYCLE, detail)
    x.a.signalled[b] = bar.phase


def signal(x: StepExecution, effect: Signal) -> bool:
    """Arrivals, expected bytes and landed bytes; what waits for earlier ops happens at once in the canonical run."""
    for rank in sorted({x.rank(e) for e in effect.ranks}) or (None,):
        b = x.bar(effect.bar, rank)
        if effect.lands:
            for _ in range(x.agent.group.size):
                _land(x, b, effect.lands)
            continue
        if effect.after is not None:
            _carry(x, effect, b)
        if effect.expects or not effect.arrivals or effect.raises_count:
            _expect(x, b, effect.expects)
        if effect.arrivals and not effect.raises_count:
            _arrive(x, b, effect)
    return True


def _carry(x: StepExecution, effect: Signal, b: int) -> None:
    """The phase tracks the agent's ops of a queue so far."""
    assert effect.after is not None
    stream, number = stream_of(effect.after, x.agent), x.a.groups.get(effect.after.name, (0, -1))[0]
    x.st.bars[b].carries = (*x.st.bars[b].carries, (stream, number))
    if b // x.m.slots_per_cta != x.agent.cta:
        outlives(x, b // x.m.slots_per_cta, stream, number)


def _arrive(x: StepExecution, b: int, effect: Signal) -> None:
    """An arrival of the agent's threads."""
    count = effect.arrivals * x.agent.group.size
    _visible(x, b)
    _phase_open(x, b, "the arrival")
    bar = x.st.bars[b]
    if count > bar.pending:
        more = "" if bar.tx == 0 else f" (its phase still waits for {bar.tx} bytes)"
        detail = f"{count} arrivals on {x.m.bar_name(b)}, which has {bar.pending} pending in phase {bar.phase}{more}"
        raise x.breach(Rule.COUNT, detail)
    clock = _handed_on(x, b, effect)
    bar.clock = clock if bar.clock is None else join(bar.clock, clock)
    bar.arrivals = (*bar.arrivals, (x.agent.index, x.a.epoch))
    bar.pending -= count
    _complete(x, b)


def _handed_on(x: StepExecution, b: int, effect: Signal) -> Clock:
    """What an arrival publishes to waiters; to a barrier of a peer only what its scope covers."""
    bar, owner, memory = x.st.bars[b], b // x.m.slots_per_cta, effect.release is Release.MEMORY
    remote = owner != x.agent.cta
    if remote:
        note_remote(x, owner)
    if effect.release is Release.TENSOR:
        return x.committed()
    if remote and memory and effect.scope is not Scope.CTA:
        clock = x.released()
        bar.remote = clock if bar.remote is None else join(bar.remote, clock)
    return x.released(memory and not remote)


def _expect(x: StepExecution, b: int, bytes: int) -> None:
    _visible(x, b)
    if b // x.m.slots_per_cta != x.agent.cta:
        note_remote(x, b // x.m.slots_per_cta)
    _phase_open(x, b, "expect_tx")
    bar = x.st.bars[b]
    bar.tx += bytes * x.agent.group.size
    bar.expects = (*bar.expects, (x.agent.index, x.a.epoch))
    if abs(bar.tx) > MAX_TX:
        raise x.breach(Rule.BYTES, f"{bar.tx} bytes on {x.m.bar_name(b)}; a phase counts {MAX_TX}")


def _land(x: StepExecution, b: int, bytes: int) -> None:
    """The bytes of the agent's copy arrive; the canonical run completes copies at once."""
    _visible(x, b)
    bar = x.st.bars[b]
    if not bar.expects and not _knows_phase(x, b, bar.phase - 1):
        last = f"phase {bar.phase - 1} of {x.m.bar_name(b)}, which has all the bytes that it expects"
        raise x.breach(Rule.BYTES, f"the copy's bytes of {x.label} may land in {last}")
    _phase_open(x, b, "the copy's bytes")
    bar.tx -= bytes
    bar.landed = True
    if abs(bar.tx) > MAX_TX:
        raise x.breach(Rule.BYTES, f"{-bar.tx} bytes beyond those expected on {x.m.bar_name(b)}")
    clock = x.released(memory=False)
    bar.copies = clock if bar.copies is None else join(bar.copies, clock)
    _complete(x, b)


def _complete(x: StepExecution, b: int) -> None:
    """Completes the phase if nothing is pending; checks what must hold at that moment."""
    bar = x.st.bars[b]
    if bar.pending or bar.tx:
        return
    assert bar.clock is not None
    _check_completion(x, b, bar.clock if bar.remote is None else join(bar.clock, bar.remote))
    bar.done_clock = bar.clock if bar.copies is None else join(bar.clock, bar.copies)
    bar.done_remote = bar.remote
    bar.done_arrivals = None if bar.landed or bar.carries else bar.arrivals
    bar.done_landed = bar.landed
    bar.done_carries = bar.carries
    bar.clock = bar.remote = bar.copies = None
    bar.arrivals = bar.expects = ()
    bar.carries = ()
    bar.landed = False
    bar.phase += 1
    bar.pending = x.m.barrier_of(b).count
    x.m.wake(x.st)


def _check_completion(x: StepExecution, b: int, arrived: Clock) -> None:
    """At the end of a phase: all its bytes were expected before the last arrival, no wait is a lap behind."""
    bar, k, name = x.st.bars[b], x.st.bars[b].phase, x.m.bar_name(b)
    for c, e in bar.expects:
        if not arrived[S] >> e & 1:
            what = f"expect_tx of {x.m.agents[c].label} on {name}"
            raise x.breach(Rule.BYTES, f"{what} may come after the last arrival of phase {k}")
    reached = arrived if bar.copies is None else join(arrived, bar.copies)
    late = [c for phase, c, e in bar.waiters if phase == k - 1 and not reached[S] >> e & 1]
    late += [agent.index for agent in x.m.agents if x.st.agents[agent.index].waiting == (b, k - 1)]
    if late:
        detail = f"phase {k} of {name} can complete before {x.m.agents[late[0]].label} returns from its wait for "
        raise x.breach(Rule.LAPPING, f"{detail}phase {k - 1}", _last_wait(x, late[0]))


def _last_wait(x: StepExecution, c: int) -> tuple[int, Step] | None:
    standing = x.m.step_at(x.m.agents[c], x.st.agents[c])
    if x.st.agents[c].waiting is not None and standing is not None:
        return c, standing
    event = x.st.trace
    while event is not None:
        if event.agent == c and any(wait.blocks for wait in event.step.op.of(Await)):
            return c, event.step
        event = event.previous
    return None


# -- waits ---------------------------------------------------------------------------------------------------------
def await_(x: StepExecution, effect: Await) -> bool:
    """A wait, or a test of a phase."""
    b = x.bar(effect.bar)
    k = _asked(x, b, effect.parity)
    if effect.blocks:
        return _wait(x, effect, b, k)
    # its answer may be false in some schedules: it teaches nothing, but its phase must be its wait's
    test = Peek(b, k, effect.acquire, effect.scope is not Scope.CTA)
    x.a.peeked = (*(other for other in x.a.peeked if other.b != b), test)
    return True


def _asked(x: StepExecution, b: int, parity: Expr) -> int:
    """The phase that a wait or test of this parity is about; it must be the same in every schedule."""
    bar = x.st.bars[b]
    _visible(x, b)
    if x.m.barrier_of(b).name in x.m.users.invalidated:
        bar.asked = (*(by for by in bar.asked if by[0] != x.agent.index), (x.agent.index, x.a.epoch))
    same = (bar.phase - 1) % 2 == x.value(parity) % 2
    k = bar.phase - 1 if same else bar.phase
    if not _knows_phase(x, b, k - 1):
        detail = f"{x.label} waits for phase {k} of {x.m.bar_name(b)}, but phase {k - 1} may be incomplete then, and "
        raise x.breach(Rule.EARLY, f"{detail}phase {k - 2} has the same parity")
    return k


def _wait(x: StepExecution, effect: Await, b: int, k: int) -> bool:
    a, bar = x.a, x.st.bars[b]
    tests = [test for test in a.peeked if test.b == b] if effect.peeked else []
    if any(test.k != k for test in tests):
        raise x.breach(Rule.EARLY, f"{x.label} tested {x.m.bar_name(b)} for another phase than its wait's, {k}")
    if k >= bar.phase:
        a.waiting = (b, k)
        return False
    a.waiting = None
    a.peeked = tuple(test for test in a.peeked if test.b != b)
    # a thread whose test returned true skips the wait: it has what the test acquired
    acquires = effect.acquire and all(test.acquire for test in tests)
    wide = effect.scope is not Scope.CTA and all(test.wide for test in tests)
    if k >= 0 and bar.done_clock is not None:
        x.acquire(bar.done_clock if acquires else scheduled(bar.done_clock))
    if k >= 0 and bar.done_remote is not None:
        s, *_, y = bar.done_remote
        narrow = (s, 0, 0, 0, 0, y)
        x.acquire(scheduled(bar.done_remote) if not acquires else bar.done_remote if wide else narrow)
    a.waited[b] = k
    bar.waiters = (*(w for w in bar.waiters if w[1] != x.agent.index), (k, x.agent.index, a.epoch))
    if k >= bar.begin:
        saw(x.st, ("bar", b), CompletionMark(k, x.agent.index, a.epoch, False, acquires, bar.begin))
    for stream, upto in bar.done_carries:
        saw(x.st, stream, CompletionMark(upto, x.agent.index, a.epoch, False, acquires))
    return True


def saw(st: RunState, stream: Stream, mark: CompletionMark) -> None:
    """Records that someone saw a stream complete; older marks of the same agent stay while accesses may need them."""
    marks = st.marks.get(stream, ())
    if any(x.c == mark.c and x.upto >= mark.upto and x.acquired >= mark.acquired for x in marks):
        return
    st.marks[stream] = (*marks, mark)
