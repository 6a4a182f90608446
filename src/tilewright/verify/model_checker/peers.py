"""CTAs of a cluster as each other's peers: who runs, who has ended, what must not reach whom."""

from __future__ import annotations

from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.world import Problem, World
from tilewright.verify.rules import Rule


def remote(g: ProtocolInstance, w: World, t: int, cta: int) -> None:
    """A peer is touched: it must run, and one of its threads still be there."""
    if cta == g.threads[t].cta:
        return
    if gone(g, w, cta):
        raise Problem(Rule.CLUSTER_EXIT, (t,), f"CTA {cta} has ended when {g.threads[t].label} touches it")
    if cta not in w.begun:
        raise Problem(Rule.PEER_START, (t,), f"CTA {cta} may not run yet when {g.threads[t].label} touches it")


def gone(g: ProtocolInstance, w: World, cta: int) -> bool:
    """Whether a CTA has ended."""
    return all(g.ended(w, u) for u in g.everyone if g.threads[u].cta == cta)


def outlived(g: ProtocolInstance, w: World, cta: int) -> None:
    """When a CTA of a cluster ends, no access in flight may reach its memory or its barriers."""
    for f in w.in_flight:
        if f.bytes.space in (("shared", cta), ("tmem", cta)):
            rule = Rule.EXIT if g.threads[f.owner].cta == cta and f.engine != "dsmem" else Rule.CLUSTER_EXIT
            raise Problem(rule, (f.owner,), f"CTA {cta} ends while {f.engine} of {g.threads[f.owner].label} reaches it")
    for x in w.completions:
        if g.cta_of_bar[x.bar] == cta and g.threads[x.owner].cta != cta:
            raise Problem(Rule.CLUSTER_EXIT, (x.owner,), f"CTA {cta} ends before an arrival of its peer")
    for u, held in enumerate(w.open):
        if g.threads[u].cta != cta and any(x.bytes.space == ("shared", cta) for x in held):
            raise Problem(Rule.CLUSTER_EXIT, (u,), f"CTA {cta} may have ended when {g.threads[u].label} touches it")
