"""Diagnostics: the catalogue of errors, their rendering, and the one exception that carries them."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from tilewright.diag.diagnostic import (
    Diagnostic,
    Label,
    Location,
    Severity,
    TilewrightError,
    printable,
    render,
    shown,
    type_shown,
)

__all__ = [
    "Diagnostic",
    "Label",
    "Location",
    "Severity",
    "TilewrightError",
    "fail",
    "printable",
    "render",
    "shown",
    "type_shown",
]


_OURS = __file__.rsplit(os.sep, 2)[0]  # without pathlib, which takes a tenth of the time of importing tilewright
_DYNAMO = os.sep.join(("", "torch", "_dynamo", ""))


def fail(code: str, **fields: Any) -> NoReturn:
    """Raise ``TilewrightError`` with one ``Diagnostic(code, **fields)``, by default at the line that called us."""
    if fields.get("where") is None:
        fields["where"] = _caller()
    raise TilewrightError((Diagnostic(code, **fields),)) from None


def _is_passed(file: str) -> bool:
    """Ours, or of what calls us in between: ``jit.pytorch.untraced``."""
    return file.startswith(_OURS) or _DYNAMO in file


def _caller() -> Location | None:
    """The innermost place outside of this package; None where that is an interpreter's or a tool's file."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - the documented way to a caller
    while frame.f_back is not None and _is_passed(frame.f_code.co_filename):
        frame = frame.f_back
    file = frame.f_code.co_filename
    if file.startswith((_OURS, "<", sys.prefix, sys.base_prefix)):
        return None
    return Location(file, frame.f_lineno)
