"""CTAs of a grid that share global memory: what each thread has come to know of, and when a CTA begins.

A *global access* is one to global memory, or a strong operation on a word. Each thread carries those that it knows to
be past: its own, and what was released to it through barriers of its CTA and through words. Words carry what release
patterns left there. Two of different CTAs that conflict, of which the later one does not know the earlier one, are a
data race (PTX ISA 9.1, 8.7.1); two strong ones that include each other's threads never are.

CTAs begin in any order, one move each. While fewer than ``resident`` run, another one begins for sure; beyond that it
may begin or not, so a state in which only beginnings are left is one in which a grid can hang.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tilewright.protocol import ops
from tilewright.verify.model_checker.instance import ProtocolInstance, number
from tilewright.verify.model_checker.world import (
    AsyncAccess,
    Bytes,
    Causality,
    Completion,
    GlobalAccess,
    Problem,
    Published,
    WordKey,
    World,
)
from tilewright.verify.rules import Rule

_NOTHING: frozenset[GlobalAccess] = frozenset()


def causality(g: ProtocolInstance) -> Causality | None:
    """At the start; None where CTAs share no global memory by counters."""
    return Causality(_NOTHING, [_NOTHING] * len(g.threads)) if g.gpu else None


# -- accesses ---------------------------------------------------------------------------------------------------------
def check_conflicts(g: ProtocolInstance, w: World, t: int, access: GlobalAccess, done: bool) -> None:
    """A thread's access: raises ``Problem`` if it may come at the same time as one of another CTA. ``done``: it is
    past with the op."""
    c = w.causality
    if c is None:
        return
    for other in c.accesses:
        if g.threads[other.owner].cta != g.threads[t].cta and _race(other, access) and other not in c.known[t]:
            label = g.threads[t].label
            words = f"{access.engine} of {label} meets {other.engine} of {g.threads[other.owner].label} in another CTA"
            raise Problem(_rule(other, access), (other.owner, t), words)
    if access in c.accesses:
        _forget(c, access)  # they know of the one before
    c.accesses |= {access}
    if done:
        c.known[t] |= {access}


def ended(w: World, by: int, over: frozenset[AsyncAccess]) -> None:
    """A thread learns that asynchronous accesses have completed."""
    if w.causality is not None:
        w.causality.known[by] |= w.causality.accesses & _past(w, over)


def _past(w: World, over: frozenset[AsyncAccess]) -> frozenset[GlobalAccess]:
    """What has completed with asynchronous accesses: of two alike, such as the reads of one tensor map by two copies,
    nothing before both have."""
    under_way = frozenset(map(_of_flight, w.in_flight - over))
    return frozenset(map(_of_flight, over)) - under_way


def _of_flight(f: AsyncAccess) -> GlobalAccess:
    return GlobalAccess(f.bytes, f.writes, f.owner, 0, f.engine)


def _race(a: GlobalAccess, b: GlobalAccess) -> bool:
    reductions = a.engine == b.engine == "tma_reduce"
    return (a.writes or b.writes) and a.bytes.meets(b.bytes) and not reductions and not (a.wide and b.wide)


def _rule(old: GlobalAccess, new: GlobalAccess) -> Rule:
    if new.bytes.space[0] == "word":
        return Rule.STRONG
    if old.writes and new.writes:
        return Rule.WRITE_WRITE
    return Rule.READ_EARLY if old.writes else Rule.OVERWRITE


def _forget(c: Causality, access: GlobalAccess) -> None:
    c.known = [k - {access} for k in c.known]
    for d in (c.released, c.passed, c.fenced):
        d.update({k: v - {access} for k, v in d.items()})  # pyright: ignore
    for d in (c.left, c.seen):
        d.update({k: frozenset(x for x in v if x.access != access) for k, v in d.items()})  # pyright: ignore


# -- barriers of a CTA -------------------------------------------------------------------------------------------------
def arrive(w: World, t: int, barrier: object) -> None:
    """A thread arrives with what it knows."""
    c = w.causality
    if c is not None:
        c.released[barrier] = c.released.get(barrier, _NOTHING) | c.known[t]


def synchronize(w: World, threads: Iterable[int], barrier: object) -> None:
    """A use of a barrier of threads is over: those that waited know what all released."""
    c = w.causality
    if c is not None:
        released = c.released.pop(barrier, _NOTHING)
        for u in threads:
            c.known[u] |= released


def complete_phase(w: World, b: int) -> None:
    """A phase of an mbarrier is over."""
    c = w.causality
    if c is not None:
        c.passed[b] = c.passed.get(b, _NOTHING) | c.released.get(b, _NOTHING)


def complete_copy(w: World, completion: Completion) -> None:
    """A copy completes: the phase that tracks it publishes that."""
    c = w.causality
    if c is not None:
        over = {f for f in w.in_flight for queue, upto in completion.closes if f.queue == queue and f.number <= upto}
        accesses = c.accesses & _past(w, frozenset(over))
        c.released[completion.bar] = c.released.get(completion.bar, _NOTHING) | accesses


def acquire(w: World, t: int, b: int) -> None:
    """A thread acquires what the phases of an mbarrier publish."""
    c = w.causality
    if c is not None:
        c.known[t] |= c.passed.get(b, _NOTHING)


# -- words -------------------------------------------------------------------------------------------------------------
StrongOp: TypeAlias = ops.AtomAdd | ops.FlagStore | ops.SpinWait


def word(g: ProtocolInstance, t: int, op: StrongOp) -> WordKey:
    """The word that an op means."""
    name, index = op.word.counter, number(op.word.index)
    if not 0 <= index < g.counters[name].slots:
        raise Problem(Rule.SLOT_RANGE, (t,), f"{name}[{index}] does not exist")
    return name, index


def reached(g: ProtocolInstance, w: World, t: int, op: ops.SpinWait) -> bool:
    """Whether the word holds the awaited value; waiting for a word that does not exist is a problem at once."""
    assert w.causality is not None
    try:
        return w.causality.values.get(word(g, t, op), 0) >= number(op.least)
    except Problem:
        return True


def operate(g: ProtocolInstance, w: World, t: int, op: StrongOp) -> int:
    """A strong operation; the value that was there before."""
    c, wide = w.causality, op.scope is ops.Scope.GPU
    assert c is not None
    key = word(g, t, op)
    writes = not isinstance(op, ops.SpinWait)
    place = Bytes(("word", key[0]), key[1], key[1] + 1)
    check_conflicts(g, w, t, GlobalAccess(place, writes, t, 0, "a strong operation", wide), done=True)
    there = c.left.get(key, frozenset[Published]())
    if isinstance(op, ops.SpinWait) or (isinstance(op, ops.AtomAdd) and op.ticket is not None):
        reaching = _reaching(g, t, there, wide)
        if op.sem.acquires:
            c.known[t] |= frozenset(x.access for x in reaching)
        else:
            c.seen[t] = c.seen.get(t, frozenset[Published]()) | reaching
    before = c.values.get(key, 0)
    match op:
        case ops.AtomAdd():
            c.values[key], c.left[key] = before + op.value, there | _leaves(g, c, t, op.sem, wide)
        case ops.FlagStore():
            own = frozenset(x for x in there if x.thread == t)
            c.values[key], c.left[key] = op.value, own | _leaves(g, c, t, op.sem, wide)
        case ops.SpinWait():
            pass
    return before


def _leaves(g: ProtocolInstance, c: Causality, t: int, sem: ops.Sem, wide: bool) -> frozenset[Published]:
    cta = g.threads[t].cta
    if sem.releases:
        return frozenset(Published(d, t, cta, wide) for d in c.known[t])
    left = {Published(d, t, cta, wide) for d in c.fenced.get((t, True), _NOTHING)}
    return frozenset(left | {Published(d, t, cta, False) for d in c.fenced.get((t, False), _NOTHING)})


def _reaching(g: ProtocolInstance, t: int, there: frozenset[Published], wide: bool) -> frozenset[Published]:
    cta = g.threads[t].cta
    return frozenset(x for x in there if x.cta == cta or (x.wide and wide))


def fence(g: ProtocolInstance, w: World, t: int, op: ops.FenceAcqRel) -> None:
    """fence.acq_rel: what relaxed reads saw is known; what is known now, relaxed writes leave."""
    c, wide = w.causality, op.scope is ops.Scope.GPU
    assert c is not None
    taken = _reaching(g, t, c.seen.get(t, frozenset[Published]()), wide)
    c.known[t] |= frozenset(x.access for x in taken)
    c.fenced[t, wide] = c.known[t]


def check_counters(g: ProtocolInstance, w: World) -> None:
    """All threads ended: counters are as the next launch needs them."""
    for (name, index), value in w.causality.values.items() if w.causality is not None else ():
        if value and not g.counters[name].reset:
            raise Problem(Rule.RESET, (), f"{name}[{index}] is {value} when the next launch begins")


# -- tickets -----------------------------------------------------------------------------------------------------------
def draw(g: ProtocolInstance, w: World, t: int, ticket: str, value: int) -> None:
    """All threads of the CTA will find the ticket's value in its buffer."""
    for u in g.everyone:
        if g.threads[u].cta == g.threads[t].cta and not g.ended(w, u):
            program = g.programs[u]
            pc, env = w.at[u]
            slot = program.names.index(ticket)
            w.at[u] = program.settle((pc, (*env[:slot], value, *env[slot + 1 :])), w.trips)


# -- beginnings --------------------------------------------------------------------------------------------------------
def first_thread(g: ProtocolInstance, t: int) -> bool:
    """Whether a thread is the one in whose name its CTA begins."""
    return all(g.threads[u].cta != g.threads[t].cta for u in range(t))


def running(g: ProtocolInstance, w: World) -> frozenset[int]:
    """CTAs that have begun and not ended."""
    return frozenset(g.threads[u].cta for u in g.everyone if not g.ended(w, u)) & w.begun
