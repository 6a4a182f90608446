"""Byte regions in a canonical run: which accesses clash, and what orders them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.hw.spaces import Space
from tilewright.protocol.effects import Access, Mode, Part, Proxy, Queue
from tilewright.protocol.model import By
from tilewright.protocol.operands import Slot
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.canonical_runs.descriptors import check_acquired, written
from tilewright.verify.canonical_runs.evaluation import CompiledRegion, OutOfReach
from tilewright.verify.canonical_runs.groups import enter_group
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.peers import note_remote, outlives
from tilewright.verify.canonical_runs.state import (
    EMPTY,
    A,
    ByteHistory,
    CompletionMark,
    F,
    M,
    Record,
    RunState,
    S,
    Stream,
    T,
    X,
    stream_of,
)
from tilewright.verify.canonical_runs.weak_links import weak_links
from tilewright.verify.rules import Policy, Rule

_OF_A_CTA = frozenset((Space.SHARED, Space.DISTRIBUTED_SHARED, Space.TMEM))
_MUST_BE_WRITTEN = frozenset((Space.SHARED, Space.TMEM))


COPY_TO_ITSELF = (
    "a copy from shared::cta to shared::cluster into the executing CTA: PTX ISA 9.1, 9.7.9.25.4.1, does not say "
    "whether the target may be the CTA itself"
)


class NewAccess(NamedTuple):
    """A new access; an asynchronous one completes with ``stream`` up to ``seq``."""

    effect: Access
    stream: Stream | None = None
    seq: int = 0


def space_key(agent: CompiledAgent, place: CompiledRegion, cta: int) -> Stream:
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


def access(x: StepExecution, effect: Access) -> bool:
    """An access, in each CTA that it concerns."""
    if effect.part is Part.ONE and not x.once:
        return True
    for rank in _ranks(x, effect):
        use = _use(x, effect, rank)
        touch(x, use, rank)
        if effect.proxy is Proxy.TENSORMAP:
            check_acquired(x, effect.region)
    if effect.until is None and x.m.buffers[effect.region.buffer].space is Space.REGISTER:
        x.a.dirty = True
    return True


def _ranks(x: StepExecution, effect: Access) -> Sequence[int | None]:
    if effect.ranks:
        return sorted({x.rank(e) for e in effect.ranks})
    return pair_of(x.agent.cta) if effect.pair else (None,)


def pair_of(cta: int) -> tuple[int, int]:
    """The CTAs of the pair that a CTA belongs to."""
    return cta // 2 * 2, cta // 2 * 2 + 1


def _use(x: StepExecution, effect: Access, rank: int | None) -> NewAccess:
    """The access with the stream that tells when it is over; the op of a queue enters its open group."""
    until = effect.until
    if until is None:
        return NewAccess(effect)
    if isinstance(until, Queue):
        return NewAccess(effect, stream_of(until, x.agent, effect.stage), enter_group(x, until))
    b = x.bar(until, rank)
    return NewAccess(effect, ("bar", b), x.st.bars[b].phase)


def touch(x: StepExecution, use: NewAccess, rank: int | None = None) -> None:
    """Checks the access against everything its bytes went through, and adds it to their history."""
    m, st, agent, a, region = x.m, x.st, x.agent, x.a, use.effect.region
    place = m.place(region)
    if place.space is Space.REGISTER and not x.once:
        return
    cta = m.rank(agent, a, x.step, place.cta) if rank is None or place.space is Space.GLOBAL else rank
    if cta != agent.cta and not use.effect.frees:
        note_remote(x, cta)
    tracked = isinstance(use.effect.until, Slot)
    if cta == agent.cta and tracked and use.effect.writes and _is_dsmem(x):
        x.m.doubt = COPY_TO_ITSELF
    if use.stream is not None and (cta != agent.cta or (tracked and _is_dsmem(x))) and place.space in _OF_A_CTA:
        outlives(x, cta, use.stream, use.seq)
    begin = place.begin(a.env)
    end, low = begin + place.size, place.buffer.offset
    if use.effect.clipped:
        begin, end = max(begin, low), min(end, low + place.buffer.size)
        if begin >= end:
            return
    if begin < low or end > low + place.buffer.size:
        raise x.breach(Rule.SLOT_RANGE, f"bytes {begin - low}..{end - low} of {place.buffer.name}")
    if place.space is Space.TMEM:
        _allocated(x, place, cta, use)
    if place.space is Space.GLOBAL and use.effect.generic:
        st.in_global |= 1 << a.epoch
    key = space_key(agent, place, cta)
    starts, cells, first, last = _split(st, key, begin, end)
    m.spend(len(cells) // 8)
    new = Record(agent.index, a.epoch, use.effect, use.stream, use.seq, x.step)
    for i in range(first, last):
        cell, writes = cells[i], use.effect.writes
        if not cell.writes and not writes and place.space in _MUST_BE_WRITTEN and not place.buffer.initialised:
            detail = f"{x.label} reads bytes of {place.buffer.name} never written"
            raise x.breach(Rule.READ_EARLY, detail, buffer=place.buffer.name)
        for old in cell.writes:
            _ordered(x, place, old, True, use)
        for old, wrote in cell.older:
            if wrote or writes:
                _ordered(x, place, old, wrote, use)
        if writes:
            for old in cell.reads:
                _ordered(x, place, old, False, use)
            if not use.effect.frees:  # a pair's second dealloc asks again
                cells[i] = _written(x, cell, new)
        else:
            kept = tuple(r for r in cell.reads if not _covers(new, r))
            cells[i] = ByteHistory(cell.writes, (*kept, new), cell.older)
    st.memory[key] = (starts, cells)
    if use.effect.writes:
        written(x, use.effect, place, begin, end)


def _is_dsmem(x: StepExecution) -> bool:
    """Whether the op copies between CTAs: its source and its target may outlast it."""
    read = (e.region for e in x.step.op.accesses if e.proxy is Proxy.ASYNC and not e.writes)
    return any(x.m.buffers[region.buffer].space in _OF_A_CTA for region in read)


def _covers(new: Record, old: Record) -> bool:
    """Whether a read can represent an earlier one: it is of the same class of threads and part, of the same proxy, and
    over no sooner, since both complete on one stream. Two copies that complete on different barriers both count, and so
    do a read of any part and one of each thread's own."""
    return _kind(new) == _kind(old)


