"""What mbarriers do in a canonical run."""

from __future__ import annotations

from tilewright.base.expr import Expr
from tilewright.contract.agents import Agent
from tilewright.contract.machine import Handler, Machine
from tilewright.contract.meaning import Breach
from tilewright.contract.rules import Rule
from tilewright.contract.state import AgentState, BarState, M, Mark, Peek, S, State, Stream, begun, join, scheduled
from tilewright.protocol import ops
from tilewright.protocol.model import Step
from tilewright.protocol.validate import MAX_ARRIVALS

MAX_TX = MAX_ARRIVALS  # both counters have 20 bits (PTX ISA 9.1, 9.7.13.15.2)


# -- mbarriers: life -----------------------------------------------------------------------------------------------
def init(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.MbarrierInit)
    barrier = m.barriers[op.barrier]
    first = agent.cta * m.slots_per_cta + m.bar_base[op.barrier]
    m.spend(barrier.slots)
    for b in range(first, first + min(barrier.slots, barrier.slots if op.slots is None else op.slots)):
        bar = st.bars[b]
        if bar.init is not None:
            raise Breach(Rule.INIT, agent.index, step, f"{m.bar_name(b)} is initialised twice without inval between")
        bar.init = (agent.index, a.epoch)
        bar.init_fence = None
    return True


def inval(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.MbarrierInval)
    first = agent.cta * m.slots_per_cta + m.bar_base[op.barrier]
    for b in range(first, first + m.barriers[op.barrier].slots):
        visible(m, st, agent, a, step, b)
        bar = st.bars[b]
        for mark in st.marks.get(("bar", b), ()):
            if not m.saw(agent, a, M, mark.c, mark.e):
                raise Breach(Rule.INIT, agent.index, step, f"{m.bar_name(b)} is invalidated while others may use it")
        st.bars[b] = BarState(bar.pending + len(bar.arrivals))
    return True


