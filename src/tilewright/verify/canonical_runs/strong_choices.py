"""Which of the strong operations that may come next are tried: not all orders tell something.

Of a word that nobody sets and whose additions are positive, two kinds of operations may go first in every run:

- a wait that is over: it stays so, and later it would know more;
- an addition without a ticket that every wait to come on the word needs: until all the other additions to come have
  been made none of those waits is over, so nobody can tell in which order they were.

Knowing more breaks no rule, and all else is the same in the run that is tried. Both only in a CTA that is known to
have begun, or where all are resident: else that it may begin late is a case of its own.
"""

from __future__ import annotations

from tilewright.protocol.effects import Counting, Strong
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.canonical_runs.counter_order import Operation
from tilewright.verify.canonical_runs.interpreter import Interpreter
from tilewright.verify.canonical_runs.state import RunState, WordState
from tilewright.verify.threads import BackEdge


def choices(m: Interpreter, st: RunState, ready: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the agents that may go on of which each is to be tried as the next."""
    running = [i for i in ready if m.protocol.resident >= m.protocol.grid or m.agents[i].cta in st.acted]
    standing = [o for i in running for o in m.operations if o.agent == i and o.pc == st.agents[i].pc]
    grown = [o for o in standing if _only_grows(m, o.effect.word.counter)]
    waits = [o.agent for o in grown if o.effect.does is Counting.AT_LEAST]
    if waits:
        return (waits[0],)
    return next(((o.agent,) for o in grown if _all_wait_for(m, st, o)), ready)


def _only_grows(m: Interpreter, counter: str) -> bool:
    effects = [o.effect for o in m.operations if o.effect.word.counter == counter]
    return all(e.does is Counting.AT_LEAST or (e.does is Counting.ADD and _amount(e) > 0) for e in effects)


def _amount(effect: Strong) -> int:
    """What is added or waited for, where that is one number; else 0."""
    return effect.value.constant or 0


def _all_wait_for(m: Interpreter, st: RunState, addition: Operation) -> bool:
    name, index = addition.word
    to_come = [o for o in m.operations if o.word[0] == name and _comes(m.agents[o.agent], st.agents[o.agent].pc, o)]
    if index is None or any(o.word[1] is None or o.effect.ticket or o.again for o in to_come):
        return False
    here = [o.effect for o in to_come if o.word == addition.word]
    value = st.words.get((name, index), WordState()).value
    others = value + sum(_amount(e) for e in here if e.writes) - _amount(addition.effect)
    return all(_amount(e) > others for e in here if not e.writes)


def _comes(agent: CompiledAgent, pc: int, o: Operation) -> bool:
    """Whether the agent, at ``pc``, may still come to the operation."""
    return o.pc >= pc or any(isinstance(x, BackEdge) and x.back <= o.pc for x in agent.code[pc:])
