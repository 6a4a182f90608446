"""Kernels with products for tensors without elements: a schedule may take for granted that its stream has a step.

Where the extent that it walks is 0, no stream of the program has one, and what is left of it multiplies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import Operation

from tilewright.base.expr import FALSE, Expr, Sym, any_of, simplify
from tilewright.compiler.plain import plan_kernel
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.requests import Request
from tilewright.lang.schedule import Schedule
from tilewright.schedule.plan import loaded_of, symbols_of
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations


def extents_without_steps(variants: Sequence[PlannedKernel]) -> Expr:
    """The extents of 0 that none of these kernels takes, and with which no stream has a step."""
    kernel = variants[-1].tile
    trips = [op.trip.expr for op in kernel.walk() if isinstance(op, tile.Stream)]
    least = dict.fromkeys(symbols_of(kernel) | loaded_of(kernel), (0, None))
    extents = {s for trip in trips for s in trip.symbols} & least.keys()
    idle = (s for s in sorted(extents) if all(simplify(t.substitute({s: 0}), least).constant == 0 for t in trips))
    refused = (s for s in idle if all(simplify(v.predicate.substitute({s: 0}), {}) == FALSE for v in variants))
    return any_of(Sym(s).eq(0) for s in refused)


def without_steps(request: Request, kernel: tile.Kernel, predicate: Expr) -> PlannedKernel:
    """The kernel for those extents."""
    rest = rest_of(kernel)
    own = replace(request, schedule=Schedule())
    return replace(plan_kernel(own, rest, predicate, f"{request.function.name}_no_steps"), wholes=(kernel,))


def rest_of(kernel: tile.Kernel) -> tile.Kernel:
    """The program without its streams, and without what only they used."""
    rest = kernel.clone()
    for op in reversed(operations(rest)):
        if isinstance(op, tile.Stream) or _unused(op):
            op.detach()
            op.erase()
    return rest


def _unused(op: Operation) -> bool:
    return bool(op.results) and not any(result.uses for result in op.results)


__all__ = ["extents_without_steps", "without_steps"]
