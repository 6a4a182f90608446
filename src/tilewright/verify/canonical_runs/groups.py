"""Groups of asynchronous ops in a canonical run: a queue's ops enter its open group, which is closed and waited for."""

from __future__ import annotations

from tilewright.protocol.effects import Commit, Order, Queue, Retire
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.mbarriers import saw
from tilewright.verify.canonical_runs.state import CompletionMark, Stream, join, stream_of
from tilewright.verify.rules import Rule

NEVER = (0, -1)
"""Group 0 is open, none was waited for."""


def enter_group(x: StepExecution, queue: Queue) -> int:
    """An op enters the open group of its queue, whose number is returned."""
    a = x.a
    if queue.needs is Order.WGMMA and a.dirty:
        raise x.breach(Rule.WGMMA_REGISTERS, f"{x.label} issues wgmma with no wgmma.fence since its registers")
    a.issued |= {queue.name}
    number = a.filled[queue.name] = a.groups.setdefault(queue.name, NEVER)[0]
    if queue.collective:
        clock, key = x.released(memory=False), _issue(x, queue, number)
        x.st.issues[key] = join(x.st.issues[key], clock) if key in x.st.issues else clock
    return number


def _issue(x: StepExecution, queue: Queue, number: int) -> Stream:
    return queue.name, x.agent.role, number


def commit(x: StepExecution, effect: Commit) -> bool:
    """Closes the open group."""
    name = effect.queue.name
    number, waited = x.a.groups.get(name, NEVER)
    x.a.groups[name] = (number + 1, waited)
    x.a.issued -= {name}
    if effect.queue.collective:
        x.m.wake(x.st)
    return True


def retire(x: StepExecution, effect: Retire) -> bool:
    """Waits for groups; a collective one is done when every warp of the role has issued its part."""
    queue, a = effect.queue, x.a
    number, waited = a.groups.get(queue.name, NEVER)
    upto = number - 1 - effect.pending
    mates = [x.st.agents[y.index].groups for y in x.m.role_agents[x.agent.role]] if queue.collective else []
    if any(groups.get(queue.name, NEVER)[0] <= upto for groups in mates):
        return False
    for k in range(waited + 1, upto + 1) if queue.collective else ():
        clock = x.st.issues.get(_issue(x, queue, k))
        if clock is not None:
            a.clock = join(a.clock, clock)
    if upto > waited:
        a.groups[queue.name] = (number, upto)
        _mark_each(x, stream_of(queue, x.agent), waited, upto)
    if effect.stage is not queue.stages[0] and upto >= 0:
        stream = stream_of(queue, x.agent, effect.stage)
        last = max((k.upto for k in x.st.marks.get(stream, ())), default=-1)
        _mark_each(x, stream, last, upto)
    if mates:
        done = min(groups.get(queue.name, NEVER)[1] for groups in mates)
        for k in range(waited + 1 - len(mates), done + 1):
            x.st.issues.pop(_issue(x, queue, k), None)
    return True


def _mark_each(x: StepExecution, stream: Stream, after: int, upto: int) -> None:
    """One record for each group that a wait retired: what is known of one says nothing of another."""
    for k in range(after + 1, upto + 1):
        saw(x.st, stream, CompletionMark(k, x.agent.index, x.a.epoch, True))
        if k < upto:
            x.a.epoch = x.st.steps
            x.a.past |= 1 << x.a.epoch
            x.st.steps += 1
