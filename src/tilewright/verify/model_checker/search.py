"""Searching an instance: every interleaving that matters, breadth first, or a number of adversarial ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from tilewright.protocol.model import Protocol
from tilewright.verify.model_checker.grid_reduction import GridReduction
from tilewright.verify.model_checker.instance import MAX_CALLS, ProtocolInstance
from tilewright.verify.model_checker.moves import Move, completions, final, moves, moves_of, returns, start, step
from tilewright.verify.model_checker.recur import Recurrence
from tilewright.verify.model_checker.reduce import PartialOrderReduction
from tilewright.verify.model_checker.thread_program import Sizes, TooLong
from tilewright.verify.model_checker.witness import Finding, finding
from tilewright.verify.model_checker.world import Problem, World
from tilewright.verify.rules import Policy


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search: ``finding`` is None where no problem was found; ``complete``: everything was
    searched."""

    finding: Finding | None
    states: int
    complete: bool


Link: TypeAlias = tuple["Link | None", Move]
"""A schedule, last move first."""


STATE_BARRIERS, STATE_THREADS = 64, 24
"""Of a world that counts as one state: more barriers take longer to copy, more threads to choose among."""

MAX_MOVES = 200_000
"""Moves of all adversarial runs together."""


def exhaust(
    protocol: Protocol,
    sizes: Sizes | None,
    policy: Policy = Policy.STRICT,
    max_states: int = 200_000,
    reduce: bool = True,
) -> Outcome:
    """All interleavings of one instance, or, without ``sizes``, of the protocol for every trip count.

    Breadth first, so that the first problem met has a shortest schedule among those searched; moves that don't bear on
    it are dropped from it. ``reduce`` leaves out interleavings that differ only in the order of independent moves.
    Open trip counts have a finite set of states only where counters are used for slots, parities and their own ends.
    """
    try:
        g = ProtocolInstance(protocol, sizes, policy, MAX_CALLS)
        first = start(g)
    except TooLong:
        return Outcome(None, 0, False)
    except Problem as p:
        return Outcome(Finding(p.rule, p.detail, (), ()), 1, True)
    max_states = max_states * STATE_BARRIERS // max(len(g.counts), STATE_BARRIERS)
    max_states = max(max_states * STATE_THREADS**2 // max(len(g.threads), STATE_THREADS) ** 2, 1)
    return _BreadthFirst(g, first, max_states, reduce).outcome()


class _BreadthFirst:
    """The states of an instance, nearest first. ``pending``: of open trip counts, those that wait to be expanded."""

    def __init__(self, g: ProtocolInstance, first: World, max_states: int, reduce: bool):
        self.g, self.max_states = g, max_states
        recurrence = Recurrence(g) if g.open else None
        self.key = World.key if recurrence is None else recurrence.key
        reduction = GridReduction(g) if g.gpu else PartialOrderReduction(g, recurrence)
        self.reduction = reduction if reduce else None
        self.seen: set[Hashable] = {self.key(first)}
        self.queue: deque[tuple[World, Link | None]] = deque([(first, None)])
        self.pending = set(self.seen) if g.open else set[Hashable]()

    def outcome(self) -> Outcome:
        """The problem found, or that all states, or as many as allowed, satisfy the rules."""
        try:
            while self.queue:
                found = self._expanded(*self.queue.popleft())
                if found is not None:
                    return Outcome(found, len(self.seen), True)
        except TooLong:
            return Outcome(None, len(self.seen), False)
        return Outcome(None, len(self.seen), True)

    def _expanded(self, w: World, link: Link | None) -> Finding | None:
        """Enters the states behind ``w``; a problem of ``w`` or of a move from it."""
        g = self.g
        if g.open:
            self.pending.discard(self.key(w))
        every = moves(g, w)
        problem = final(g, w, every)
        if problem is not None:
            return finding(g, link, problem)
        chosen = every
        if self.reduction is not None:
            chosen = self.reduction.chosen(w, every, None if link is None else link[1])
        for attempt in (chosen, every):
            onward = False
            for move in attempt:
                v = w.copy()
                try:
                    step(g, v, move)
                except Problem as p:
                    return finding(g, (link, move), p)
                onward |= self._entered(v, (link, move))
            if onward or len(chosen) == len(every) or not g.open:
                break  # else a cycle closed: nobody may be put off for ever
        return None

    def _entered(self, v: World, link: Link) -> bool:
        """Queues a state that is new; whether it is still to be expanded. ``TooLong`` where there are too many."""
        k = self.key(v)
        if k in self.seen:
            return k in self.pending
        if len(self.seen) >= self.max_states:
            raise TooLong
        self.seen.add(k)
        self.queue.append((v, link))
        if self.g.open:
            self.pending.add(k)
        return True


def adversarial(
    protocol: Protocol,
    sizes: Sizes,
    policy: Policy = Policy.STRICT,
    runs: int = 20,
    seed: int = 0,
    most_moves: int = MAX_MOVES,
) -> Outcome:
    """Random schedules that keep some threads and completions waiting for long: priorities are drawn at the start and
    redrawn for one of them at a few moments (as in probabilistic concurrency testing). In every other schedule waits
    return as soon as they may, so that what threads do behind them is under way when others overtake them."""
    states = 0
    try:
        g = ProtocolInstance(protocol, sizes, policy, MAX_CALLS)
        first = start(g)
        rng, length = Random(seed), 40 * len(g.threads)
        for run in range(runs):
            if states * max(len(g.threads), STATE_THREADS) > most_moves * STATE_THREADS:
                break
            found, n = _one_run(g, first.copy(), rng, length, prompt=run % 2 == 1)
            states += n
            length = max(n, 1)
            if found is not None:
                return Outcome(found, states, False)
    except TooLong:
        return Outcome(None, states, False)
    except Problem as p:
        return Outcome(Finding(p.rule, p.detail, (), ()), 1, False)
    return Outcome(None, states, False)


def _one_run(g: ProtocolInstance, w: World, rng: Random, length: int, *, prompt: bool) -> tuple[Finding | None, int]:
    rank = [rng.random() for _ in g.threads]
    order = sorted(g.everyone, key=lambda t: -rank[t])
    completion_rank = rng.choice((-1.0, 0.5, 2.0))
    changes = {rng.randrange(length) for _ in range(4)}
    link: Link | None = None
    n = 0
    while True:
        n += 1
        if n in changes:
            rank[rng.randrange(len(rank))] = -rng.random()
            order.sort(key=lambda t: -rank[t])
            completion_rank = rng.choice((-1.0, 0.5, 2.0))
        order = [t for t in order if not g.ended(w, t)]
        move = next((Move(t) for t in order if prompt and returns(g, w, t)), None)
        if move is None:
            # of the threads only the first that can move is asked for
            enabled, first = completions(w), next(filter(None, (moves_of(g, w, t) for t in order)), None)
            if first is None or first[0].begins:
                enabled = moves(g, w)
                problem = final(g, w, enabled)
                if problem is not None or not enabled:
                    return None if problem is None else finding(g, link, problem), n - 1
            else:
                enabled += first
            move = max(
                enabled, key=lambda m: rank[m.thread] if m.completion is None else completion_rank + rng.random() / 8
            )
        link = (link, move)
        try:
            step(g, w, move)
        except Problem as p:
            return finding(g, link, p), n
