"""ART: artifacts, the store, loading and launching."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

CODES: tuple[Code, ...] = ()