def fence_init(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    for bar in st.bars:
        if bar.init is not None and bar.init[0] == agent.index and bar.init_fence is None:
            bar.init_fence = (agent.index, a.epoch)
    return True


def visible(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, b: int) -> None:
    """The barrier is initialised, and the agent may know it."""
    bar = st.bars[b]
    if bar.init is None:
        raise Breach(Rule.INIT, agent.index, step, f"{m.bar_name(b)} is not initialised when {agent.label} uses it")
    if bar.init[0] == agent.index and agent.group.size == 1:
        return
    fenced = bar.init_fence is not None and m.knows(agent, a, S, *bar.init_fence)
    if not m.knows(agent, a, M, *bar.init) and not fenced:
        raise Breach(
            Rule.INIT, agent.index, step, f"the initialisation of {m.bar_name(b)} is not ordered before {agent.label}"
        )
    if not fenced:
        found = Breach(Rule.INIT_FENCE, agent.index, step, f"no init fence between the init of {m.bar_name(b)} and use")
        if m.protocol.cluster > 1:
            raise found
        m.warnings.setdefault((Rule.INIT_FENCE, m.bar_name(b).partition("[")[0]), found)


# -- mbarriers: phases ---------------------------------------------------------------------------------------------
def knows_phase(m: Machine, st: State, agent: Agent, a: AgentState, b: int, k: int) -> bool:
    """Whether phase ``k`` of barrier ``b`` is complete before the agent's next step, in every schedule."""
    if k < 0 or a.waited.get(b, -1) >= k or a.signalled.get(b, -1) > k:
        return True
    for mark in st.marks.get(("bar", b), ()):
        if mark.upto >= k and m.saw(agent, a, S, mark.c, mark.e):
            return True
    bar = st.bars[b]
    if k > bar.phase - 1 or bar.done_arrivals is None:
        return False
    return all(m.knows(agent, a, S, c, e) for c, e in bar.done_arrivals)


def _phase_open(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, b: int, what: str) -> None:
    """An arrival (or bytes, or an expectation) belongs to the current phase in every schedule."""
    bar = st.bars[b]
    if m.barrier_of(b).name in m.users.unwatched:
        return
    if not knows_phase(m, st, agent, a, b, bar.phase - 1):
        raise Breach(
            Rule.RECYCLE,
            agent.index,
            step,
            f"{what} of {agent.label} on {m.bar_name(b)} may fall into phase {bar.phase - 1} instead of {bar.phase}",
        )
    a.signalled[b] = bar.phase


def contribute(
    m: Machine, st: State, agent: Agent, a: AgentState, step: Step, b: int, count: int, memory: bool,
    scope: ops.Scope | None,
) -> None:  # fmt: skip
    """An arrival of the agent's threads, ``count`` in all; without ``scope`` one by the tensor core on their behalf,
    which releases none of their accesses."""
    visible(m, st, agent, a, step, b)
    _phase_open(m, st, agent, a, step, b, "the arrival")
    bar = st.bars[b]
    if count > bar.pending:
        more = "" if bar.tx == 0 else f" (its phase still waits for {bar.tx} bytes)"
        raise Breach(
            Rule.COUNT,
            agent.index,
            step,
            f"{count} arrivals on {m.bar_name(b)}, which has {bar.pending} pending in phase {bar.phase}{more}",
        )
    remote = b // m.slots_per_cta != agent.cta
    if remote:
        note_remote(m, st, agent, a, step, b // m.slots_per_cta)
    if scope is None:
        clock = m.committed(agent, a)
    elif remote and scope is not ops.Scope.CTA and memory:
        clock = m.released(agent, a)
        bar.remote = clock if bar.remote is None else join(bar.remote, clock)
        clock = m.released(agent, a, memory=False)
    else:
        clock = m.released(agent, a, memory and not remote)
    bar.clock = clock if bar.clock is None else join(bar.clock, clock)
    bar.arrivals = (*bar.arrivals, (agent.index, a.epoch))
    bar.pending -= count
    complete(m, st, agent, step, b)


def expect(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, b: int, bytes: int) -> None:
    visible(m, st, agent, a, step, b)
    if b // m.slots_per_cta != agent.cta:
        note_remote(m, st, agent, a, step, b // m.slots_per_cta)
    _phase_open(m, st, agent, a, step, b, "expect_tx")
    bar = st.bars[b]
    bar.tx += bytes * agent.group.size
    bar.expects = (*bar.expects, (agent.index, a.epoch))
    if abs(bar.tx) > MAX_TX:
        raise Breach(Rule.BYTES, agent.index, step, f"{bar.tx} bytes on {m.bar_name(b)}; a phase counts {MAX_TX}")


def land(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, b: int, bytes: int) -> None:
    """Bytes of a copy that the agent issued land; the canonical run lets them land at once."""
    visible(m, st, agent, a, step, b)
    bar = st.bars[b]
    if not bar.expects and not knows_phase(m, st, agent, a, b, bar.phase - 1):
        last = f"phase {bar.phase - 1} of {m.bar_name(b)}, which has all the bytes that it expects"
        raise Breach(Rule.BYTES, agent.index, step, f"the copy's bytes of {agent.label} may land in {last}")
    _phase_open(m, st, agent, a, step, b, "the copy's bytes")
    bar.tx -= bytes
    bar.landed = True
    if abs(bar.tx) > MAX_TX:
        raise Breach(Rule.BYTES, agent.index, step, f"{-bar.tx} bytes beyond those expected on {m.bar_name(b)}")
    clock = m.released(agent, a, memory=False)
    bar.copies = clock if bar.copies is None else join(bar.copies, clock)
    complete(m, st, agent, step, b)


def complete(m: Machine, st: State, agent: Agent, step: Step, b: int) -> None:
    """Completes the phase if nothing is pending; checks what must hold at that moment."""
    bar = st.bars[b]
    if bar.pending or bar.tx:
        return
    k = bar.phase
    arrived = bar.clock if bar.remote is None or bar.clock is None else join(bar.clock, bar.remote)
    assert arrived is not None
    for c, e in bar.expects:
        if not arrived[S] >> e & 1:
            raise Breach(
                Rule.BYTES,
                agent.index,
                step,
                f"expect_tx of {m.agents[c].label} on {m.bar_name(b)} may come after the last arrival of phase {k}",
            )
    reached = arrived if bar.copies is None else join(arrived, bar.copies)
    late = [c for phase, c, e in bar.waiters if phase == k - 1 and not reached[S] >> e & 1]
    late += [x.index for x in m.agents if st.agents[x.index].waiting == (b, k - 1)]
    if late:
        raise Breach(
            Rule.LAPPING,
            agent.index,
            step,
            f"phase {k} of {m.bar_name(b)} can complete before {m.agents[late[0]].label} returns from its wait for "
            f"phase {k - 1}",
            _last_wait(m, st, late[0]),
        )
    assert bar.clock is not None
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
    bar.pending = m.barrier_of(b).count
    m.wake(st)


def _last_wait(m: Machine, st: State, c: int) -> tuple[int, Step] | None:
    standing = m.step_at(m.agents[c], st.agents[c])
    if st.agents[c].waiting is not None and standing is not None:
        return c, standing
    event = st.trace
    while event is not None:
        if event.agent == c and isinstance(event.step.op, ops.Wait):
            return c, event.step
        event = event.previous
    return None


def arrive(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Arrive)
    b = m.bar(agent, a, step, op.bar)
    contribute(m, st, agent, a, step, b, op.count * agent.group.size, op.release, op.scope)
    return True


def arrive_expect(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.ArriveExpectTx)
    b = m.bar(agent, a, step, op.bar)
    expect(m, st, agent, a, step, b, op.bytes)
    contribute(m, st, agent, a, step, b, agent.group.size, True, op.scope)
    return True


def expect_tx(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.ExpectTx)
    expect(m, st, agent, a, step, m.bar(agent, a, step, op.bar), op.bytes)
    return True


def _asked(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, b: int, parity: Expr) -> int:
    """The phase that a wait or test of this parity is about; it must be the same in every schedule."""
    bar = st.bars[b]
    visible(m, st, agent, a, step, b)
    same = (bar.phase - 1) % 2 == m.value(st, agent, a, parity) % 2
    k = bar.phase - 1 if same else bar.phase
    if not knows_phase(m, st, agent, a, b, k - 1):
        raise Breach(
            Rule.EARLY,
            agent.index,
            step,
            f"{agent.label} waits for phase {k} of {m.bar_name(b)}, but phase {k - 1} may be incomplete then, and "
            f"phase {k - 2} has the same parity",
        )
    return k


def test_wait(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    """One try, whose answer may be false in some schedules: it teaches nothing, but its phase must be its wait's."""
    op = step.op
    assert isinstance(op, ops.TestWait)
    b = m.bar(agent, a, step, op.bar)
    k = _asked(m, st, agent, a, step, b, op.parity)
    a.peeked = (*(x for x in a.peeked if x.b != b), Peek(b, k, op.acquire, op.scope is not ops.Scope.CTA))
    return True


def wait(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    """try_wait.parity in a loop."""
    op = step.op
    assert isinstance(op, ops.Wait)
    b = m.bar(agent, a, step, op.bar)
    bar = st.bars[b]
    k = _asked(m, st, agent, a, step, b, op.parity)
    passes = k < bar.phase
    tests = [x for x in a.peeked if x.b == b] if op.peeked else []
    if any(x.k != k for x in tests):
        raise Breach(
            Rule.EARLY,
            agent.index,
            step,
            f"{agent.label} tested {m.bar_name(b)} for another phase than its wait's, {k}",
        )
    if not passes:
        a.waiting = (b, k)
        return False
    a.waiting = None
    a.peeked = tuple(x for x in a.peeked if x.b != b)
    # a thread whose test returned true skips the wait: it has what the test acquired
    acquires = op.acquire and all(x.acquire for x in tests)
    wide = op.scope is not ops.Scope.CTA and all(x.wide for x in tests)
    if k >= 0 and bar.done_clock is not None:
        m.acquire(a, bar.done_clock if acquires else scheduled(bar.done_clock))
    if k >= 0 and bar.done_remote is not None:
        s, *_, y = bar.done_remote
        narrow = (s, 0, 0, 0, 0, y)
        m.acquire(a, scheduled(bar.done_remote) if not acquires else bar.done_remote if wide else narrow)
    a.waited[b] = k
    bar.waiters = (*(w for w in bar.waiters if w[1] != agent.index), (k, agent.index, a.epoch))
    saw(m, st, ("bar", b), Mark(k, agent.index, a.epoch, False, acquires))
    for stream, upto in bar.done_carries:
        saw(m, st, stream, Mark(upto, agent.index, a.epoch, False, acquires))
    return True


def saw(m: Machine, st: State, stream: Stream, mark: Mark) -> None:
    """Records that someone saw a stream complete; older marks of the same agent stay while accesses may need them."""
    marks = st.marks.get(stream, ())
    if any(x.c == mark.c and x.upto >= mark.upto and x.acquired >= mark.acquired for x in marks):
        return
    st.marks[stream] = (*marks, mark)


def note_remote(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, target: int) -> None:
    """A peer's barrier or memory is touched: the peer must run, and outlive it."""
    if not a.clock[S] >> begun(target) & 1:
        raise Breach(
            Rule.PEER_START, agent.index, step, f"CTA {target} may not run yet when {agent.label} of CTA {agent.cta} "
            "touches it",
        )  # fmt: skip
    st.remote[target, agent.index] = a.epoch


def outlives(st: State, agent: Agent, target: int, stream: Stream, seq: int) -> None:
    """A CTA must know, at its end, that a stream which reaches its memory or barriers is done so far."""
    st.outlived[target, agent.index, stream] = seq


BARRIER_HANDLERS: dict[type[object], Handler] = {
    ops.MbarrierInit: init,
    ops.MbarrierInval: inval,
    ops.FenceMbarrierInit: fence_init,
    ops.Arrive: arrive,
    ops.ArriveExpectTx: arrive_expect,
    ops.ExpectTx: expect_tx,
    ops.Wait: wait,
    ops.TestWait: test_wait,
}
