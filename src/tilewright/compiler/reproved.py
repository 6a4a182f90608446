"""Proves a kernel again, from its IR alone: for untrusted bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.artifact.schema import EXECUTION, Obligation
from tilewright.base.expr import conjuncts
from tilewright.compiler.index_promise_tests import PROMISES_TESTED
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.descriptors import DescriptorVerdicts, check_descriptors
from tilewright.compiler.proofs.obligations import assumed_of, require
from tilewright.compiler.validated import LOWERING, PTX
from tilewright.diag import TilewrightError
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class Reproved:
    """The obligations proved again, including the author's assumptions, and what is left open."""

    shown: tuple[Obligation, ...]
    open: tuple[str, ...]


def reproved(source: tile.Kernel, kernel: t.Kernel, claimed: Sequence[Obligation]) -> Reproved:
    """Proves a kernel from its IR. ``open`` lists why it is not proved, claims of the certificate ``claimed`` that no
    proof shows, and assumptions that it does not state. Comparisons that the certificate names are checked elsewhere.
    """
    judged = check_descriptors(kernel)
    found = prove(source, kernel, judged)
    if isinstance(found, str):
        return Reproved((), (found,))
    author = assumed_of(source)
    return Reproved((*found, *author), tuple(_open(source, kernel, judged, found, claimed)))


def _open(
    source: tile.Kernel,
    kernel: t.Kernel,
    judged: DescriptorVerdicts,
    found: Sequence[Obligation],
    claimed: Sequence[Obligation],
) -> Iterator[str]:
    try:
        require(found, source, kernel)
    except TilewrightError as error:
        yield "; ".join(d.found for d in error.diagnostics)
    assumed = {c for assumption in kernel.assumptions for c in conjuncts(assumption.expr)}
    for need in set(conjuncts(judged.guard)) - assumed:
        if need.constant is None:
            yield f"{need} is asked by a tensor map, and not assumed"
    author = assumed_of(source)
    known = {_statement(o) for o in (*found, *author, LOWERING, PTX)}
    for o in claimed:
        tested = o.method == EXECUTION and o.name in (PTX.name, PROMISES_TESTED)
        if not tested and _statement(o) not in known:
            yield f"the certificate says {o.name} {o.detail} by {o.method}, which is not shown"
    for o in author:
        if o not in claimed:
            yield f"{o.name} {o.detail} is assumed, and the certificate does not say so"


def _statement(o: Obligation) -> Obligation:
    """An obligation without the guard of descriptors, which the kernel has assumed since."""
    return replace(o, detail=o.detail.partition(", where ")[0]) if o.name == "descriptor" else o
