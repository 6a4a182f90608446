"""The checker: one protocol in, ``Proved``, ``Refuted`` with a timeline, or ``Unknown`` out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.base import verdict
from tilewright.base.once import once
from tilewright.base.verdict import Proof, Proved, Refuted, Unknown
from tilewright.contract.explore import Finding, adversarial, exhaust
from tilewright.contract.explore.thread_program import Sizes
from tilewright.contract.fold import folded, hulled, parts_by_all
from tilewright.contract.forms import declared
from tilewright.contract.loops import otherwise_written
from tilewright.contract.parametric import METHOD, prove
from tilewright.contract.rules import ASSUMPTIONS, Policy, Rule
from tilewright.contract.runs.search import Failure, Search, machine, search
from tilewright.contract.runs.state import TripDecision
from tilewright.contract.show import diagnostic_of, timeline_of, warning_of
from tilewright.contract.timeline import Timeline
from tilewright.diag import Diagnostic
from tilewright.protocol import expand, to_text
from tilewright.protocol.edit import apart
from tilewright.protocol.model import Protocol
from tilewright.protocol.validate import problems

REPLAY_STATES = 2_500
REPLAY_RUNS = 120
REPLAY_TOTAL = 60_000
"""States and moves of all replays of one refutation."""

FIXED_TOTAL = 4_000
"""Decision points of all searches at fixed trip counts."""

MOST_STATES_OTHERWISE = 400
"""Decision points visited in a form of a protocol that is not its own."""

MAX_FIXED = 40
"""Values tried for a trip count that is the same in all tiles, when only a varying one was refuted."""


@dataclass(frozen=True)
class ProvedObligation:
    """One thing proved, and how."""

    name: str
    rule: str
    method: str


@dataclass(frozen=True)
class Certificate:
    """What a proof rests on: the exact protocol text, the obligations, the assumptions, the policy's warnings."""

    protocol: Protocol
    policy: Policy
    obligations: tuple[ProvedObligation, ...]
    assumptions: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]

    @once
    def digest(self) -> str:
        """SHA-256 of the protocol's text."""
        return hashlib.sha256(to_text(self.protocol).encode()).hexdigest()


@dataclass(frozen=True)
class Judgement:
    """The verdict with everything there is to show for it."""

    proof: Proof[Timeline]
    certificate: Certificate | None
    diagnostics: tuple[Diagnostic, ...]
    states: int
    """Decision points of the proof search."""
    replayed: str = ""
    """How a refutation was reproduced."""


def check(protocol: Protocol, policy: Policy = Policy.STRICT, *, replay: bool = True) -> Proof[Timeline]:
    """Whether the protocol keeps every rule, for all values of its trip symbols. Without ``replay`` a breach is not
    shown by a schedule, which may take long: the answer is then Unknown instead of Refuted."""
    return judge(protocol, policy, replay=replay).proof


def judge(protocol: Protocol, policy: Policy = Policy.STRICT, *, replay: bool = True) -> Judgement:
    """``check`` with certificate, diagnostics and figures. Never raises for what a protocol says."""
    form = tuple(problems(protocol))
    if form:
        found = Unknown("form", form[0].found, "write the protocol as its form requires")
        return Judgement(found, None, form, 0)
    protocol = parts_by_all(expand(protocol))
    for rule, detail in declared(protocol):
        return _refused(protocol, rule, detail)
    form_of_proof = folded(protocol)
    if isinstance(_by_event_graph(replace(hulled(form_of_proof), name="")), Proved):
        return _proved(protocol, policy, METHOD, Search(0, 0))
    for other in otherwise_written(form_of_proof):
        if isinstance(_by_event_graph(replace(hulled(other), name="")), Proved):
            return _proved(protocol, policy, METHOD, Search(0, 0))
        found = search(machine(apart(other), policy), MOST_STATES_OTHERWISE)
        if found.failure is None and not found.reason:
            return _proved(protocol, policy, _method(protocol, found), found)
    result = search(machine(apart(form_of_proof), policy))
    if result.failure is not None and not replay:
        return _open(result, result.failure, "not replayed")
    if result.failure is not None:
        return _refute(apart(protocol), policy, result, result.failure)
    if result.reason:
        unknown = Unknown("termination of the proof search", result.reason, "bound the counters used as indices")
        return Judgement(unknown, None, (_unknown_diagnostic(unknown),), result.states)
    return _proved(protocol, policy, _method(protocol, result), result)


def _method(protocol: Protocol, found: Search) -> str:
    of = f", {protocol.grid} CTAs, all orders of strong operations" if protocol.global_counters else ""
    return f"canonical runs to state recurrence ({found.states} states, {found.ends} endings, all trip counts{of})"


@lru_cache(maxsize=128)  # kernels that differ in what no protocol tells, such as types, are one question
def _by_event_graph(protocol: Protocol) -> Proved | Unknown:
    return prove(protocol)


