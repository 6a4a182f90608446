"""Counters in global memory in a canonical run: strong operations, in every order in which they may happen.

What a word holds, and which of its values an operation reads, depends on the order of the operations on it. So an agent
that comes to one stops there; once all agents have, or wait, the run splits into one for each that may go first
(``OpenOrder``). In each of these runs every step is settled by the steps before it, as in a run without counters.

Clocks go along with what a word hands on (PTX ISA 9.1, 8.8 to 8.9.5): an addition leaves what was handed on before, a
store takes it away, but for what its own thread released; an operation of too narrow a scope hands on to its own CTA
alone, and takes from there alone.

**Who may have to wait for whom.** Of a grid of which ``resident`` CTAs surely run at once, another CTA begins perhaps
only when one has ended. A CTA that has done a strong operation has begun. If all begun ones that have not ended wait,
and with them as many others, which may have begun and wait for the same reason, as are resident, nobody else need ever
begin. So a wait is in order if it is for what those do that have begun before: those that drew earlier tickets.
"""

from __future__ import annotations

from tilewright.protocol.effects import Counting, MemoryFence, Strong
from tilewright.protocol.operands import Scope
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.canonical_runs.evaluation import Breach, OpenOrder
from tilewright.verify.canonical_runs.interpreter import Interpreter, StepExecution
from tilewright.verify.canonical_runs.state import M, ReleasedState, RunState, WordState, WordUse
from tilewright.verify.canonical_runs.strong_choices import choices
from tilewright.verify.rules import Rule
from tilewright.verify.threads import RunStep


def strong(x: StepExecution, effect: Strong) -> bool:
    """A strong operation, when it is the agent's turn."""
    st, a = x.st, x.a
    if st.turn != x.agent.index:
        return False
    st.turn = None
    key = effect.word.counter, _index(x, effect)
    word = st.words.get(key, WordState())
    _morally_strong(x, effect, word)
    falls = effect.does is Counting.SET and x.value(effect.value) < word.value
    _settled(x, effect, word, falls)
    if effect.reads:
        _read(x, effect, word)
    if effect.writes:
        word = _written(x, effect, word)
    wide = effect.scope is Scope.GPU
    use = WordUse(x.agent.index, x.agent.cta, a.epoch, x.step, effect.writes, wide, effect.does is Counting.SET, falls)
    kept = [u for u in word.uses if (u.agent, *u[4:]) != (use.agent, *use[4:])]
    st.words = {**st.words, key: word._replace(uses=(*kept, use))}
    st.acted |= {x.agent.cta}
    x.m.wake(st)
    return True


def _index(x: StepExecution, effect: Strong) -> int:
    index, slots = x.value(effect.word.index), x.m.counters[effect.word.counter].slots
    if not 0 <= index < slots:
        raise x.breach(Rule.SLOT_RANGE, f"word {index} of {effect.word.counter}, which has {slots}")
    return index


def _morally_strong(x: StepExecution, effect: Strong, word: WordState) -> None:
    """Operations of different CTAs, one of which writes, include each other's threads, or are in causality order."""
    wide = effect.scope is Scope.GPU
    for u in word.uses:
        if u.cta == x.agent.cta or (wide and u.wide) or not (u.writes or effect.writes):
            continue
        if not x.a.clock[M] >> u.step & 1:
            what = f"an operation of {x.label} on {effect.word.counter} and one of {x.m.agents[u.agent].label}"
            detail = f"{what} of another CTA, of which one is of scope {Scope.CTA.value}"
            raise x.breach(Rule.STRONG, detail, (u.agent, u.where))


def _settled(x: StepExecution, effect: Strong, word: WordState, falls: bool) -> None:
    """What is set is ordered with other writes of the word, and where it falls with all operations on it, so that no
    value from before is read (``word_order``). If not, a run may still go wrong, but proves nothing."""
    sets = effect.does is Counting.SET
    for u in word.uses:
        both = u.writes and effect.writes and (sets or u.sets)
        if u.agent != x.agent.index and (both or falls or u.falls) and not x.a.clock[M] >> u.step & 1:
            name = effect.word.counter
            x.m.doubt = f"a store to {name} and an operation of another thread on it are in no causality order"


def _read(x: StepExecution, effect: Strong, word: WordState) -> None:
    """What was handed on is acquired now, or by a later fence. That a relaxed operation is past says of others nothing,
    not even that they are past."""
    seen = _reaching(x, effect.scope, word.handed)
    if effect.sem.acquires:
        for h in seen:
            x.acquire(h.clock)
    else:
        x.a.owed = (*x.a.owed, *seen)


