"""Diagnostics for what an access proof refutes or leaves open."""

from __future__ import annotations

from tilewright.base.verdict import Refuted, Unknown
from tilewright.diag import Diagnostic, Location
from tilewright.diag.catalogue import CATALOGUE
from tilewright.verify.access_witness import AccessFault, AccessWitness

_REQUIRED = {
    AccessFault.OUTSIDE: "every coordinate inside the extents, for all extents of the class",
    AccessFault.TWICE: "every element written by exactly one program, thread and register",
    AccessFault.MISSED: "every element of the store's domain written",
    AccessFault.STRAY: "only elements of the store's domain written",
}


def diagnose(proof: Refuted[AccessWitness] | Unknown, default: Location | None = None) -> Diagnostic:
    """ACC001 to ACC004 for a refutation, at the source line of the access or of the store that needs it; ACC005 if
    undecided. ``default`` is the line if the op has none."""
    match proof:
        case Refuted(obligation, witness):
            code, found, required, settle = witness.fault.value, str(witness), _REQUIRED[witness.fault], ""
            where, notes = _place(witness.place) or default, (obligation,)
        case Unknown(obligation, reason, settle, place):
            code, found, required = "ACC005", f"{obligation}: {reason}", "a proof for all extents of the class"
            where, notes = _place(place) or default, ()
    source = CATALOGUE[code].source
    return Diagnostic(code, where=where, found=found, required=required, source=source, help=settle, notes=notes)


def _place(location: str) -> Location | None:
    file, _, line = location.rpartition(":")
    return Location(file, int(line)) if file and line.isdigit() else None
