"""Turns a schedule with a problem into a readable one: only moves that affect the problem are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.protocol.model import Step
from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.moves import Move, decision, enabled, start, step
from tilewright.verify.model_checker.thread_program import TooLong
from tilewright.verify.model_checker.world import Problem, World
from tilewright.verify.rules import Rule

MAX_REPLAYS = 400
"""Replays spent on dropping moves of one schedule."""


@dataclass(frozen=True)
class ScheduleEvent:
    """One event of a schedule: a step of a thread, or the completion of its copy (``step`` is None)."""

    thread: str
    role: str
    cta: int
    step: Step | None
    env: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Finding:
    """A problem and a schedule that shows it. ``stands`` gives the final positions of its ``threads``; ``trips`` are
    the trip counts that the search decided."""

    rule: Rule
    detail: str
    schedule: tuple[ScheduleEvent, ...]
    threads: tuple[str, ...]
    stands: tuple[tuple[str, Step], ...] = ()
    trips: tuple[tuple[str, int, int], ...] = ()


def finding(g: ProtocolInstance, link: Any, p: Problem) -> Finding:
    """The problem with the moves that lead to it, less those that it does without."""
    schedule: list[Move] = []
    while link is not None:
        link, move = link
        schedule.append(move)
    schedule.reverse()
    if p.rule not in (Rule.DEADLOCK, Rule.EXIT):
        schedule = _minimal(g, schedule, p)
    events, w = _events(g, schedule)
    stands = tuple(
        (g.threads[t].label, call.step) for t in p.threads if (call := g.programs[t].call(w.at[t])) is not None
    )
    trips = tuple((name, context, low) for (name, context), (low, _) in sorted(w.trips.items()))
    return Finding(p.rule, p.detail, events, tuple(g.threads[t].label for t in p.threads), stands, trips)


def _minimal(g: ProtocolInstance, schedule: list[Move], p: Problem) -> list[Move]:
    """Drops moves from the end backwards, in pieces that halve, as long as the same problem comes up."""
    budget = MAX_REPLAYS
    size = max(len(schedule) // 2, 1)
    while budget > 0:
        end = len(schedule)
        while end > 0 and budget > 0:
            begin = max(end - size, 0)
            budget -= 1
            shorter = _replayed(g, schedule[:begin] + schedule[end:], p)
            if shorter is not None:
                schedule = shorter
            end = min(begin, len(schedule))
        if size == 1:
            break
        size //= 2
    return schedule


def _replayed(g: ProtocolInstance, schedule: list[Move], p: Problem) -> list[Move] | None:
    """The part of the schedule up to the problem, if it still runs into it."""
    try:
        w = start(g)
        for n, move in enumerate(schedule):
            now = _now(g, w, move)
            if now is None:
                return None
            try:
                step(g, w, now)
            except Problem as q:
                return schedule[: n + 1] if (q.rule, q.threads) == (p.rule, p.threads) else None
    except (Problem, TooLong):
        return None
    return None


def _now(g: ProtocolInstance, w: World, move: Move) -> Move | None:
    """The move as it stands in this world, where groups and counters have their full numbers; None if impossible."""
    if move.completion is not None:
        what = move.completion[:4]
        return next((Move(-1, completion=x) for x in w.completions if x[:4] == what), None)
    t = move.thread
    if g.ended(w, t):
        return None
    op = g.op(w, t)
    if move.begins or (g.protocol.grid > 1 and g.threads[t].cta not in w.begun):
        return move if move.begins and g.threads[t].cta not in w.begun else None
    if move.key is not None:
        return Move(t, key=decision(g, w, t), ends=move.ends) if op is None else None
    return move if op is not None and enabled(g, w, t, op) else None


def _events(g: ProtocolInstance, schedule: list[Move]) -> tuple[tuple[ScheduleEvent, ...], World]:
    """The schedule as events, and the world it leads to. Leaving a rendezvous is no event: entering it was.
    Nor is that a CTA begins: its first step is."""
    w = start(g)
    out: list[ScheduleEvent] = []
    for planned in schedule:
        move = _now(g, w, planned)
        if move is None:
            break
        if move.key is None and not move.begins and move.thread not in w.inside:
            owner = move.thread if move.completion is None else move.completion.owner
            thread = g.threads[owner]
            call = g.programs[owner].call(w.at[owner]) if move.completion is None else None
            env = () if call is None else call.env
            out.append(ScheduleEvent(thread.label, thread.role, thread.cta, None if call is None else call.step, env))
        try:
            step(g, w, move)
        except Problem:
            break
    return tuple(out), w
