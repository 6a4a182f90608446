"""The warning that a kernel which is simulated would not be compiled, kept in the store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.artifact.store import ArtifactStore, digest
from tilewright.diag import Location, Severity, TilewrightError, printable, render
from tilewright.diag.configuration import Configuration
from tilewright.jit import lazy
from tilewright.jit.fingerprint import compiler_identity

if TYPE_CHECKING:
    from tilewright.compiler.planned import PlannedKernel, PlannedProgram


def assembler_warning(program: PlannedProgram, variant: PlannedKernel, where: Location | None) -> str:
    """JIT006 as text, with the compiler's reason, if ``variant`` would be refused; else "".

    Where the count of registers leaves a doubt the assembler is asked, which takes a second or more, once for each text
    of the kernel that the user's store has not seen.
    """
    request = program.request
    if not lazy.pressure.may_spill(variant.transport, request.target):
        return ""
    texts = (str(each.transport) for each in (*(kernel for _, kernel in variant.before), variant))
    what = (request.target.name, str(request.schedule), str(request.facts), str(where))
    key = digest(("buildable", compiler_identity(), *what, *texts))
    store = ArtifactStore(Configuration.from_environment().store)
    known = store.note(key)
    if known is not None:
        return printable(known)
    refused = lazy.buildable.refusal(program, variant)
    warning = "" if refused is None else _text(refused)
    with suppress(TilewrightError):  # a disk that refuses costs the next process time
        store.put_note(key, warning)
    return warning


def _text(refused: TilewrightError) -> str:
    (reason, *_) = refused.diagnostics
    warning = replace(reason, code="JIT006", title="", found=f"{reason.code}: {reason.found}", help=reason.advice)
    return render(replace(warning, severity=Severity.WARNING))