def _kind(r: Record) -> tuple[int, Proxy, Part, Stream | None]:
    return r.agent, r.effect.proxy, r.effect.part, r.stream


def _written(x: StepExecution, cell: ByteHistory, new: Record) -> ByteHistory:
    """The cell after a write. A write that all classes of a role share replaces the bytes part by part: until the last
    class has written, the history before it still counts. So does what other classes of the role did to parts of their
    own, as long as the writer need not know of it."""
    agent = x.agent
    before = (*((w, True) for w in cell.writes), *((r, False) for r in cell.reads))
    apart = tuple((old, wrote) for old, wrote in (*cell.older, *before) if _unheeded(x, old, new))
    classes = x.m.role_agents[agent.role] if new.step.by is By.ALL else [agent]
    if len(classes) == 1:
        return ByteHistory((new,), (), _latest(apart))
    ours = {w.agent for w in cell.writes if w.step is new.step and w.agent != agent.index}
    if ours and all(w.agent != agent.index for w in cell.writes):
        complete = len(ours) + 1 == len(classes)
        return ByteHistory((*cell.writes, new), cell.reads, () if complete else cell.older)
    return ByteHistory((new,), (), _latest((*apart, *before)))


def _unheeded(x: StepExecution, old: Record, new: Record) -> bool:
    """Whether another class of the role made an access to its own part that need not be ordered before the new one."""
    if old.agent == x.agent.index or x.m.agents[old.agent].role != x.agent.role:
        return False
    if old.stream is not None:
        return old.effect.part is new.effect.part is Part.THREAD
    return not x.a.clock[M] >> old.e & 1


def _latest(history: tuple[tuple[Record, bool], ...]) -> tuple[tuple[Record, bool], ...]:
    """Of accesses that one class made in the same way, the last one."""
    last = {(_kind(old), wrote): (old, wrote) for old, wrote in history}
    return tuple(last.values())


