"""Diagnostics: the catalogue of errors, their rendering, and the one exception that carries them."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.diag.diagnostic import Diagnostic, Label, Location, Severity, TilewrightError, render

__all__ = ["Diagnostic", "Label", "Location", "Severity", "TilewrightError", "fail", "render"]


def fail(code: str, **fields: Any) -> NoReturn:
    """Raise ``TilewrightError`` with one ``Diagnostic(code, **fields)``."""
    raise TilewrightError((Diagnostic(code, **fields),))
