"""The effect of each kind of effect in a canonical run, and the conditions at the end."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.protocol import effects as e
from tilewright.verify.canonical_runs.evaluation import Breach
from tilewright.verify.canonical_runs.fences import fence
from tilewright.verify.canonical_runs.global_counters import check_reset, memory_fence, strong
from tilewright.verify.canonical_runs.groups import commit, retire
from tilewright.verify.canonical_runs.interpreter import Interpreter, Transfer
from tilewright.verify.canonical_runs.mbarriers import await_, life, signal
from tilewright.verify.canonical_runs.memory import access
from tilewright.verify.canonical_runs.rendezvous import sync
from tilewright.verify.canonical_runs.resources import count, pool, relinquish, tensor_life
from tilewright.verify.canonical_runs.state import QUEUE_OF, RunState, S, stream_of
from tilewright.verify.rules import Rule

TRANSFERS: Mapping[type[object], Transfer] = {
    e.Access: access,
    e.Signal: signal,
    e.Await: await_,
    e.Commit: commit,
    e.Retire: retire,
    e.Sync: sync,
    e.Fence: fence,
    e.Strong: strong,
    e.MemoryFence: memory_fence,
    e.BarrierLife: life,
    e.TensorLife: tensor_life,
    e.Relinquish: relinquish,
    e.Pool: pool,
    e.Count: count,
}
"""The transfer function of each kind of effect."""


def check_end(m: Interpreter, st: RunState) -> None:
    """All agents have ended: nothing may be in flight, tensor memory is free, counters are as the next launch needs
    them, peers outlived what touched them."""
    for agent in m.agents:
        a = st.agents[agent.index]
        for name, (_, waited) in a.groups.items():
            last, queue = a.filled.get(name, -1), QUEUE_OF[name]
            if last > waited and not any(k.upto >= last for k in st.marks.get(stream_of(queue, agent), ())):
                raise Breach(Rule.EXIT, agent.index, None, f"{agent.label} ends with {queue.words}")
    for b, bar in enumerate(st.bars):
        watched = max((k.upto for k in st.marks.get(("bar", b), ())), default=-1)
        if bar.landed or (bar.done_landed and watched < bar.phase - 1):
            raise Breach(Rule.EXIT, 0, None, f"the kernel may end before the copies tracked by {m.bar_name(b)} landed")
    for (name, cta), (state, c, _) in st.tmem.items():
        if state != "freed":
            raise Breach(Rule.TMEM, c, None, f"{name} of CTA {cta} is never freed")
    check_reset(m, st)
    _check_peers(m, st)


def _check_peers(m: Interpreter, st: RunState) -> None:
    """No CTA ends before what others do to it, or issued to it, is known to be over."""
    for (target, c), step in st.remote.items():
        if not any(st.agents[x.index].clock[S] >> step & 1 for x in m.agents if x.cta == target):
            by = m.agents[c].label
            raise Breach(Rule.CLUSTER_EXIT, c, None, f"CTA {target} may have ended when {by} touches it")
    for (target, c, stream), seq in st.outlived.items():
        if not m.known_done(st, target, stream, seq):
            by = m.agents[c].label
            raise Breach(Rule.CLUSTER_EXIT, c, None, f"CTA {target} may end while what {by} issued reaches it")
