"""Group-tracked asynchronous ops in a canonical run, tensor memory, registers, and what must be over at the end."""

from __future__ import annotations

from tilewright.contract.agents import Agent
from tilewright.contract.machine import Handler, Machine
from tilewright.contract.meaning import Breach
from tilewright.contract.rules import Rule
from tilewright.contract.sem_barriers import BARRIER_HANDLERS, contribute, expect, outlives, saw
from tilewright.contract.sem_copies import COPY_HANDLERS, use_map
from tilewright.contract.sem_meetings import MEETING_HANDLERS
from tilewright.contract.sem_memory import GENERIC, MEMORY_HANDLERS, Use, access
from tilewright.contract.state import AgentState, Mark, S, State, Stream, join
from tilewright.hw.tcgen05 import TMEM_COLUMNS
from tilewright.protocol import ops
from tilewright.protocol.model import Buffer, Step

_NEVER = (0, -1)
"""Group 0 is open, none was waited for."""


def _open(a: AgentState, engine: str) -> int:
    """Number of the agent's open group; marks the engine as busy."""
    a.issued |= {engine}
    number = a.filled[engine] = a.groups.setdefault(engine, _NEVER)[0]
    return number


def _commit(a: AgentState, engine: str) -> None:
    number, waited = a.groups.get(engine, _NEVER)
    a.groups[engine] = (number + 1, waited)
    a.issued -= {engine}


def _waited(m: Machine, st: State, a: AgentState, agent: Agent, engine: str, stream: Stream, upto: int) -> None:
    number, waited = a.groups.get(engine, _NEVER)
    if upto > waited:
        a.groups[engine] = (number, upto)
        mark_each(m, st, agent, a, stream, waited, upto)


def mark_each(m: Machine, st: State, agent: Agent, a: AgentState, stream: Stream, after: int, upto: int) -> None:
    """One record for each group that a wait retired: what is known of one says nothing of another."""
    for k in range(after + 1, upto + 1):
        saw(m, st, stream, Mark(k, agent.index, a.epoch, True))
        if k < upto:
            a.epoch = st.steps
            a.past |= 1 << a.epoch
            st.steps += 1


# -- bulk groups ---------------------------------------------------------------------------------------------------
def tma_store(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.TmaStore)
    number = _open(a, "tma_store")
    stream = ("tma_store", agent.index)
    access(m, st, agent, a, step, op.src, Use("tma_store", False, stream, number))
    if op.dst is not None:
        written: Stream = ("tma_write", agent.index)
        engine = "tma_reduce" if op.reduce else "tma_store"
        access(m, st, agent, a, step, op.dst, Use(engine, True, written, number, clipped=op.tensor))
    if op.tensormap is not None:
        use_map(m, st, agent, a, step, op.tensormap, stream, number)
    return True