def _proved(protocol: Protocol, policy: Policy, method: str, result: Search) -> Judgement:
    certificate = _certificate(protocol, policy, method, result)
    warnings = tuple(warning_of(b) for b in result.warnings.values())
    return Judgement(
        Proved(tuple(verdict.Discharged(o.name, o.method) for o in certificate.obligations)),
        certificate,
        warnings,
        result.states,
    )


def _refused(protocol: Protocol, rule: Rule, detail: str) -> Judgement:
    """What its declarations alone make wrong, before any step."""
    timeline = Timeline(rule.code, rule.obligation, detail, (), (), (), (), "")
    found = Diagnostic(rule.code, found=detail, required=rule.text, source=rule.source, help=rule.help)
    return Judgement(Refuted(rule.obligation, timeline), None, (found,), 0, f"by the declarations of {protocol.name}")


# -- refuting ------------------------------------------------------------------------------------------------------
def _refute(protocol: Protocol, policy: Policy, result: Search, failure: Failure) -> Judgement:
    """A breach counts only if the explorer, which shares nothing with the proof, shows the harm."""
    spent = 0
    for sizes, words in _candidates(protocol, policy, failure):
        finding, how, states = _replay(protocol, sizes, policy)
        spent += states
        if finding is not None:
            timeline = timeline_of(protocol, failure.breach, finding, words)
            diagnostic = diagnostic_of(failure.breach, protocol, finding, timeline)
            return Judgement(Refuted(failure.breach.rule.obligation, timeline), None, (diagnostic,), result.states, how)
        if spent > REPLAY_TOTAL:
            break
    return _open(result, failure, "no schedule was found that shows harm")


def _open(result: Search, failure: Failure, why: str) -> Judgement:
    """A breach that no schedule was seen to turn into harm."""
    rule = failure.breach.rule
    unknown = Unknown(rule.obligation, f"{failure.breach.detail}; {why}", rule.help)
    return Judgement(unknown, None, (_unknown_diagnostic(unknown),), result.states)


def _replay(protocol: Protocol, sizes: Sizes, policy: Policy) -> tuple[Finding | None, str, int]:
    outcome = exhaust(protocol, sizes, policy, REPLAY_STATES)
    if outcome.finding is not None:
        return outcome.finding, f"explorer, shortest of {outcome.states} states", outcome.states
    if outcome.complete:
        return None, "", outcome.states
    runs = adversarial(protocol, sizes, policy, REPLAY_RUNS)
    return runs.finding, "explorer, adversarial schedule", outcome.states + runs.states


def _candidates(
    protocol: Protocol, policy: Policy, failure: Failure
) -> Iterator[tuple[Sizes, tuple[tuple[str, str], ...]]]:
    """Instances in which the breach may show: the run's own trip counts, then a little larger ones."""
    m = failure.machine
    if m.relaxed and not _constant(failure):
        yield from _fixed(protocol, policy)
        return
    decided, lows = _decisions(failure), _lows(failure)
    declared = {s.name: s for s in protocol.symbols}
    stride = max([b.slots for b in protocol.barriers], default=1)
    tries = dict.fromkeys((0, 1, 2, 3, 4, stride, 2 * stride + 1))
    # first with the counts that the run settled kept, then with those raised too: the harm may need another turn
    for settled, extra in [*((0, x) for x in tries), *((x, x) for x in tries if x)]:

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
    return all(len(values.get(name, ())) <= 1 for name in failure.machine.relaxed)


def _fixed(protocol: Protocol, policy: Policy) -> Iterator[tuple[Sizes, tuple[tuple[str, str], ...]]]:
    """Constant trip counts that the proof method refutes when run at them."""
    declared = {s.name: s for s in protocol.symbols}
    relaxed, spent = sorted(machine(protocol, policy).relaxed), 0
    for i in range(MAX_FIXED):
        values = {n: declared[n].least + i * declared[n].multiple_of for n in relaxed}
        if any(values[n] > (s.most if (s := declared[n]).most is not None else values[n]) for n in relaxed):
            return
        pinned = _pinned(protocol, values)
        result = search(machine(pinned, policy))
        spent += result.states
        if spent > FIXED_TOTAL:
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


def _unknown_diagnostic(unknown: Unknown) -> Diagnostic:
    return Diagnostic(
        "MBR009",
        found=f"{unknown.obligation}: {unknown.reason}",
        required="a proof or a refutation",
        help=unknown.settle,
    )


# -- certificates --------------------------------------------------------------------------------------------------
def _certificate(protocol: Protocol, policy: Policy, method: str, result: Search) -> Certificate:
    obligations = tuple(ProvedObligation(r.obligation, r.text, method) for r in Rule)
    warnings = tuple(f"{b.rule.code}: {b.detail}" for b in result.warnings.values())
    return Certificate(protocol, policy, obligations, ASSUMPTIONS, warnings)


def certificate(protocol: Protocol, policy: Policy = Policy.STRICT) -> Certificate | None:
    """The certificate of a protocol that is proved, else None."""
    return judge(protocol, policy).certificate
