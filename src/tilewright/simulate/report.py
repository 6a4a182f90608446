"""The report of a run, and diagnostics at the user's lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tilewright.diag import Diagnostic, Location, TilewrightError
from tilewright.transport.dialect import TransportOp


@dataclass(frozen=True)
class SimulationReport:
    """A finished run: CTAs and programs run, thread-register operations done, elements moved and their
    bytes, lines printed."""

    ctas: int
    programs: int
    operations: int
    elements_loaded: int
    elements_stored: int
    bytes_moved: int
    printed: tuple[str, ...]


def place(op: TransportOp) -> Location | None:
    """The user's ``file:line`` on an op, if it has one."""
    if op.loc is None:
        return None
    file, _, line = op.loc.data.rpartition(":")
    return Location(file, int(line)) if file and line.isdigit() else Location(op.loc.data, 0)


def refuse(op: TransportOp, code: str, *, found: str, required: str, help: str = "") -> NoReturn:
    """Raise the diagnostic ``code`` at the user's line of ``op``, naming the op."""
    name = op.name.removeprefix("transport.") + (f" ({op.note.data})" if op.note is not None else "")
    raise TilewrightError((Diagnostic(code, where=place(op), found=f"{name}: {found}", required=required, help=help),))
