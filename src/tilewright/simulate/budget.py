"""An estimate of a launch's work before anything runs: thread-register operations, with loops at their longest."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Block

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import Interval, ceildiv, interval
from tilewright.diag import fail
from tilewright.transport.asynchronous import Elected, Role, Wgmma
from tilewright.transport.dialect import (
    Bind,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Map,
    Print,
    Programs,
    Registers,
    RegistersType,
    Shuffle,
    Trap,
    registers_of,
)

DEFAULT_BUDGET = 500_000_000
_PER_SECOND = 10_000_000
"""Thread-register operations per second on one core; 5 to 12 million were measured for products and softmax."""


def check_budget(kernel: Kernel, symbols: Mapping[str, int], budget: float) -> None:
    """Refuse a launch whose estimated work exceeds ``budget`` (SIM001)."""
    bounds: dict[str, Interval] = {name: (value, value) for name, value in symbols.items()}
    work = kernel.threads.data * _block(kernel.body.block, bounds)
    if work > budget:
        fail(  # at the caller's line: it is his tensors that are too large
            "SIM001",
            found=f"{kernel.sym_name.data} on these tensors takes about {work:.2g} thread-register operations",
            required=f"at most {budget:.2g}",
            help=f"simulate smaller tensors, launch on a GPU, or allow {_duration(work)} with budget={_rounded(work)}",
        )


def _rounded(work: int) -> str:
    """A number not below ``work``, written shortly: 2e9."""
    zeros = len(str(work)) - 1
    return f"{work // 10**zeros + 1}e{zeros}"


def _duration(work: int) -> str:
    """About how long so much work takes."""
    seconds = work / _PER_SECOND
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} seconds"


def _block(block: Block, bounds: dict[str, Interval]) -> int:
    total = 0
    for op in block.ops:
        match op:
            case Programs():
                inner, times = dict(bounds), 1
                for name, extent in zip(op.names, op.extents, strict=True):
                    high = interval(extent.expr, bounds)[1] or 0
                    inner[name.data] = (0, max(high - 1, 0))
                    times *= max(high, 0)
                total += times * _block(op.body.block, inner)
            case For():
                begin, end = interval(op.begin.expr, bounds), interval(op.end.expr, bounds)
                trips = interval(ceildiv(op.end.expr - op.begin.expr, op.step.expr), bounds)[1]
                total += max(trips or 0, 0) * _block(op.body.block, {**bounds, op.counter.data: (begin[0], end[1])})
            case If():
                total += max(_block(op.then.block, dict(bounds)), _block(op.otherwise.block, dict(bounds)))
            case Role() | Elected():
                total += _block(op.body.block, dict(bounds))
            case Wgmma():
                total += op.n.data  # a matrix product is one call however deep
            case Let():
                bounds[op.symbol.data] = interval(op.value.expr, bounds)
            case Bind():
                bounds[op.symbol.data] = (0, MAX_EXTENT)
            case Map():
                total += op.count.data * max(len(list(op.body.block.ops)) - 1, 1)
            case Shuffle():
                total += len(op.distances) * sum(registers_of(b).count.data for b in op.buffers)
            case Fold():
                total += sum(registers_of(s).count.data for s in op.sources)
            case Print() | Trap():
                total += op.count.data
            case Registers():
                pass
            case _:
                total += sum(v.type.count.data for v in op.operands if isinstance(v.type, RegistersType))
    return total
