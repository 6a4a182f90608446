"""Running artifacts: bind arguments, encode descriptors, launch the steps. Knows no compiler."""

from __future__ import annotations

from tilewright.runtime import index_promises
from tilewright.runtime.check import capability, check, describe_all
from tilewright.runtime.program import Program, load, stream_handle

__all__ = ["Program", "capability", "check", "describe_all", "index_promises", "load", "stream_handle"]
