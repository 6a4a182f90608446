"""Byte regions in a canonical run: which accesses clash, and what orders them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from tilewright.contract.agents import Agent
from tilewright.contract.machine import Handler, Machine
from tilewright.contract.meaning import Breach, Place
from tilewright.contract.rules import Policy, Rule
from tilewright.contract.sem_barriers import note_remote, outlives
from tilewright.contract.state import EMPTY, A, Access, AgentState, Cell, F, M, Mark, State, Stream, T, X
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import By, Step

GENERIC = "generic"
ASYNC_PROXY = frozenset(("tma_load", "tma_store", "tma_reduce", "wgmma", "mma", "tcp", "dsmem"))
"""Engines that reach shared memory through the asynchronous proxy (PTX ISA 9.1, 9.7.9.25.2). cp.async is not one."""
TENSOR_ENGINES = frozenset(("mma", "tcp", "ld", "st"))
IN_ORDER = frozenset(("mma", "tcp"))
"""Engines that work through one thread's tensor-core ops in order (PTX ISA 9.1, 9.7.16.6)."""
LANES = frozenset(("ld", "st"))
"""Engines by which each warp reaches its own lanes."""
PER_THREAD = frozenset(("tma_store", "tma_reduce", "cp_async", "ld", "st"))
"""Engines whose groups are each thread's own."""

_OF_A_CTA = frozenset((Space.SHARED, Space.DISTRIBUTED_SHARED, Space.TMEM))
_MUST_BE_WRITTEN = frozenset((Space.SHARED, Space.TMEM))

_NAMES = {
    "generic": "a generic access",
    "tma_load": "a TMA load",
    "tma_store": "a TMA store",
    "tma_reduce": "a TMA reduction",
    "wgmma": "a wgmma",
    "mma": "a tcgen05.mma",
    "tcp": "a tcgen05.cp",
    "ld": "a tcgen05.ld",
    "st": "a tcgen05.st",
    "cp_async": "a cp.async",
    "dsmem": "a copy to a peer",
    "map": "a copy that uses the descriptor",
    "dealloc": "the dealloc",
}


@dataclass(frozen=True)
class Use:
    """A new access. Asynchronous ones complete with ``stream`` up to ``seq``."""

    engine: str
    writes: bool
    stream: Stream | None = None
    seq: int = 0
    private: bool = False
    step: Step | None = None
    clipped: bool = False
    """Bytes outside the buffer are left out, as a tensor map does with elements outside its tensor."""


def space_key(agent: Agent, place: Place, cta: int) -> Stream:
    """The memory that a region lies in: of a role, of a CTA, or common to the cluster."""
    match place.space:
        case Space.REGISTER:
            return ("register", agent.role)
        case Space.GLOBAL:
            return ("global",)
        case Space.TMEM:
            return ("tmem", cta)
        case Space.SHARED | Space.DISTRIBUTED_SHARED:
            return ("shared", cta)


