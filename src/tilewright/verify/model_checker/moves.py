"""The possible moves in a world, and their effects."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.hw.rules.tcgen05 import TMEM_COLUMNS
from tilewright.protocol import ops
from tilewright.verify.model_checker import barriers, grid, op_constraints, peers
from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.memory import close
from tilewright.verify.model_checker.op_semantics import OBSERVABLE, check_end, columns, freed, passed, perform, waited
from tilewright.verify.model_checker.thread_program import Open, TripKey
from tilewright.verify.model_checker.world import Completion, MbarrierState, Problem, World
from tilewright.verify.rules import Rule


class Move(NamedTuple):
    """A thread's next observable op, a copy that lands, or a trip count that a thread needs decided: it is its least
    value (``ends``), or larger. Or the CTA of the thread ``begins``, one of a grid."""

    thread: int
    completion: Completion | None = None
    key: TripKey | None = None
    ends: bool = False
    begins: bool = False


def start(g: ProtocolInstance) -> World:
    """The world before the first step, with all threads at their first observable op."""
    op_constraints.declarations(g.protocol)
    n = len(g.threads)
    w = World(
        [(0, p.start) for p in g.programs],
        [frozenset()] * n,
        [{} for _ in range(n)],
        [MbarrierState(c, 0, 0, c, False, False) for c in g.counts],
        cluster=(0,) * n,
        dirty=frozenset(range(n)),
        pool=dict.fromkeys(range(g.protocol.ctas), 0),
        registers=[g.protocol.registers_per_thread] * n,
        causality=grid.causality(g),
    )
    for t in range(n):
        _settle(g, w, t)
        if g.protocol.grid == 1:
            _run_local(g, w, t)
    return w


def moves(g: ProtocolInstance, w: World) -> list[Move]:
    """Everything that can happen next."""
    found = completions(w)
    for t in g.everyone:
        found += moves_of(g, w, t)
    return found


def completions(w: World) -> list[Move]:
    """The copies that can land next."""
    return [Move(-1, completion=x) for x in dict.fromkeys(w.completions)]


def moves_of(g: ProtocolInstance, w: World, t: int) -> list[Move]:
    """The moves of one thread."""
    if g.ended(w, t):
        return []
    if g.protocol.grid > 1 and g.threads[t].cta not in w.begun:
        return [Move(t, begins=True)] if grid.first_thread(g, t) else []
    op = g.op(w, t)
    if op is None:
        key = decision(g, w, t)
        return [Move(t, key=key, ends=True), Move(t, key=key)]
    return [Move(t)] if enabled(g, w, t, op) else []


def enabled(g: ProtocolInstance, w: World, t: int, op: object) -> bool:
    """Whether the thread's next op would not block."""
    match op:
        case ops.Wait():
            try:
                b = g.bar(t, op.bar)
            except Problem:
                return True  # there is no such barrier: the wait itself goes wrong
            if op_constraints.wrong(g, t, op):
                return True  # it goes wrong at once
            peeked = op.peeked and (t, b) in w.peeked
            return peeked or passed(w, b, op) or not barriers.usable(g, w, t, b)  # a wait too early goes wrong at once
        case ops.BarSync() | ops.CtaSync() | ops.WarpSync():
            return t not in w.inside or t in w.released
        case ops.ClusterWait():
            return w.cluster[t] != 1
        case ops.SpinWait():
            return grid.reached(g, w, t, op)
        case ops.WgmmaWait():
            # a group is done when every warp has issued its part; one without ops waits for nobody
            upto, queue = waited(w, t, "wgmma", op.pending), ("wgmma", *g.teams[t])
            under_way = any(f.owner == t and f.queue == queue and f.number <= upto for f in w.in_flight)
            return not under_way or all(w.groups[u].get("wgmma", 0) > upto for u in g.mates[t])
        case ops.Tcgen05Alloc() if g.mates[t][0] == t:
            return columns(g, w, t) + g.buffers[op.buffer].size <= TMEM_COLUMNS
        case ops.Setmaxnreg() if g.mates[t][0] == t:
            return w.pool[g.threads[t].cta] + freed(g, w, t, op) >= 0
        case _:
            return True


