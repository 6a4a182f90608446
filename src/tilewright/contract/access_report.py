"""Access verdicts as diagnostics for people."""

from __future__ import annotations

from tilewright.base.verdict import Proof, Proved, Refuted, Unknown
from tilewright.contract.access_witness import AccessWitness, Fault
from tilewright.diag import Diagnostic, Location

_REQUIRED = {
    Fault.OUTSIDE: "every coordinate inside the extents, for all extents of the class",
    Fault.TWICE: "every element written by exactly one program, thread and register",
    Fault.MISSED: "every element of the store's domain written",
    Fault.STRAY: "only elements of the store's domain written",
}


def diagnose(proof: Proof[AccessWitness]) -> tuple[Diagnostic, ...]:
    """ACC001 to ACC004 for a refutation, at the user's line of the op; ACC005 for what stayed open."""
    match proof:
        case Proved():
            return ()
        case Refuted(obligation, witness):
            where = _place(witness.location) if witness.location else None
            found, required = str(witness), _REQUIRED[witness.fault]
            return (Diagnostic(witness.fault.value, where=where, found=found, required=required, notes=(obligation,)),)
        case Unknown(obligation, reason, settle):
            return (Diagnostic("ACC005", found=f"{obligation}: {reason}", required="a proof", help=settle),)


def _place(location: str) -> Location:
    file, _, line = location.rpartition(":")
    return Location(file, int(line)) if file and line.isdigit() else Location(location, 0)