def bulk_commit(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    _commit(a, "tma_store")
    return True


def bulk_wait(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.BulkWait)
    upto = a.groups.get("tma_store", _NEVER)[0] - 1 - op.pending
    _waited(m, st, a, agent, "tma_store", ("tma_store", agent.index), upto)
    if not op.read and upto >= 0:
        written: Stream = ("tma_write", agent.index)
        last = max((k.upto for k in st.marks.get(written, ())), default=-1)
        mark_each(m, st, agent, a, written, last, upto)
    return True


# -- wgmma ---------------------------------------------------------------------------------------------------------
def wgmma_fence(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    a.dirty = False
    return True


def wgmma(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Wgmma)
    if a.dirty:
        raise Breach(
            Rule.WGMMA_REGISTERS,
            agent.index,
            step,
            f"{agent.label} issues wgmma with no wgmma.fence since its registers",
        )
    number = _open(a, "wgmma")
    stream: Stream = ("wgmma", agent.role)
    for region in op.operands:
        access(m, st, agent, a, step, region, Use("wgmma", False, stream, number))
    access(m, st, agent, a, step, op.accumulator, Use("wgmma", True, stream, number))
    clock = m.released(agent, a, memory=False)
    key: Stream = ("wgmma", agent.role, number)
    st.issues[key] = join(st.issues[key], clock) if key in st.issues else clock
    return True


def wgmma_commit(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    _commit(a, "wgmma")
    m.wake(st)
    return True


def wgmma_wait(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    """Returns when the groups are done, which needs every warp of the warpgroup to have issued its part."""
    op = step.op
    assert isinstance(op, ops.WgmmaWait)
    number, waited = a.groups.get("wgmma", _NEVER)
    upto = number - 1 - op.pending
    if any(st.agents[x.index].groups.get("wgmma", _NEVER)[0] <= upto for x in m.role_agents[agent.role]):
        return False
    for k in range(waited + 1, upto + 1):
        clock = st.issues.get(("wgmma", agent.role, k))
        if clock is not None:
            a.clock = join(a.clock, clock)
    _waited(m, st, a, agent, "wgmma", ("wgmma", agent.role), upto)
    done = min(st.agents[x.index].groups.get("wgmma", _NEVER)[1] for x in m.role_agents[agent.role])
    for k in range(waited + 1 - len(m.role_agents[agent.role]), done + 1):
        st.issues.pop(("wgmma", agent.role, k), None)
    return True


# -- cp.async ------------------------------------------------------------------------------------------------------
def cp_async(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.CpAsync)
    number = _open(a, "cp_async")
    access(m, st, agent, a, step, op.dst, Use("cp_async", True, ("cp_async", agent.index), number, private=True))
    return True


def cp_async_commit(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    _commit(a, "cp_async")
    return True


def cp_async_wait(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.CpAsyncWait)
    upto = a.groups.get("cp_async", _NEVER)[0] - 1 - op.pending
    _waited(m, st, a, agent, "cp_async", ("cp_async", agent.index), upto)
    return True


def cp_async_arrive(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    """The canonical run lets the copies finish, and the arrival happen, at once."""
    op = step.op
    assert isinstance(op, ops.CpAsyncArrive)
    b = m.bar(agent, a, step, op.bar)
    bar = st.bars[b]
    number = a.groups.get("cp_async", _NEVER)[0]
    bar.carries = (*bar.carries, (("cp_async", agent.index), number))
    _commit(a, "cp_async")
    if op.noinc:
        contribute(m, st, agent, a, step, b, agent.group.size, False, ops.Scope.CTA)
    else:
        expect(m, st, agent, a, step, b, 0)
    return True


# -- tcgen05 -------------------------------------------------------------------------------------------------------
def alloc(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Tcgen05Alloc)
    if not agent.group.primary:
        return True
    key = (op.buffer, agent.cta)
    if key in st.tmem and st.tmem[key][0] != "freed":
        raise Breach(Rule.TMEM, agent.index, step, f"{op.buffer} is allocated twice")
    if agent.cta in st.relinquished:
        raise Breach(Rule.TMEM, agent.index, step, f"{op.buffer} is allocated after the CTA gave up the right to")
    _columns(m, st, agent, a, step, m.buffers[op.buffer])
    st.tmem[key] = ("live", agent.index, a.epoch)
    if op.address is not None:
        access(m, st, agent, a, step, op.address, Use(GENERIC, True))
    return True


def _columns(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, buffer: Buffer) -> None:
    """Alloc blocks until its columns are free, and must not ask for more than one before it: in every schedule."""
    held = buffer.size
    for (name, cta), (state, c, e) in st.tmem.items():
        if cta != agent.cta:
            continue
        other, known = m.buffers[name].size, m.saw(agent, a, S, c, e)
        if name == buffer.name and not known:
            raise Breach(Rule.TMEM, agent.index, step, f"{name} is allocated again before its dealloc is known")
        if other < buffer.size or (other > buffer.size and not known):
            what = f"{buffer.name} of {buffer.size} columns may be allocated after {name} of {min(other, buffer.size)}"
            raise Breach(Rule.TMEM, agent.index, step, f"{what}: allocations must not increase")
        held += other if state != "freed" or not known else 0
    if held > TMEM_COLUMNS:
        what = (
            f"{buffer.name} waits for {buffer.size} columns while {held - buffer.size} of {TMEM_COLUMNS} may be taken"
        )
        raise Breach(Rule.TMEM, agent.index, step, what)


def relinquish(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    st.relinquished |= {agent.cta}
    return True


def _ctas(m: Machine, agent: Agent, cta_group: int) -> tuple[int, ...]:
    """The CTAs an op of this group concerns: its own, or the pair."""
    first = agent.cta // 2 * 2
    return (agent.cta,) if cta_group == 1 else (first, first + 1)


def dealloc(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Tcgen05Dealloc)
    if not agent.group.primary:
        return True
    buffer = m.buffers[op.buffer]
    if (op.buffer, agent.cta) not in st.tmem:
        raise Breach(Rule.TMEM, agent.index, step, f"{op.buffer} is freed but was not allocated")
    if st.tmem[op.buffer, agent.cta][0] == "freed":
        raise Breach(Rule.TMEM, agent.index, step, f"{op.buffer} is freed twice")
    for rank in _ctas(m, agent, op.cta_group):
        try:
            access(m, st, agent, a, step, m.whole(buffer), Use("dealloc", True), rank)
        except Breach as e:
            if e.rule is Rule.TMEM:
                raise
            raise Breach(Rule.TMEM, agent.index, step, e.detail, e.other) from None
        if rank != agent.cta and st.tmem[op.buffer, rank][0] == "live":
            st.tmem[op.buffer, rank] = ("half", *st.tmem[op.buffer, rank][1:])
    st.tmem[op.buffer, agent.cta] = ("freed", agent.index, a.epoch)
    return True


def mma(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Tcgen05Mma)
    number = _open(a, "mma")
    stream: Stream = ("mma", agent.index)
    for cta in _ctas(m, agent, op.cta_group):
        rank = None if op.cta_group == 1 else cta
        for region in op.operands:
            access(m, st, agent, a, step, region, Use("mma", False, stream, number), rank)
        access(m, st, agent, a, step, op.accumulator, Use("mma", True, stream, number), rank)
    return True


def tcp(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Tcgen05Cp)
    number = _open(a, "mma")
    stream: Stream = ("mma", agent.index)
    access(m, st, agent, a, step, op.src, Use("tcp", False, stream, number))
    access(m, st, agent, a, step, op.dst, Use("tcp", True, stream, number))
    return True


def tcgen_commit(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Tcgen05Commit)
    number = a.groups.get("mma", _NEVER)[0]
    a.before = a.past  # the commit implies the before-fence (PTX ISA 9.1, 9.7.16.6.4)
    for rank in [None] if not op.ctas else sorted({m.value(st, agent, a, e) for e in op.ctas}):
        b = m.bar(agent, a, step, op.bar, rank)
        bar = st.bars[b]
        bar.carries = (*bar.carries, (("mma", agent.index), number))
        if b // m.slots_per_cta != agent.cta:
            outlives(st, agent, b // m.slots_per_cta, ("mma", agent.index), number)
        contribute(m, st, agent, a, step, b, 1, False, None)
    _commit(a, "mma")
    return True


def tcgen_ld(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Tcgen05Ld)
    access(m, st, agent, a, step, op.region, Use("ld", False, ("ld", agent.index), _open(a, "ld")))
    return True


def tcgen_st(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Tcgen05St)
    access(m, st, agent, a, step, op.region, Use("st", True, ("st", agent.index), _open(a, "st")))
    return True


def tcgen_wait_ld(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    _commit(a, "ld")
    _waited(m, st, a, agent, "ld", ("ld", agent.index), a.groups["ld"][0] - 1)
    return True


def tcgen_wait_st(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    _commit(a, "st")
    _waited(m, st, a, agent, "st", ("st", agent.index), a.groups["st"][0] - 1)
    return True


def tcgen_before(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    a.before = a.past
    return True


def tcgen_after(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    a.after = a.past
    s, mem, f, x, t, y = a.clock
    a.clock = (s, mem, f, x, t | a.tensor, y)
    a.tensor = 0
    return True


# -- registers and counters ----------------------------------------------------------------------------------------
def setmaxnreg(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    """A decrease feeds the CTA's pool, an increase waits until the pool holds enough."""
    op = step.op
    assert isinstance(op, ops.Setmaxnreg)
    if not 24 <= op.registers <= 256 or op.registers % 8:
        raise Breach(Rule.REGISTERS, agent.index, step, f"setmaxnreg {op.registers}: not 24 to 256 in steps of 8")
    if not agent.group.primary:
        return True
    freed = (a.registers - op.registers) * m.protocol.role(agent.group.role).threads
    if st.pool[agent.cta] + freed < 0:
        return False
    st.pool[agent.cta] += freed
    a.registers = op.registers
    m.wake(st)
    return True


def advance(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Advance)
    a.env[op.counter] += m.value(st, agent, a, op.by)
    return True


# -- the end -------------------------------------------------------------------------------------------------------
_WORDS = {
    "tma_store": "bulk stores that were not waited for",
    "wgmma": "wgmma groups that were not waited for",
    "cp_async": "cp.async that were not waited for",
    "mma": "tcgen05.mma whose completion nobody waited for",
    "ld": "tcgen05.ld that were not waited for",
    "st": "tcgen05.st that were not waited for",
}


def check_end(m: Machine, st: State) -> None:
    """All agents have ended: nothing may be in flight, tensor memory is free, peers outlived what touched them."""
    for agent in m.agents:
        a = st.agents[agent.index]
        for engine, (_, waited) in a.groups.items():
            last = a.filled.get(engine, -1)
            stream: Stream = (engine, agent.role if engine == "wgmma" else agent.index)
            if last > waited and not any(k.upto >= last for k in st.marks.get(stream, ())):
                raise Breach(Rule.EXIT, agent.index, None, f"{agent.label} ends with {_WORDS[engine]}")
    for b, bar in enumerate(st.bars):
        watched = max((k.upto for k in st.marks.get(("bar", b), ())), default=-1)
        if bar.landed or (bar.done_landed and watched < bar.phase - 1):
            raise Breach(Rule.EXIT, 0, None, f"the kernel may end before the copies tracked by {m.bar_name(b)} landed")
    for (name, cta), (state, c, _) in st.tmem.items():
        if state != "freed":
            raise Breach(Rule.TMEM, c, None, f"{name} of CTA {cta} is never freed")
    for (target, c), e in st.remote.items():
        alive = any(st.agents[x.index].clock[S] >> e & 1 for x in m.agents if x.cta == target)
        if not alive:
            raise Breach(
                Rule.CLUSTER_EXIT,
                c,
                None,
                f"CTA {target} may have ended when {m.agents[c].label} of CTA {m.agents[c].cta} touches it",
            )
    for (target, c, stream), seq in st.outlived.items():
        if not m.known_done(st, target, stream, seq):
            raise Breach(
                Rule.CLUSTER_EXIT,
                c,
                None,
                f"CTA {target} may end while what {m.agents[c].label} of CTA {m.agents[c].cta} issued reaches it",
            )


HANDLERS: dict[type[object], Handler] = {
    **BARRIER_HANDLERS,
    **MEETING_HANDLERS,
    **MEMORY_HANDLERS,
    **COPY_HANDLERS,
    ops.TmaStore: tma_store,
    ops.BulkCommit: bulk_commit,
    ops.BulkWait: bulk_wait,
    ops.WgmmaFence: wgmma_fence,
    ops.Wgmma: wgmma,
    ops.WgmmaCommit: wgmma_commit,
    ops.WgmmaWait: wgmma_wait,
    ops.CpAsync: cp_async,
    ops.CpAsyncCommit: cp_async_commit,
    ops.CpAsyncWait: cp_async_wait,
    ops.CpAsyncArrive: cp_async_arrive,
    ops.Tcgen05Alloc: alloc,
    ops.Tcgen05Dealloc: dealloc,
    ops.Tcgen05Relinquish: relinquish,
    ops.Tcgen05Mma: mma,
    ops.Tcgen05Cp: tcp,
    ops.Tcgen05Commit: tcgen_commit,
    ops.Tcgen05Ld: tcgen_ld,
    ops.Tcgen05St: tcgen_st,
    ops.Tcgen05WaitLd: tcgen_wait_ld,
    ops.Tcgen05WaitSt: tcgen_wait_st,
    ops.Tcgen05FenceBefore: tcgen_before,
    ops.Tcgen05FenceAfter: tcgen_after,
    ops.Setmaxnreg: setmaxnreg,
    ops.Advance: advance,
}
"""What each op does in a canonical run."""