def _reaching(x: StepExecution, scope: Scope, handed: tuple[ReleasedState, ...]) -> tuple[ReleasedState, ...]:
    """Of what was handed on, what an acquire pattern of this scope takes."""
    return tuple(h for h in handed if h.cta == x.agent.cta or (h.wide and scope is Scope.GPU))


def _written(x: StepExecution, effect: Strong, word: WordState) -> WordState:
    a, me, wide = x.a, x.agent, effect.scope is Scope.GPU
    if effect.sem.releases:
        mine = [ReleasedState(me.index, me.cta, wide, x.released())]
    else:
        fences = ((wide, a.fenced_widely), (False, a.fenced_narrowly))
        mine = [ReleasedState(me.index, me.cta, reach, clock) for reach, clock in fences if clock is not None]
    value = x.value(effect.value)
    if effect.does is Counting.SET:
        return word._replace(value=value, handed=(*(h for h in word.handed if h.agent == me.index), *mine))
    if effect.ticket:
        for other in x.m.agents:
            if other.cta == me.cta:
                x.st.agents[other.index].env[effect.ticket] = word.value
    handed = (*word.handed, *mine)
    return word._replace(value=word.value + value, handed=handed)


def memory_fence(x: StepExecution, effect: MemoryFence) -> bool:
    """Ends the acquire patterns of the agent's relaxed reads, and begins release patterns of its relaxed writes."""
    a = x.a
    taken = _reaching(x, effect.scope, a.owed)
    for h in taken:
        x.acquire(h.clock)
    a.owed = tuple(h for h in a.owed if h not in taken)
    if effect.scope is Scope.GPU:
        a.fenced_widely = x.released()
    else:
        a.fenced_narrowly = x.released()
    return True


# -- order of strong operations --------------------------------------------------------------------------------------
def serve_next(m: Interpreter, st: RunState) -> None:
    """All agents wait or stand at strong operations: raises ``OpenOrder`` for those that may go on, or the breach that
    some CTAs may wait for one that never begins."""
    standing = {x.index: e for x in m.agents if (e := _standing(st, x)) is not None}
    ready = tuple(i for i, e in standing.items() if _goes(m, st, m.agents[i], e))
    _held_up(m, st, frozenset(m.agents[i].cta for i in ready))
    if ready:
        raise OpenOrder(choices(m, st, ready))


def _standing(st: RunState, agent: CompiledAgent) -> Strong | None:
    """The strong operation that an agent stands at."""
    a = st.agents[agent.index]
    ins = agent.code[a.pc] if not a.done and a.pc < len(agent.code) else None
    effects = ins.step.op.effects if isinstance(ins, RunStep) else ()
    return effects[0] if effects and isinstance(effects[0], Strong) else None


def _goes(m: Interpreter, st: RunState, agent: CompiledAgent, effect: Strong) -> bool:
    a = st.agents[agent.index]
    index, value = (m.value(st, agent, a, e) for e in (effect.word.index, effect.value))
    word = st.words.get((effect.word.counter, index), WordState())
    return effect.writes or word.value >= value


def _held_up(m: Interpreter, st: RunState, going: frozenset[int]) -> None:
    """The CTAs that have begun, and others that may have, all wait, and are as many as surely run at once."""
    p = m.protocol
    unfinished = {x.cta for x in m.agents if not st.agents[x.index].done}
    waiting = unfinished - going
    begun, late = unfinished & st.acted, going - st.acted
    if begun <= waiting and len(waiting) >= min(p.resident, len(unfinished)) and waiting and late:
        who = next(x for x in m.agents if x.cta in waiting and not st.agents[x.index].done)
        others = ", ".join(map(str, sorted(unfinished - waiting)))
        detail = (
            f"CTAs {', '.join(map(str, sorted(waiting)))} of a grid of {p.grid} wait while CTA {others} may never "
            f"begin: {p.resident} surely run{'s' if p.resident == 1 else ''} at once; "
            + m.waits(st, [x for x in m.agents if x.cta in waiting and not st.agents[x.index].done])
        )
        raise Breach(Rule.RESIDENT, who.index, m.step_at(who, st.agents[who.index]), detail)


def check_reset(m: Interpreter, st: RunState) -> None:
    """At the end a counter that no launch fills with zeros is left at zero."""
    for (name, index), word in st.words.items():
        if word.value and not m.counters[name].reset:
            last = word.uses[-1]
            detail = f"{name}[{index}] is {word.value} at the end, and the next launch does not reset it"
            raise Breach(Rule.RESET, last.agent, last.where, detail)
