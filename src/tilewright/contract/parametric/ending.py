"""What must be over when a class, or a CTA, ends."""

from __future__ import annotations

from tilewright.contract.parametric.facts import Facts
from tilewright.contract.parametric.knowledge import DONE, S
from tilewright.contract.parametric.matching import (
    refs_of,
)
from tilewright.protocol import ops
from tilewright.protocol.word import NoWord


def check_end(facts: Facts) -> None:
    k = facts.k
    for c in k.classes:
        for s in facts.graph.word.ends:
            rows = k.before[c.index, s, len(c.code[s])]
            for (owner, _, _), mark in k.done.items():
                if owner == c.index and rows[DONE, mark, k.j + 1] != 0:
                    raise NoWord(f"{c.group.label} may end with groups in flight")
    for use in facts.bars.values():
        for landing in use.landings:
            if not any(
                all(cover.lead[-1 - e] >= landing.lead[-1 - e] for e in facts.graph.word.ends) for cover in use.covers
            ):
                raise NoWord(f"copies tracked by {use.array[1]} may be in flight at the end")
    _peers(facts)


def _peers(facts: Facts) -> None:
    """A CTA that others touch ends only after they did."""
    for ref in refs_of(facts.k, lambda op: isinstance(op, ops.Arrive | ops.TmaLoad | ops.ArriveExpectTx)):
        targets = {a[0] for a, use in facts.bars.items() if ref in use.users} - {ref.c.cta}
        mark = facts.k.mark[ref.c.index, ref.s, ref.i]
        for target in targets:
            for s in facts.graph.word.ends:
                if not any(
                    facts.past(facts.k.before[c.index, s, len(c.code[s])][S, mark])
                    for c in facts.k.classes
                    if c.cta == target
                ):
                    raise NoWord(f"CTA {target} may end before {facts.name(ref)} touches it")
