"""Running artifacts: bind arguments, encode descriptors, launch the steps. Knows no compiler."""

from __future__ import annotations

from tilewright.runtime.program import Program, load

__all__ = ["Program", "load"]