def _split(st: RunState, key: Stream, begin: int, end: int) -> tuple[list[int], list[ByteHistory], int, int]:
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


def _allocated(x: StepExecution, place: CompiledRegion, cta: int, use: NewAccess) -> None:
    name, state = place.buffer.name, x.st.tmem.get((place.buffer.name, cta))
    if state is None or (state[0] != "live" and not use.effect.frees):
        raise x.breach(Rule.TMEM, f"{x.label} uses {name}, which is {'freed' if state else 'not allocated'}")
    mine = state[1] == x.agent.index and use.effect.frees  # one thread of a role does both
    if state[0] != "freed" and not mine and not x.knows(M, state[1], state[2]):
        raise x.breach(Rule.TMEM, f"the allocation of {name} is not ordered before {x.label}")


def _ordered(x: StepExecution, place: CompiledRegion, old: Record, old_writes: bool, use: NewAccess) -> None:
    """Raises unless ``old`` is done, visible and fenced before the new access."""
    check = _after_sync if old.stream is None else _after_async
    rule = check(x, place, old, old_writes, use)
    if rule is None:
        return
    found = x.breach(rule, _clash(x, place, old, old_writes, use, rule), (old.agent, old.step))
    if rule is _race(old_writes, use) and _past(x, old) and (weak := weak_links(x.m.protocol)):
        found.detail += ", which is past by then, but not made visible"
        found.hint = f"; the order is there, but hands no memory on: {weak}"
    forgiven = (rule is Rule.FENCE_WAR and not old_writes) or (
        rule is Rule.FENCE_RAW and old.stream is None and _fenced_by_anyone(x, old)
    )
    if forgiven and x.m.policy is Policy.LENIENT:
        x.m.warnings.setdefault((rule, place.buffer.name), found)
        return
    raise found


def _clash(x: StepExecution, place: CompiledRegion, old: Record, old_writes: bool, use: NewAccess, rule: Rule) -> str:
    verb, them = "writes" if use.effect.writes else "reads", x.m.agents[old.agent]
    before = f"{old.effect.name} of {them.label} that {'wrote' if old_writes else 'reads'} them"
    match rule:
        case Rule.FENCE_RAW | Rule.FENCE_WAR:
            lack = "without a proxy fence after"
        case Rule.GROUP:
            lack = "before the group was waited for of"
        case Rule.TCGEN_FENCE:
            lack = "without the tcgen05 fences after"
        case _:
            lack = "not ordered after"
    return f"{use.effect.name} of {x.label} {verb} bytes of {place.buffer.name} {lack} {before}"


def _race(old_writes: bool, use: NewAccess) -> Rule:
    if old_writes and use.effect.writes:
        return Rule.WRITE_WRITE
    return Rule.READ_EARLY if old_writes else Rule.OVERWRITE


def _past(x: StepExecution, old: Record) -> bool:
    """Whether an access is over before the step in every schedule, visible or not."""
    if old.stream is None:
        return x.a.clock[S] >> old.e & 1 == 1
    return any(k.covers(old.seq) and x.saw(S, k.c, k.e) for k in x.st.marks.get(old.stream, ()))


def _private(x: StepExecution, old: Record, use: NewAccess) -> bool:
    """Whether both are of threads of the role that touch their own parts."""
    same_role = x.m.agents[old.agent].role == x.agent.role
    return same_role and old.effect.part is use.effect.part is Part.THREAD


def _after_sync(x: StepExecution, place: CompiledRegion, old: Record, old_writes: bool, use: NewAccess) -> Rule | None:
    agent, a, reaches = x.agent, x.a, use.effect.proxy is Proxy.ASYNC
    own = place.space is Space.REGISTER or _private(x, old, use)
    if own and not reaches:
        return None
    if use.effect.part is Part.SHARED and old.step is x.step and x.m.agents[old.agent].role == agent.role:
        return None  # the threads of a role share a write among them, each its own part, the same at every turn
    mine = old.agent == agent.index and (agent.group.size == 1 or own)
    if not mine and not a.clock[M] >> old.e & 1:
        return _race(old_writes, use)
    if not reaches or place.space is Space.REGISTER:
        return None
    by_writer = (a.fence if mine else a.clock[F]) >> old.e & 1
    if old_writes and not use.effect.writes:
        return None if by_writer else Rule.FENCE_RAW
    return None if by_writer or _fenced_by_anyone(x, old) else Rule.FENCE_WAR