def access(
    m: Machine,
    st: State,
    agent: Agent,
    a: AgentState,
    step: Step,
    region: ops.Region,
    use: Use,
    rank: int | None = None,
) -> None:
    """Checks the access against everything its bytes went through, and adds it to their history."""
    place = m.place(region)
    if place.space is Space.REGISTER and not agent.group.primary:
        return
    cta = m.rank(agent, a, step, place.cta) if rank is None else rank
    if cta != agent.cta and use.engine != "dealloc":
        note_remote(m, st, agent, a, step, cta)
    if use.stream is not None and (cta != agent.cta or use.engine == "dsmem") and place.space in _OF_A_CTA:
        outlives(st, agent, cta, use.stream, use.seq)
    begin = place.begin(a.env)
    end, low = begin + place.size, place.buffer.offset
    if use.clipped:
        begin, end = max(begin, low), min(end, low + place.buffer.size)
        if begin >= end:
            return
    if begin < low or end > low + place.buffer.size:
        raise Breach(Rule.SLOT_RANGE, agent.index, step, f"bytes {begin - low}..{end - low} of {place.buffer.name}")
    if place.space is Space.TMEM:
        _allocated(m, st, agent, a, step, place, cta, use)
    if place.space is Space.GLOBAL and use.engine == GENERIC:
        st.in_global |= 1 << a.epoch
    key = space_key(agent, place, cta)
    starts, cells, first, last = _split(st, key, begin, end)
    m.spend(len(cells) // 8)
    new = Access(agent.index, a.epoch, use.engine, use.stream, use.seq, agent.index, use.private, step)
    for i in range(first, last):
        cell = cells[i]
        if not cell.writes and not use.writes and place.space in _MUST_BE_WRITTEN and not place.buffer.initialised:
            raise Breach(
                Rule.READ_EARLY,
                agent.index,
                step,
                f"{agent.label} reads bytes of {place.buffer.name} never written",
                buffer=place.buffer.name,
            )
        for old in cell.writes:
            _ordered(m, st, agent, a, step, place, old, True, use)
        if use.writes:
            for old in cell.reads:
                _ordered(m, st, agent, a, step, place, old, False, use)
            for old, wrote in cell.older:
                _ordered(m, st, agent, a, step, place, old, wrote, use)
            if use.engine != "dealloc":  # a pair's second dealloc asks again
                cells[i] = _written(m, agent, cell, new)
        else:
            kept = tuple(r for r in cell.reads if r.agent != agent.index or r.engine != use.engine)
            cells[i] = Cell(cell.writes, (*kept, new), cell.older)
    st.memory[key] = (starts, cells)


def _written(m: Machine, agent: Agent, cell: Cell, new: Access) -> Cell:
    """The cell after a write. A write that all classes of a role share replaces the bytes part by part: until the last
    class has written, the history before it still counts."""
    classes = m.role_agents[agent.role] if new.step.by is By.ALL else [agent]
    if len(classes) == 1:
        return Cell((new,), ())
    ours = {w.agent for w in cell.writes if w.step is new.step and w.agent != agent.index}
    if ours and all(w.agent != agent.index for w in cell.writes):
        complete = len(ours) + 1 == len(classes)
        return Cell((*cell.writes, new), cell.reads, () if complete else cell.older)
    return Cell((new,), (), (*((w, True) for w in cell.writes), *((r, False) for r in cell.reads)))


def _split(st: State, key: Stream, begin: int, end: int) -> tuple[list[int], list[Cell], int, int]:
    """The space's cells with a boundary at ``begin`` and ``end``, as fresh lists, and the range between."""
    starts, cells = st.memory.get(key, ([0], [EMPTY]))
    cells = cells.copy()
    first = bisect_left(starts, begin)
    if first == len(starts) or starts[first] != begin:
        starts = [*starts[:first], begin, *starts[first:]]
        cells.insert(first, cells[first - 1])
    last = bisect_left(starts, end, first)
    if last == len(starts) or starts[last] != end:
        starts = [*starts[:last], end, *starts[last:]]
        cells.insert(last, cells[last - 1])
    return starts, cells, first, last


def _allocated(
    m: Machine, st: State, agent: Agent, a: AgentState, step: Step, place: Place, cta: int, use: Use
) -> None:
    state = st.tmem.get((place.buffer.name, cta))
    if state is None or (state[0] != "live" and use.engine != "dealloc"):
        what = "freed" if state else "not allocated"
        raise Breach(Rule.TMEM, agent.index, step, f"{agent.label} uses {place.buffer.name}, which is {what}")
    mine = state[1] == agent.index and use.engine == "dealloc"  # one thread of a role does both
    if state[0] != "freed" and not mine and not m.knows(agent, a, M, state[1], state[2]):
        raise Breach(
            Rule.TMEM, agent.index, step, f"the allocation of {place.buffer.name} is not ordered before {agent.label}"
        )


def _ordered(
    m: Machine, st: State, agent: Agent, a: AgentState, step: Step, place: Place, x: Access, x_writes: bool, use: Use
) -> None:
    """Raises unless ``x`` is done, visible and fenced before the new access."""
    if x.stream is None:
        rule = _after_sync(m, agent, a, place, x, x_writes, use)
    else:
        rule = _after_async(m, st, agent, a, place, x, x_writes, use)
    if rule is None:
        return
    found = Breach(rule, agent.index, step, _clash(m, agent, place, x, x_writes, use, rule), (x.agent, x.step))
    forgiven = (rule is Rule.FENCE_WAR and not x_writes) or (
        rule is Rule.FENCE_RAW and x.stream is None and _fenced_by_anyone(agent, a, x)
    )
    if forgiven and m.policy is Policy.LENIENT:
        m.warnings.setdefault((rule, place.buffer.name), found)
        return
    raise found


def _clash(m: Machine, agent: Agent, place: Place, x: Access, x_writes: bool, use: Use, rule: Rule) -> str:
    verb = "writes" if use.writes else "reads"
    old = f"{_NAMES[x.engine]} of {m.agents[x.agent].label} that {'wrote' if x_writes else 'reads'} them"
    match rule:
        case Rule.FENCE_RAW | Rule.FENCE_WAR:
            lack = "without a proxy fence after"
        case Rule.GROUP:
            lack = "before the group was waited for of"
        case Rule.TCGEN_FENCE:
            lack = "without the tcgen05 fences after"
        case _:
            lack = "not ordered after"
    return f"{_NAMES[use.engine]} of {agent.label} {verb} bytes of {place.buffer.name} {lack} {old}"


def _race(x_writes: bool, writes: bool) -> Rule:
    if x_writes and writes:
        return Rule.WRITE_WRITE
    return Rule.READ_EARLY if x_writes else Rule.OVERWRITE


def _after_sync(
    m: Machine, agent: Agent, a: AgentState, place: Place, x: Access, x_writes: bool, use: Use
) -> Rule | None:
    same_role = m.agents[x.agent].role == agent.role
    own = place.space is Space.REGISTER or (same_role and x.private and use.private)
    if own and use.engine not in ASYNC_PROXY:
        return None
    if x_writes and use.writes and same_role and x.step is use.step:
        return None  # the threads of a role share a write among them, each its own part, the same at every turn
    mine = x.agent == agent.index and (agent.group.size == 1 or own)
    if not mine and not a.clock[M] >> x.e & 1:
        return _race(x_writes, use.writes)
    if use.engine not in ASYNC_PROXY or place.space is Space.REGISTER:
        return None
    by_writer = (a.fence if mine else a.clock[F]) >> x.e & 1
    if x_writes and not use.writes:
        return None if by_writer else Rule.FENCE_RAW
    return None if by_writer or _fenced_by_anyone(agent, a, x) else Rule.FENCE_WAR


def _fenced_by_anyone(agent: Agent, a: AgentState, x: Access) -> bool:
    """Whether a fence lies between a generic access and now, in its own or in another thread."""
    mine = x.agent == agent.index and agent.group.size == 1
    return (a.fence if mine else a.clock[X]) >> x.e & 1 == 1


def _after_async(
    m: Machine, st: State, agent: Agent, a: AgentState, place: Place, x: Access, x_writes: bool, use: Use
) -> Rule | None:
    same_role = m.agents[x.agent].role == agent.role
    if x.engine == use.engine == "tma_reduce":
        return None
    if x.engine in IN_ORDER and use.engine in IN_ORDER and x.agent == agent.index:
        return None
    if place.space is Space.REGISTER and x.engine == use.engine == "wgmma":
        return None
    if same_role and x.agent != agent.index and {x.engine, use.engine} <= LANES:
        return None  # each warp reaches its own lanes (PTX ISA 9.1, 9.7.16.8.1)
    if same_role and x.engine == use.engine == "cp_async":
        return None  # each thread copies its own part
    assert x.stream is not None
    marks = [k for k in st.marks.get(x.stream, ()) if k.upto >= x.seq and k.acquired]
    segment = M if use.engine == GENERIC else A
    told = [k for k in marks if m.saw(agent, a, segment, k.c, k.e)]
    if x.engine in PER_THREAD and not (x.private and use.private and same_role) and not {x.engine, use.engine} <= LANES:
        # one thread's wait speaks for its own ops only: all threads of the class must have waited
        asked = M if x.engine == "cp_async" else segment
        told = [k for k in told if not k.own or m.knows(agent, a, asked, k.c, k.e)]
    if not told:
        unwaited = same_role and not any(k.c == agent.index for k in marks)
        return Rule.GROUP if unwaited and x.engine not in ("tma_load", "dsmem") else _race(x_writes, use.writes)
    if place.space is Space.TMEM and use.engine in TENSOR_ENGINES:
        return None if any(_tensor_ordered(m, agent, a, x, k) for k in told) else Rule.TCGEN_FENCE
    if x.engine == "cp_async" and use.engine in ASYNC_PROXY:
        return None if any(_copy_fenced(m, agent, a, k) for k in told) else Rule.FENCE_RAW
    return None


def _tensor_ordered(m: Machine, agent: Agent, a: AgentState, x: Access, k: Mark) -> bool:
    if k.c == agent.index:
        return k.own or a.after >> k.e & 1 == 1
    return a.clock[T] >> k.e & 1 == 1


def _copy_fenced(m: Machine, agent: Agent, a: AgentState, k: Mark) -> bool:
    """cp.async writes are generic: a fence after their completion, by the copying or the consuming thread."""
    if k.c == agent.index:
        fenced = a.fence >> k.e & 1 == 1
        return fenced and (not k.own or agent.group.size == 1 or a.clock[F] >> k.e & 1 == 1)
    return a.clock[X] >> k.e & 1 == 1


# -- handlers ------------------------------------------------------------------------------------------------------
def read(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Read)
    access(m, st, agent, a, step, op.region, Use(GENERIC, False, private=op.private))
    _touch_registers(m, a, op.region)
    return True


def write(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.Write)
    access(m, st, agent, a, step, op.region, Use(GENERIC, True, private=op.private, step=step))
    _touch_registers(m, a, op.region)
    return True


def _touch_registers(m: Machine, a: AgentState, region: ops.Region) -> None:
    if m.buffers[region.buffer].space is Space.REGISTER:
        a.dirty = True


def fence(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.FenceProxyAsync)
    match op.space:
        case ops.FenceSpace.ALL:
            other = 0
        case ops.FenceSpace.SHARED:
            other = st.in_global
        case ops.FenceSpace.GLOBAL:
            other = ~st.in_global
    s, mem, f, x, t, y = a.clock
    a.fence |= a.past & ~other
    a.clock = (s, mem, f, x | mem & ~other, t, y)
    return True


def nothing(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    return True


MEMORY_HANDLERS: dict[type[object], Handler] = {
    ops.Read: read,
    ops.Write: write,
    ops.FenceProxyAsync: fence,
    ops.TmaPrefetch: nothing,
    ops.FenceProxyAlias: nothing,
}
