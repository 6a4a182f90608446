"""Proves or refutes protocols that the event graph leaves open: by equivalent protocols, canonical runs, and schedules
that show harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.protocol.edit import apart
from tilewright.protocol.model import Protocol
from tilewright.verify.canonical_runs.search import Failure, Search, interpreter, search
from tilewright.verify.canonical_runs.state import TripDecision
from tilewright.verify.fold import hulled
from tilewright.verify.loops import otherwise_written
from tilewright.verify.model_checker import Finding, adversarial, exhaust
from tilewright.verify.model_checker.thread_program import Sizes
from tilewright.verify.model_checker.threads import threads_of
from tilewright.verify.parametric import GraphProof
from tilewright.verify.rules import Policy
from tilewright.verify.show import diagnostic_of, timeline_of, warning_of
from tilewright.verify.verification import Verification, proved, proved_by_graph, undecided

REPLAY_STATES, REPLAY_WORK = 2_500, 45_000
"""States of the first replay of a refutation, and these times the square of the threads."""
REPLAY_RUNS, REPLAY_MOVES = 80, 5_000
"""Schedules drawn in the first replay, and the moves after which no other is begun in any."""
LATER_REPLAYS = 4
"""Factor by which the search for replays of further instances is limited."""
REPLAY_TOTAL = 18_000
"""States and moves of all replays of one refutation: about a second."""

FIXED_TOTAL, FIXED_WORK = 4_000, 250_000
"""Decision points, and steps, of all searches at fixed trip counts."""

MOST_STATES_OTHERWISE = 400
"""Decision points visited in a form of a protocol that is not its own."""

MAX_FIXED = 40
"""Values tried for a trip count that is the same in all tiles, when only a varying one was refuted."""


def search_canonical_runs(
    protocol: Protocol,
    form: Protocol,
    policy: Policy,
    by_event_graph: Callable[[Protocol], GraphProof | Unknown],
    *,
    replay: bool,
) -> Verification:
    """``check.verify`` of a protocol whose ``form`` the event graph does not prove."""
    elsewhere: Search | None = None
    for other in otherwise_written(form):
        answer = by_event_graph(replace(hulled(other), name=""))
        if isinstance(answer, Proved):
            return proved_by_graph(protocol, policy, answer)
        found = search(interpreter(apart(other), policy), MOST_STATES_OTHERWISE)
        if found.failure is None and not found.reason:
            return _proved(protocol, policy, found)
        elsewhere = elsewhere or (found if found.failure is not None else None)
    result = search(interpreter(apart(form), policy))
    if result.failure is not None and not replay:
        return _open(result, result.failure, "not replayed")
    if result.failure is not None:
        return _refute(apart(protocol), policy, result, result.failure)
    if result.reason:
        if elsewhere is not None and elsewhere.failure is not None and replay:
            refuted = _refute(apart(protocol), policy, elsewhere, elsewhere.failure)
            if isinstance(refuted.proof, Refuted):
                return refuted
        unknown = Unknown("termination of the proof search", result.reason, "bound the counters used as indices")
        return undecided(unknown, result.states)
    return _proved(protocol, policy, result)


def _method(protocol: Protocol, found: Search) -> str:
    of = f", {protocol.grid} CTAs, all orders of strong operations" if protocol.global_counters else ""
    return f"canonical runs to state recurrence ({found.states} states, {found.ends} endings, all trip counts{of})"


def _proved(protocol: Protocol, policy: Policy, found: Search) -> Verification:
    warnings = tuple(map(warning_of, found.warnings.values()))
    return proved(protocol, policy, _method(protocol, found), warnings, found.states)


def _refute(protocol: Protocol, policy: Policy, result: Search, failure: Failure) -> Verification:
    """A breach counts only if the model checker, which shares nothing with the proof, shows the harm."""
    spent, most = 0, min(REPLAY_STATES, REPLAY_WORK // len(threads_of(protocol)) ** 2)
    for place, (sizes, words) in enumerate(_candidates(protocol, policy, failure)):
        share = LATER_REPLAYS if place else 1
        finding, how, states = _replay(protocol, sizes, policy, max(most // share, 1), REPLAY_RUNS // share)
        spent += states
        if finding is not None:
            timeline = timeline_of(protocol, failure.breach, finding, words)
            diagnostic = diagnostic_of(failure.breach, protocol, finding, timeline)
            refuted = Refuted(failure.breach.rule.obligation, timeline)
            return Verification(refuted, None, (diagnostic,), result.states, how)
        if spent > REPLAY_TOTAL:
            break
    return _open(result, failure, "no schedule was found that shows harm")


def _open(result: Search, failure: Failure, why: str) -> Verification:
    """The message for a violation for which no harmful schedule was found."""
    rule = failure.breach.rule
    unknown = Unknown(rule.obligation, f"{failure.breach.detail}; {why}", rule.help + failure.breach.hint)
    return undecided(unknown, result.states)


def _replay(
    protocol: Protocol, sizes: Sizes, policy: Policy, states: int, runs: int
) -> tuple[Finding | None, str, int]:
    """An instance of which so many states are searched, then so many schedules."""
    outcome = exhaust(protocol, sizes, policy, states)
    if outcome.finding is not None:
        return outcome.finding, f"model checker, shortest of {outcome.states} states", outcome.states
    if outcome.complete:
        return None, "", outcome.states
    found = adversarial(protocol, sizes, policy, runs, most_moves=REPLAY_MOVES)
    return found.finding, "model checker, adversarial schedule", outcome.states + found.states


def _candidates(
    protocol: Protocol, policy: Policy, failure: Failure
) -> Iterator[tuple[Sizes, tuple[tuple[str, str], ...]]]:
    """Instances in which the breach may show: the run's own trip counts, then a little larger ones."""
    m = failure.interpreter
    if m.relaxed and not _constant(failure):
        yield from _fixed(protocol, policy)
        return
    decided, lows = _decisions(failure), _lows(failure)
    declared = {s.name: s for s in protocol.symbols}
    stride = max([b.slots for b in protocol.barriers], default=1)
    tries = dict.fromkeys((0, 1, 2, 3, 4, stride, 2 * stride + 1))
    # first with the counts that the run settled kept, then with those raised too: the harm may need another turn
    kept = tries if any((s.name, -1) not in decided for s in protocol.symbols) else (0,)
    for settled, extra in [*((0, x) for x in kept), *((x, x) for x in tries if x)]:

        def sizes(name: str, context: int, extra: int = extra, settled: int = settled) -> int:
            symbol = declared[name]
            if symbol.per is None and name in m.relaxed:
                values = [v for (n, _), v in decided.items() if n == name]
                low = max([symbol.least, *[v for (n, _), v in lows.items() if n == name]])
                value = values[0] + settled * symbol.multiple_of if values else low + extra * symbol.multiple_of
            else:
                low = lows.get((name, context), symbol.least)
                value = low + extra * symbol.multiple_of
                if (name, context) in decided:
                    value = decided[name, context] + settled * symbol.multiple_of
            return value if symbol.most is None else min(value, symbol.most)

        shown = {k: v + extra * declared[k[0]].multiple_of for k, v in lows.items()}
        shown |= {k: v + settled * declared[k[0]].multiple_of for k, v in decided.items()}
        words = [(n if c < 0 else f"{n}({m.per[n]}={c})", str(v)) for (n, c), v in sorted(shown.items())]
        yield sizes, tuple(words)


