"""Pages of a cache: programs whose page ownership is checked, and the pool that serves them at run time.

The language and its checker need the standard library only; the pool needs NumPy and loads on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.diag.missing import refuse_missing
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
from tilewright.pages.programs.lifetime import PoolPlan, SizeChoice, choose_page_size, plan, reuse_windows

if TYPE_CHECKING:
    from tilewright.pages.oplog import OperationLog
    from tilewright.pages.poison import HostPoison
    from tilewright.pages.pool import PagePool, PoolStats
    from tilewright.pages.replaying import replay
    from tilewright.pages.sequences import Appended, PageSequence, append, block_table
    from tilewright.pages.tables import BlockTable, Discharge, PageIndices, SlotMapping

__all__ = [
    "Appended",
    "BlockTable",
    "CheckedProgram",
    "Condition",
    "Discharge",
    "Event",
    "HostPoison",
    "OperationLog",
    "Page",
    "PageIndices",
    "PagePool",
    "PageProgram",
    "PageSequence",
    "Peak",
    "Pool",
    "PoolPlan",
    "PoolStats",
    "Request",
    "Requests",
    "SizeChoice",
    "SlotMapping",
    "Table",
    "append",
    "block_table",
    "capture",
    "cell",
    "check",
    "choose_page_size",
    "copy",
    "each",
    "fence",
    "flag",
    "launch",
    "otherwise",
    "phase",
    "plan",
    "program",
    "record",
    "repeat",
    "replay",
    "reuse_windows",
    "slots",
    "wait",
    "when",
]


def __getattr__(name: str) -> object:
    """The pool and its tables load on first use; JIT005 without NumPy."""
    if name not in __all__:
        raise AttributeError(f"module 'tilewright.pages' has no attribute {name!r}")
    try:
        from tilewright.pages import (  # noqa: PLC0415 - NumPy loads with them
            oplog,
            poison,
            pool,
            replaying,
            sequences,
            tables,
        )
    except ModuleNotFoundError as error:
        refuse_missing(error, f"pages.{name}")
    for module in (oplog, poison, pool, replaying, sequences, tables):
        globals().update({n: vars(module)[n] for n in __all__ if n in vars(module)})
    return globals()[name]