def _fenced_by_anyone(x: StepExecution, old: Record) -> bool:
    """Whether a fence lies between a generic access and now, in its own or in another thread."""
    mine = old.agent == x.agent.index and x.agent.group.size == 1
    return (x.a.fence if mine else x.a.clock[X]) >> old.e & 1 == 1


def _after_async(x: StepExecution, place: CompiledRegion, old: Record, old_writes: bool, use: NewAccess) -> Rule | None:
    m, agent, was, now = x.m, x.agent, old.effect, use.effect
    same_role = m.agents[old.agent].role == agent.role
    if was.mode is now.mode is Mode.REDUCE:
        return None
    if m.protocol.grid > 1 and m.agents[old.agent].cta != agent.cta and was.proxy is now.proxy is Proxy.ASYNC:
        if not _seen_over(x, old, use):
            return _race(old_writes, use)
        # the order of one proxy is kept within a CTA only (PTX ISA 9.1, 8.9.5, proxy-preserved base causality order)
        raise OutOfReach(f"asynchronous accesses of two CTAs of a grid to bytes of {place.buffer.name}")
    if was.queue is not None and was.queue is now.queue:
        if was.queue.in_order and old.agent == agent.index:
            return None
        if place.space is Space.REGISTER:
            return None
        if was.part is Part.THREAD and same_role:
            return None  # each thread copies its own part
    lanes = was.part is now.part is Part.WARP
    if lanes and same_role and old.agent != agent.index:
        return None
    segment, marks = M if use.effect.generic else A, _marks(x, old)
    seen = _seen_over(x, old, use)
    alone = was.queue is not None and not was.queue.collective and was.proxy is not Proxy.TENSORMAP
    if alone and not _private(x, old, use) and not lanes:
        # one thread's wait speaks for its own ops only: all threads of the class must have waited
        asked = M if was.proxy is Proxy.GENERIC else segment
        seen = [k for k in seen if not k.own or x.knows(asked, k.c, k.e)]
    if not seen:
        unwaited = same_role and not any(k.c == agent.index for k in marks)
        grouped = was.queue is not None or was.proxy is Proxy.TENSORMAP
        return Rule.GROUP if unwaited and grouped else _race(old_writes, use)
    if place.space is Space.TMEM and not use.effect.frees:
        return None if any(_tensor_ordered(x, k) for k in seen) else Rule.TCGEN_FENCE
    if was.proxy is Proxy.GENERIC and now.proxy is Proxy.ASYNC:
        return None if any(_copy_fenced(x, k) for k in seen) else Rule.FENCE_RAW
    return None


def _marks(x: StepExecution, old: Record) -> list[CompletionMark]:
    """Where an asynchronous access was seen to be over, with what it did."""
    assert old.stream is not None
    return [k for k in x.st.marks.get(old.stream, ()) if k.covers(old.seq) and k.acquired]


def _seen_over(x: StepExecution, old: Record, use: NewAccess) -> list[CompletionMark]:
    """Those marks that the new access comes after."""
    segment = M if use.effect.generic else A
    return [k for k in _marks(x, old) if x.saw(segment, k.c, k.e)]


def _tensor_ordered(x: StepExecution, k: CompletionMark) -> bool:
    if k.c == x.agent.index:
        return k.own or x.a.after >> k.e & 1 == 1
    return x.a.clock[T] >> k.e & 1 == 1


def _copy_fenced(x: StepExecution, k: CompletionMark) -> bool:
    """cp.async writes are generic: a fence after their completion, by the copying or the consuming thread."""
    if k.c == x.agent.index:
        fenced = x.a.fence >> k.e & 1 == 1
        return fenced and (not k.own or x.agent.group.size == 1 or x.a.clock[F] >> k.e & 1 == 1)
    return x.a.clock[X] >> k.e & 1 == 1
