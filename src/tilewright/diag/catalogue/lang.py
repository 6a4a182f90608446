"""LNG: what the language refuses while a kernel is traced, and what a call refuses about its arguments."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

CODES: tuple[Code, ...] = ()
