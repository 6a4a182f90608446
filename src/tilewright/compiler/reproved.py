"""The proofs of a kernel made again, from its texts alone: for bundles that somebody else has written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import conjuncts
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.descriptors import judge_kernel
from tilewright.compiler.proofs.obligations import assumed_of, require
from tilewright.diag import TilewrightError
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

_BY_PROOF = ("proved", "checked")
"""How obligations stand that proofs of the IR discharge; comparisons and executions are made again elsewhere."""


def unproved(source: tile.Kernel, kernel: t.Kernel, claimed: Sequence[Obligation]) -> Iterator[str]:
    """Why the kernel is not proved, if it is not; what ``claimed`` says and its proofs do not; and what they assume
    that it does not say."""
    judged = judge_kernel(kernel)
    found = prove(source, kernel, judged)
    if isinstance(found, str):
        yield found
        return
    try:
        require(found, source, kernel)
    except TilewrightError as error:
        yield "; ".join(d.found for d in error.diagnostics)
    assumed = {c for assumption in kernel.assumptions for c in conjuncts(assumption.expr)}
    for need in set(conjuncts(judged.guard)) - assumed:
        if need.constant is None:
            yield f"{need} is asked by a tensor map, and not assumed"
    author = assumed_of(source)
    known = {_statement(o) for o in (*found, *author)}
    for o in claimed:
        if o.standing in _BY_PROOF and _statement(o) not in known:
            yield f"the certificate says {o.name} {o.detail}, which is not proved".replace("  ", " ")
        if o.standing in ("assumed", "constructed") and o not in author:
            yield f"the certificate says {o.name} {o.detail}, of which the program says nothing"
    for o in author:
        if o not in claimed:
            yield f"{o.name} {o.detail} is assumed, and the certificate does not say so"


def _statement(o: Obligation) -> tuple[str, str]:
    """What is said, without what descriptors asked before the kernel assumed it."""
    return o.name, o.detail.partition(", where ")[0] if o.name == "descriptor" else o.detail
