"""The checker: one protocol in, ``Proved``, ``Refuted`` with a timeline, or ``Unknown`` out."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilewright.base.verdict import Proof, Proved, Refuted, Unknown
from tilewright.contract.fold import drop_partial_private, folded, hulled
from tilewright.contract.op_constraints import declared
from tilewright.contract.parametric import GraphProof, prove
from tilewright.contract.rules import Policy, Rule
from tilewright.contract.timeline import Timeline
from tilewright.contract.verification import Certificate, Verification, proved_by_graph
from tilewright.protocol import expand
from tilewright.protocol.model import Protocol
from tilewright.protocol.validate import problems


def check(protocol: Protocol, policy: Policy = Policy.STRICT, *, replay: bool = True) -> Proof[Timeline]:
    """Whether the protocol keeps every rule, for all values of its trip symbols. Without ``replay`` a breach is not
    shown by a schedule, which may take long: the answer is then Unknown instead of Refuted."""
    return verify(protocol, policy, replay=replay).proof


def verify(protocol: Protocol, policy: Policy = Policy.STRICT, *, replay: bool = True) -> Verification:
    """``check`` with certificate, diagnostics and figures. Never raises because of a protocol's contents."""
    form = tuple(problems(protocol))
    if form:
        found = Unknown("form", form[0].found, "write the protocol as its form requires")
        return Verification(found, None, form, 0)
    protocol = drop_partial_private(expand(protocol))
    for rule, detail in declared(protocol):
        return _refused(protocol, rule, detail)
    form_of_proof = folded(protocol)
    answer = _by_event_graph(replace(hulled(form_of_proof), name=""))
    if isinstance(answer, Proved):
        return proved_by_graph(protocol, policy, answer)
    from tilewright.contract.canonical_search import search_canonical_runs  # noqa: PLC0415 - most protocols need no search

    return search_canonical_runs(protocol, form_of_proof, policy, _by_event_graph, replay=replay)


@lru_cache(maxsize=128)  # kernels that differ in what no protocol tells, such as types, are one question
def _by_event_graph(protocol: Protocol) -> GraphProof | Unknown:
    return prove(protocol)


def _refused(protocol: Protocol, rule: Rule, detail: str) -> Verification:
    """Violations in the declarations alone."""
    timeline = Timeline(rule.code, rule.obligation, detail, (), (), (), (), "")
    refuted = Refuted(rule.obligation, timeline)
    return Verification(refuted, None, (rule.diagnostic(detail),), 0, f"by the declarations of {protocol.name}")


def certificate(protocol: Protocol, policy: Policy = Policy.STRICT) -> Certificate | None:
    """The certificate of a protocol that is proved, else None."""
    return verify(protocol, policy).certificate
