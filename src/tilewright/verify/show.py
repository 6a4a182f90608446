"""From a breach and the schedule that shows it to what people read: a timeline and a diagnostic."""

from __future__ import annotations

from tilewright.diag import Diagnostic, Label, Location, Severity
from tilewright.protocol.model import Protocol, Step
from tilewright.verify.canonical_runs.evaluation import Breach
from tilewright.verify.model_checker import Finding
from tilewright.verify.timeline import Timeline, TimelineRow, describe


def timeline_of(protocol: Protocol, breach: Breach, finding: Finding, sizes: tuple[tuple[str, str], ...]) -> Timeline:
    """The model checker's schedule, a column for each thread and for the copies of each."""
    rows: list[TimelineRow] = []
    columns: list[str] = []
    many = protocol.ctas > 1
    for time, event in enumerate(finding.schedule, 1):
        name = event.thread + (f" @{event.cta}" if many else "")
        column = name if event.step is not None else f"async of {name}"
        text = describe(event.step, event.env) if event.step is not None else "completes"
        tone = "fail" if time == len(finding.schedule) else "step" if event.step is not None else "async"
        where = "" if event.step is None or event.step.where is None else str(event.step.where)
        rows.append(TimelineRow(time, column, text, tone, where))
        if column not in columns:
            columns.append(column)
    shows = "" if finding.rule is breach.rule else f"shows as {finding.rule.obligation}: "
    places = tuple(s.where for s in _steps(breach) if s.where is not None)
    return Timeline(
        breach.rule.code,
        breach.rule.obligation,
        f"{breach.detail} ({shows}{finding.detail})",
        sizes,
        tuple(columns),
        tuple(rows),
        places,
        missing_order(breach),
    )


def missing_order(breach: Breach) -> str:
    """The two ops that should be ordered, if the violation is about a pair of ops."""
    if breach.step is None or breach.other is None:
        return ""
    return f"{_op(breach.other[1])} comes before {_op(breach.step)}"


def diagnostic_of(breach: Breach, protocol: Protocol, finding: Finding, timeline: Timeline) -> Diagnostic:
    """The error: both source lines, the rule with its source, the missing order, the schedule, and help."""
    labels = _labels(breach)
    here = None if breach.step is None else breach.step.where
    for thread, step in finding.stands:
        if step.where is not None and step.where != here and step.where not in [x.where for x in labels]:
            labels.append(Label(step.where, f"{thread} stands here: {type(step.op).__name__}"))
    if here is None and labels:
        here = labels.pop(0).where
    at = ", ".join(f"{n} = {v}" for n, v in timeline.sizes)
    notes = [f"protocol {protocol.name}{', at ' + at if at else ''}"]
    if timeline.missing:
        notes.append(f"missing order: {timeline.missing}")
    return _diagnostic(breach, here, labels, [*notes, *timeline.text().splitlines()], Severity.ERROR)


def warning_of(breach: Breach) -> Diagnostic:
    """The warning for a violation that the policy permits."""
    return _diagnostic(
        breach, None if breach.step is None else breach.step.where, _labels(breach), [], Severity.WARNING
    )


def _diagnostic(
    breach: Breach, where: Location | None, labels: list[Label], notes: list[str], severity: Severity
) -> Diagnostic:
    return breach.rule.diagnostic(
        breach.detail,
        where,
        more_help=_between(breach) + breach.hint,
        labels=tuple(labels),
        notes=tuple(notes),
        severity=severity,
    )


def _between(breach: Breach) -> str:
    """The lines that the help speaks of."""
    places = [s.where for s in reversed(_steps(breach)) if s.where is not None]
    if len(places) < 2 or places[0] == places[1]:
        return ""
    return f"; the order is missing between {places[0]} and {places[1]}"


def _labels(breach: Breach) -> list[Label]:
    if breach.other is None or breach.other[1].where is None:
        return []
    return [Label(breach.other[1].where, f"the other side: {type(breach.other[1].op).__name__}")]


def _steps(breach: Breach) -> list[Step]:
    other = [] if breach.other is None else [breach.other[1]]
    return [*([] if breach.step is None else [breach.step]), *other]


def _op(step: Step) -> str:
    where = "" if step.where is None else f" ({step.where})"
    return describe(step, ()) + where
