"""Searching an instance: every interleaving, breadth first, or a number of adversarial ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from random import Random

from tilewright.contract.explore.program import Sizes, TooLong, threads_of, unrolled
from tilewright.contract.explore.steps import Instance
from tilewright.contract.explore.world import Problem, World
from tilewright.contract.rules import Policy, Rule
from tilewright.protocol.model import Protocol, Step

MAX_CALLS = 4000


@dataclass(frozen=True)
class Move:
    """One event of a schedule: a thread's step, or a copy that lands on its behalf (``step`` is None)."""

    thread: str
    role: str
    cta: int
    step: Step | None
    env: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Finding:
    """A problem and a schedule that shows it, shortest first when found by ``exhaust``."""

    rule: Rule
    detail: str
    schedule: tuple[Move, ...]
    threads: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """``finding`` is None where nothing was found; ``complete`` tells whether everything was searched."""

    finding: Finding | None
    states: int
    complete: bool


def instance(protocol: Protocol, sizes: Sizes, policy: Policy, limit: int = MAX_CALLS) -> Instance:
    """The instance with these trip counts; raises ``TooLong``."""
    threads = threads_of(protocol)
    return Instance(protocol, policy, threads, [unrolled(protocol, t, sizes, limit) for t in threads])


Link = tuple["Link | None", tuple[str, int], int]


def exhaust(protocol: Protocol, sizes: Sizes, policy: Policy = Policy.STRICT, max_states: int = 200_000) -> Outcome:
    """All interleavings of one instance; the first problem met has a shortest schedule."""
    try:
        inst = instance(protocol, sizes, policy)
        first = inst.start()
    except TooLong:
        return Outcome(None, 0, False)
    except Problem as p:
        return Outcome(_finding(None, None, p), 1, True)
    seen: set[Hashable] = {first.key()}
    queue: deque[tuple[World, Link | None]] = deque([(first, None)])
    while queue:
        w, link = queue.popleft()
        moves = inst.moves(w)
        problem = _final(inst, w, bool(moves))
        if problem is not None:
            return Outcome(_finding(inst, link, problem), len(seen), True)
        for move in moves:
            v = w.copy()
            at = -1 if move[0] == "land" else w.pc[move[1]]
            owner = w.landings[move[1]].owner if move[0] == "land" else move[1]
            step: Link = (link, (move[0], owner), at)
            try:
                inst.move(v, move)
            except Problem as p:
                return Outcome(_finding(inst, step, p), len(seen), True)
            key = v.key()
            if key not in seen:
                if len(seen) >= max_states:
                    return Outcome(None, len(seen), False)
                seen.add(key)
                queue.append((v, step))
    return Outcome(None, len(seen), True)


def _final(inst: Instance, w: World, can_move: bool) -> Problem | None:
    if inst.ended(w):
        try:
            inst.check_end(w)
        except Problem as p:
            return p
        return None
    if can_move:
        return None
    stuck = tuple(t for t in range(len(inst.threads)) if w.pc[t] < len(inst.code[t]))
    words = ", ".join(f"{inst.threads[t].label} at {type(inst.code[t][w.pc[t]].op).__name__}" for t in stuck)
    return Problem(Rule.DEADLOCK, stuck, f"nobody can go on: {words}")


def _finding(inst: Instance | None, link: Link | None, p: Problem) -> Finding:
    moves: list[Move] = []
    while link is not None and inst is not None:
        link, (kind, t), pc = link
        thread = inst.threads[t]
        call = inst.code[t][pc] if kind == "thread" else None
        moves.append(
            Move(
                thread.label,
                thread.role,
                thread.cta,
                None if call is None else call.step,
                () if call is None else call.env,
            )
        )
    names = () if inst is None else tuple(inst.threads[t].label for t in p.threads)
    return Finding(p.rule, p.detail, tuple(reversed(moves)), names)


def adversarial(
    protocol: Protocol, sizes: Sizes, policy: Policy = Policy.STRICT, runs: int = 20, seed: int = 0
) -> Outcome:
    """Random schedules that keep some threads and some landings waiting for long: priorities are drawn at the start and
    redrawn for one of them at a few moments (as in probabilistic concurrency testing)."""
    try:
        inst = instance(protocol, sizes, policy)
        first = inst.start()
    except TooLong:
        return Outcome(None, 0, False)
    except Problem as p:
        return Outcome(_finding(None, None, p), 1, False)
    rng = Random(seed)
    length = sum(map(len, inst.code)) + 1
    states = 0
    for _ in range(runs):
        finding, n = _one_run(inst, first.copy(), rng, length)
        states += n
        if finding is not None:
            return Outcome(finding, states, False)
    return Outcome(None, states, False)


def _one_run(inst: Instance, w: World, rng: Random, length: int) -> tuple[Finding | None, int]:
    rank = [rng.random() for _ in inst.threads]
    landing_rank = rng.choice((-1.0, 0.5, 2.0))
    changes = {rng.randrange(length) for _ in range(4)}
    link: Link | None = None
    n = 0
    while True:
        moves = inst.moves(w)
        problem = _final(inst, w, bool(moves))
        if problem is not None:
            return _finding(inst, link, problem), n
        if not moves:
            return None, n
        n += 1
        if n in changes:
            rank[rng.randrange(len(rank))] = -rng.random()
            landing_rank = rng.choice((-1.0, 0.5, 2.0))
        move = max(moves, key=lambda x: rank[x[1]] if x[0] == "thread" else landing_rank + rng.random() / 8)
        at = -1 if move[0] == "land" else w.pc[move[1]]
        owner = w.landings[move[1]].owner if move[0] == "land" else move[1]
        link = (link, (move[0], owner), at)
        try:
            inst.move(w, move)
        except Problem as p:
            return _finding(inst, link, p), n