def returns(g: ProtocolInstance, w: World, t: int) -> bool:
    """Whether the thread stands at a wait that is over: of a phase, or of a barrier of threads."""
    match g.op(w, t):
        case ops.Wait() | ops.ClusterWait() as op:
            return enabled(g, w, t, op)
        case _:
            return t in w.released


def step(g: ProtocolInstance, w: World, move: Move) -> None:
    """Carries out a move, then what follows at once; raises ``Problem``."""
    if move.completion is not None:
        at = w.completions.index(move.completion)
        w.completions = w.completions[:at] + w.completions[at + 1 :]
        grid.complete_copy(w, move.completion)
        close(g, w, move.completion.closes)
        barriers.signal(w, move.completion.owner, move.completion.bar, -move.completion.tx, move.completion.arrivals)
        return
    if move.key is not None:
        _decide(g, w, move.key, move.ends)
        return
    t = move.thread
    w.begun |= {g.threads[t].cta}
    if move.begins:
        for u in g.everyone:
            if g.threads[u].cta == g.threads[t].cta:
                _run_local(g, w, u)
        return
    call = g.programs[t].call(w.at[t])
    assert call is not None
    if perform(g, w, t, call.op, id(call.step)):
        _go_on(g, w, t)
        _run_local(g, w, t)


def decision(g: ProtocolInstance, w: World, t: int) -> TripKey:
    """The trip count that the thread waits to know."""
    try:
        g.programs[t].settle(w.at[t], w.trips)
    except Open as e:
        return e.key
    raise AssertionError(w.at[t])


def _decide(g: ProtocolInstance, w: World, key: TripKey, ends: bool) -> None:
    symbol = g.programs[0].symbols[key[0]]
    low, _ = w.trips.get(key) or g.programs[0].unseen(key)
    above = low + symbol.multiple_of
    if ends:
        w.trips[key] = (low, True)
    else:
        w.trips[key] = (above, symbol.most is not None and above + symbol.multiple_of > symbol.most)
    for t in g.everyone:
        if not g.ended(w, t) and g.op(w, t) is None:
            _settle(g, w, t)
            _run_local(g, w, t)


def _settle(g: ProtocolInstance, w: World, t: int) -> None:
    try:
        w.at[t] = g.programs[t].settle(w.at[t], w.trips)
    except Open as e:
        w.at[t] = e.at


def _go_on(g: ProtocolInstance, w: World, t: int) -> None:
    try:
        w.at[t] = g.programs[t].after(w.at[t], w.trips)
    except Open as e:
        w.at[t] = e.at


def _run_local(g: ProtocolInstance, w: World, t: int) -> None:
    """Runs the thread up to its next observable op or open decision."""
    while (call := g.programs[t].call(w.at[t])) is not None and not isinstance(call.op, OBSERVABLE):
        perform(g, w, t, call.op, id(call.step))
        _go_on(g, w, t)
    if g.ended(w, t):
        w.open[t] = frozenset(x for x in w.open[t] if x.bytes.space[0] != "register")
        cta = g.threads[t].cta
        if g.protocol.cluster > 1 and peers.gone(g, w, cta):
            peers.outlived(g, w, cta)
        barriers.cluster_check(g, w)


def final(g: ProtocolInstance, w: World, enabled: list[Move]) -> Problem | None:
    """The problem of a world in which all threads have ended or none can move. ``enabled`` are all moves left."""
    if all(g.ended(w, t) for t in g.everyone):
        try:
            check_end(w)
            grid.check_counters(g, w)
        except Problem as p:
            return p
        return None
    if any(not move.begins for move in enabled) or (enabled and len(grid.running(g, w)) < g.protocol.resident):
        return None
    stuck = tuple(t for t in g.everyone if not g.ended(w, t))
    if enabled:
        late = ", ".join(str(g.threads[move.thread].cta) for move in enabled)
        stuck = tuple(t for t in stuck if g.threads[t].cta in w.begun)
        words = ", ".join(
            f"{g.threads[t].label} of CTA {g.threads[t].cta} at {type(g.op(w, t)).__name__}" for t in stuck
        )
        return Problem(Rule.RESIDENT, stuck, f"nobody that runs can go on, and CTA {late} may never begin: {words}")
    words = ", ".join(f"{g.threads[t].label} at {type(g.op(w, t)).__name__}" for t in stuck)
    return Problem(Rule.DEADLOCK, stuck, f"nobody can go on: {words}")
