"""Whether kernels can be launched here."""

from __future__ import annotations

from functools import cache

from tilewright.diag import TilewrightError
from tilewright.runtime.driver import Driver


@cache
def gpu_present() -> bool:
    """A driver and at least one device."""
    try:
        Driver()
    except TilewrightError:
        return False
    return True
