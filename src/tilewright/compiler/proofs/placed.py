"""Writes that are counted by places in their tile: each goes where the tile program says that its place goes.

``added`` shows that every place of a scatter is written once. Here coordinates and guards are compared: a place has the
coordinates that the program gives it, and is written wherever these lie in the tensor. What is reduced into a tensor is
so by the program's function. Which register an index comes from is the validator's question.
"""

from __future__ import annotations

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import TRUE, conjuncts
from tilewright.base.verdict import Unknown
from tilewright.compiler.timing import timed
from tilewright.diag import TilewrightError
from tilewright.lang.axes import axis_symbol
from tilewright.tile import dialect as tile
from tilewright.tile.indirect import scatter_number
from tilewright.tile.ops import location_of, operations
from tilewright.transport import dialect as t
from tilewright.transport.access import scatter_name
from tilewright.verify.access_report import diagnose

PLACED = "placed"


@timed("prove")
def require_placed(kernel: tile.Kernel, lowered: t.Kernel) -> tuple[Obligation, ...]:
    """One obligation for each scatter that is counted by places; ACC005 for one that goes elsewhere, or by another
    function."""
    _require_functions(kernel, lowered)
    scatters = [op for op in operations(kernel) if isinstance(op, tile.Scatter | tile.ScatterReduce)]
    own = {scatter_number(op): op for op in scatters}
    found = dict[str, Obligation]()
    for op in operations(lowered):
        if isinstance(op, t.Store | t.AtomicReduce) and op.scattered is not None:
            scatter = own[op.scattered.number]
            name = named(scatter)
            reason = _elsewhere(scatter, op, op.scattered)
            if reason:
                answer = Unknown(f"{PLACED}: {name}", reason, "", str(location_of(scatter) or ""))
                raise TilewrightError((diagnose(answer, location_of(scatter)),))
            found[name] = Obligation(PLACED, "compared", name)
    return tuple(found.values())


def _require_functions(kernel: tile.Kernel, lowered: t.Kernel) -> None:
    """A tensor is reduced into by one function (LNG016), which the lowered kernel has; what reports broken promises
    ``promise_gate`` judges."""
    reductions = (op for op in operations(kernel) if isinstance(op, tile.AtomicReduce | tile.ScatterReduce))
    reports = None if kernel.gate is None else kernel.gate.data
    by_tensor = {tile.tensor_type(op.tensor).tensor_name.data: op for op in reductions}
    for op in operations(lowered):
        if isinstance(op, t.AtomicReduce) and (name := tile.tensor_type(op.tensor).tensor_name.data) != reports:
            source = by_tensor[name]
            if op.fn != source.fn:
                found = f"{op.fn.data}, not {source.fn.data}"
                answer = Unknown(f"{PLACED}: {name}", found, "", str(location_of(source) or ""))
                raise TilewrightError((diagnose(answer, location_of(source)),))


def named(op: tile.Scatter | tile.ScatterReduce) -> str:
    """The name of a scatter's elements in an obligation."""
    return scatter_name(tile.tensor_type(op.tensor).tensor_name.data, scatter_number(op))


def _elsewhere(scatter: tile.Scatter | tile.ScatterReduce, op: t.Store | t.AtomicReduce, scattered: t.Scattered) -> str:
    """Why an op does not implement its scatter; empty if it does."""
    at = {axis_symbol(d): place for d, place in enumerate(scattered.at)}
    coords = [c.expr.substitute(at) for c in scatter.coords]
    if coords != [c.expr for c in op.coords]:
        return f"an access at {', '.join(str(c.expr) for c in op.coords)}"
    dims = [d.expr for d in tile.tensor_type(scatter.tensor).dims]
    inside = {test for c, dim in zip(coords, dims, strict=True) for test in (c >= 0, c < dim)}
    domain, guard = set(conjuncts(TRUE if op.within is None else op.within.expr)), set(conjuncts(op.guard.expr))
    if not domain <= guard <= domain | inside:
        return f"the guard {op.guard.expr}"
    return ""