def _decisions(failure: Failure) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    decision: TripDecision | None = failure.state.decided
    while decision is not None:
        found[decision.key] = decision.value
        decision = decision.previous
    return found


def _lows(failure: Failure) -> dict[tuple[str, int], int]:
    """Counts that the run left open, by the least value they may have."""
    return {key: trip.low for key, trip in failure.state.trips.items() if not trip.exact}


def _constant(failure: Failure) -> bool:
    """Whether the run gave each relaxed symbol one value throughout."""
    values: dict[str, set[int]] = {}
    for (name, _), value in _decisions(failure).items():
        values.setdefault(name, set()).add(value)
    return all(len(values.get(name, ())) <= 1 for name in failure.interpreter.relaxed)


def _fixed(protocol: Protocol, policy: Policy) -> Iterator[tuple[Sizes, tuple[tuple[str, str], ...]]]:
    """Constant trip counts that the proof method refutes when run at them."""
    declared = {s.name: s for s in protocol.symbols}
    relaxed, spent, work = sorted(interpreter(protocol, policy).relaxed), 0, 0
    for i in range(MAX_FIXED):
        values = {n: declared[n].least + i * declared[n].multiple_of for n in relaxed}
        if any(values[n] > (s.most if (s := declared[n]).most is not None else values[n]) for n in relaxed):
            return
        pinned = _pinned(protocol, values)
        run = interpreter(pinned, policy)
        result = search(run)
        spent, work = spent + result.states, work + run.spent
        if spent > FIXED_TOTAL or work > FIXED_WORK:
            return
        if result.failure is None:
            continue
        decided = _decisions(result.failure)

        def sizes(
            name: str, context: int, values: dict[str, int] = values, decided: dict[tuple[str, int], int] = decided
        ) -> int:
            return values.get(name, decided.get((name, context), declared[name].least))

        yield sizes, tuple((n, str(v)) for n, v in {**values, **{k: v for (k, _), v in decided.items()}}.items())


def _pinned(protocol: Protocol, values: dict[str, int]) -> Protocol:
    """The protocol with one value for some of its symbols."""
    symbols = (replace(s, least=n, most=n, multiple_of=1) if (n := values.get(s.name)) is not None else s
               for s in protocol.symbols)  # fmt: skip
    return replace(protocol, symbols=tuple(symbols))
