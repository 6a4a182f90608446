"""Kernels with products on empty tensors: schedules may assume that a stream has a step, and a tensor map needs
elements.

Where an extent of 0 leaves no product to compute, the remaining program is a kernel without products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from tilewright.base.expr import FALSE, TRUE, Const, Expr, Sym, any_of, simplify
from tilewright.compiler.plain import plan_kernel
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.requests import Request
from tilewright.lang.axes import Span
from tilewright.schedule.placement import loaded_of, symbols_of
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations


def rests(variants: Sequence[PlannedKernel]) -> Iterator[tuple[tile.Kernel, Expr]]:
    """The remaining programs for extents of 0 that none of ``variants`` takes, each with its dispatch predicate."""
    kernel = variants[-1].tile
    symbols = {s for amount in _amounts(kernel) for s in amount.symbols} & (symbols_of(kernel) | loaded_of(kernel))
    found: list[tuple[tile.Kernel, list[str]]] = []
    for extent in sorted(symbols):
        left = (
            v.predicate.substitute({extent: 0}) for v in reversed(variants)
        )  # the last ones serve the most launches
        refused = all(simplify(predicate, {}) == FALSE for predicate in left)
        rest = rest_of(kernel, extent) if refused else None
        same = [names for other, names in found if rest is not None and other.is_structurally_equivalent(rest)]
        if same:
            same[0].append(extent)
        elif rest is not None:
            found.append((rest, [extent]))
    for rest, names in found:
        yield rest, any_of(Sym(s).eq(0) for s in names)


def planned_rest(
    request: Request, whole: tile.Kernel, rest: tile.Kernel, predicate: Expr, number: int
) -> PlannedKernel:
    """Plans the kernel for a remaining program."""
    own, name = replace(request, schedule=request.schedule.of_others), f"{request.function.name}_no_steps{number or ''}"
    return replace(plan_kernel(own, rest, predicate, name), originals=(whole,))


def rest_of(kernel: tile.Kernel, extent: str) -> tile.Kernel | None:
    """The program where ``extent`` is 0: streams without steps are removed, with everything that only they used, and
    products over no elements become zeros. None where a product remains."""
    least = dict.fromkeys(symbols_of(kernel) | loaded_of(kernel), (0, None))
    rest = kernel.clone()
    for op in reversed(operations(rest)):
        amount = _amount(op)
        if amount is None or simplify((amount <= 0).substitute({extent: 0}), least) != TRUE:
            if not _unused(op):
                continue
        elif isinstance(op, tile.Dot):
            _zero(op)
            continue
        op.detach()
        op.erase()
    return None if any(isinstance(op, tile.Dot) for op in rest.walk()) else rest


def _amounts(kernel: tile.Kernel) -> Iterator[Expr]:
    yield from (amount for op in kernel.walk() if (amount := _amount(op)) is not None)


def _amount(op: Operation) -> Expr | None:
    """The steps of a stream, or the contracted elements of a product; None of other ops."""
    if isinstance(op, tile.StreamLoop):
        return op.trip.expr
    if isinstance(op, tile.Dot):
        axis = tile.tile_type(op.a).axes_tuple[1]
        return axis.stop - axis.origin if isinstance(axis, Span) else Const(1)
    return None


def _zero(op: tile.Dot) -> None:
    """Replaces a product by zeros."""
    result = tile.tile_type(op.result)
    zero = tile.Constant(0, result.element)
    expanded = tile.Expand(zero.result, (0, 1))
    made = [zero, expanded, tile.Broadcast(expanded.result, result.axes_tuple)]
    for new in made:
        new.attributes |= {name: value for name, value in op.attributes.items() if name == "loc"}
    Rewriter.replace_op(op, made)


def _unused(op: Operation) -> bool:
    return bool(op.results) and not any(result.uses for result in op.results)
