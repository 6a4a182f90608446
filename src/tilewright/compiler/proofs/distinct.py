"""Stores through promised index tensors: no two of a kernel's programs, steps and places write one element.

Where two write one element, their loaded coordinates are equal. By the promise these came from one element of the index
tensors. So it is enough that places which take the same element differ in another coordinate: that is proved here, of
the Tile IR, for all extents. That each place is written once is proved of the Transport IR (``added``, of the scatter).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import all_of
from tilewright.base.verdict import Proved
from tilewright.compiler.proofs.stores import ScatterDomain, scatter_domains
from tilewright.compiler.reliance import relied_on
from tilewright.compiler.timing import timed
from tilewright.diag import TilewrightError
from tilewright.protocol.access import StoreDomain
from tilewright.tile import dialect as tile
from tilewright.tile.ops import location_of
from tilewright.tile.promised_indices import promised_access
from tilewright.transport import dialect as t
from tilewright.transport.access import accesses_of, scatter_name
from tilewright.verify.access import prove_once
from tilewright.verify.access_report import diagnose

DISTINCT = "distinct"


@timed("prove")
def require_distinct(kernel: tile.Kernel, lowered: t.Kernel) -> tuple[Obligation, ...]:
    """The obligations of a kernel's stores through promised tensors; ACC003 or ACC005 for one that is not met."""
    return tuple(_distinct(domain, lowered) for domain in scatter_domains(kernel))


def _distinct(domain: ScatterDomain, lowered: t.Kernel) -> Obligation:
    """Proves that positions of one scatter which take the same elements of the index tensors are one position."""
    op, reliance = domain.op, promised_access(domain.op)
    assert not isinstance(reliance, str), "the tracer has refused it"
    at = [c.substitute(domain.places) for c in (*reliance.element, *reliance.rest.values())]
    dims = [d.expr for d in tile.tensor_type(op.tensor).dims]
    extents = (*reliance.dims, *(dims[d] for d in reliance.rest))
    inside = (test for c, extent in zip(at, extents, strict=True) for test in (c >= 0, c < extent))
    name = scatter_name(tile.tensor_type(op.tensor).tensor_name.data, domain.number)
    guard = all_of([*domain.guard, *inside])
    promise = StoreDomain(name, domain.location, domain.indices, tuple(at), guard)
    known = accesses_of(lowered)
    about_extents = tuple(a for a in known.assumptions if not any("." in symbol for symbol in a.symbols))
    answer = prove_once(replace(known, assumptions=about_extents, accesses=()), promise)
    if not isinstance(answer, Proved):
        raise TilewrightError((diagnose(answer, location_of(op)),))
    (once,) = answer.obligations
    by = f", by {relied_on(op)}" if reliance.tensors else ""
    return Obligation(DISTINCT, f"{once.method}{by}", name)
