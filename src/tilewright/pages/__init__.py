"""Pages of a cache: programs whose page ownership is checked, and the pool that serves them at run time.

The language and its checker need the standard library only; the pool needs NumPy and loads on first use.
"""

from __future__ import annotations

from tilewright.pages.programs.checker import CheckedProgram, Peak, check
from tilewright.pages.programs.language import PageCondition as Condition
from tilewright.pages.programs.language import PageEvent as Event
from tilewright.pages.programs.language import (
    PageProgram,
    capture,
    cell,
    copy,
    each,
    fence,
    flag,
    launch,
    otherwise,
    phase,
    program,
    record,
    repeat,
    slots,
    wait,
    when,
)
from tilewright.pages.programs.language import TracedPage as Page
from tilewright.pages.programs.language import TracedPool as Pool
from tilewright.pages.programs.language import TracedRequest as Request
from tilewright.pages.programs.language import TracedRequests as Requests
from tilewright.pages.programs.language import TracedTable as Table

__all__ = [
    "CheckedProgram",
    "Condition",
    "Event",
    "Page",
    "PageProgram",
    "Peak",
    "Pool",
    "Request",
    "Requests",
    "Table",
    "capture",
    "cell",
    "check",
    "copy",
    "each",
    "fence",
    "flag",
    "launch",
    "otherwise",
    "phase",
    "program",
    "record",
    "repeat",
    "slots",
    "wait",
    "when",
]
