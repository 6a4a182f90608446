"""Distributions of kernels with accumulators: axes of products follow wgmma's fragments, others are distributed as in
plain schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.base.expr import Expr
from tilewright.hw.spaces import WARPGROUP_THREADS
from tilewright.hw.target import Target
from tilewright.hw.target.sm_90a import WGMMA_ACCUMULATOR
from tilewright.lang.axes import Span
from tilewright.layout.register import LANES
from tilewright.schedule.classes import Classes
from tilewright.schedule.distribute import (
    Digits,
    Distribution,
    accumulator_columns,
    accumulator_rows,
    ceil_power,
    floor_power,
    spread,
)
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.operands import COLUMNS, ROWS, DotPlan, RegisterOperand, StagedOperand, WidenedOperand
from tilewright.schedule.map_builder import ClassId
from tilewright.schedule.placement import Placement, program_spans, selected, symbols_of, tiles_of
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, moved
from tilewright.transport import dialect as t

MAX_REGISTERS = {1: 224, 2: 224, 3: 144, 4: 96}
"""32-bit words of simultaneously live values per thread, by the number of consumer warpgroups; the remaining registers
are for addresses."""


@dataclass(frozen=True)
class Refused:
    """Why a schedule does not apply to the kernel."""

    reason: str


def place_from_products(
    kernel: tile.Kernel,
    classes: Classes,
    dots: Sequence[DotPlan],
    facts: CallFacts,
    warpgroups: int,
    assumptions: tuple[Expr, ...],
    target: Target,
    *,
    persistent: bool,
    ctas: int,
) -> Placement | Refused:
    """The placement on ``warpgroups`` consumer warpgroups, of ``ctas`` CTAs that share an SM. Of the kernel's
    ``classes`` some are joined."""
    for plan in dots:
        if isinstance(plan.a, RegisterOperand) and not classes.join([((plan.dot.a, 0), (plan.dot.result, 0))]):
            return Refused("a left operand's rows are spread along another axis of its own product")
    axes_of, sizes = classes.numbered(tiles_of(kernel))
    for value, axis, padded in paddings(dots):
        cls = axes_of[value][axis]
        if cls is None:
            return Refused("an operand with an axis of one element")
        sizes[cls] = max(sizes[cls], padded)
    summed = [op.result for op in kernel.walk() if isinstance(op, tile.ProgramSum)]
    fixed = _fixed(dots, summed, axes_of, sizes, warpgroups)
    if isinstance(fixed, Refused):
        return fixed
    threads = WARPGROUP_THREADS * warpgroups
    together = {frozenset(c for c in axes if c is not None) for axes in axes_of.values()}
    free = [c for c in sizes if c not in fixed]
    vectors, order = _contiguous(kernel, axes_of, facts, free, sizes)
    spreading = floor_power(threads)
    held = selected(kernel, axes_of)
    if held & fixed.keys():
        return Refused("the least elements along an axis of a product")
    _narrow_beside_products(vectors, sizes, together, free, fixed, spreading)
    digits: dict[ClassId, Digits] = fixed | dict(
        spread(sizes, vectors, together, order, spreading, fixed, held=held).digits
    )
    if warpgroups != floor_power(warpgroups) and _reduces_across_warps(kernel, axes_of, digits):
        return Refused("warps exchange partial results, and those of one warpgroup are absent")
    columns = [c for c in fixed if 0 in fixed[c].thread_bits]
    rows = [c for c in fixed if c not in columns]
    home = Distribution(ceil_power(threads), tuple((c, digits[c]) for c in (*order, *columns, *rows)))
    for plan in dots:
        assert isinstance(plan.a, WidenedOperand) or _as_accumulator(home, axes_of[plan.dot.result], warpgroups), (
            plan.dot
        )
    return Placement(
        target=target,
        home=home,
        foreign={},
        axes_of=axes_of,
        program_spans=program_spans(kernel),
        bounds={t.THREAD: (0, threads - 1)} | dict.fromkeys(symbols_of(kernel), (0, None)),
        assumptions=assumptions,
        min_ctas=ctas,
        persistent=persistent,
    )


def _narrow_beside_products(
    vectors: dict[ClassId, int],
    sizes: Mapping[ClassId, int],
    together: Iterable[frozenset[ClassId]],
    free: Iterable[ClassId],
    fixed: Mapping[ClassId, Digits],
    threads: int,
) -> None:
    """Narrows the vectors of axes that occur together with an axis of a product. Such an axis gets the threads over
    which the product's axis is replicated: otherwise these would load the same elements."""
    for c in free:
        beside = {bit for s in together if c in s for other in s & fixed.keys() for bit in fixed[other].thread_bits}
        if beside and c in vectors:
            idle = sum(bit not in beside for bit in range(threads.bit_length() - 1))
            vectors[c] = min(vectors[c], max(1, floor_power(sizes[c]) >> idle))


def _as_accumulator(home: Distribution, axes: tuple[ClassId | None, ...], warpgroups: int) -> bool:
    """Whether a result is distributed as wgmma's accumulator: the bases are those of the hardware's table, and further
    columns, row blocks and warpgroups begin where their instructions' registers and threads do.

    The proofs of the lowered kernel would not show a permutation of rows or columns.
    """
    m, n = axes
    assert m is not None
    assert n is not None
    layout, table, columns = home.layout(axes), WGMMA_ACCUMULATOR, home.by_class[n].covered
    places = {(1 << bit, 0): at for bit, at in enumerate((*table.lane, *table.warp))}
    places |= {(0, 1 << bit): at for bit, at in enumerate(table.register)}
    places |= {(0, 4 * i): (0, COLUMNS * i) for i in range(columns // COLUMNS)}
    places |= {
        (WARPGROUP_THREADS * w, columns // 2 * block): (ROWS * (w + warpgroups * block), 0)
        for w in range(warpgroups)
        for block in range(home.by_class[m].repeats)
    }
    return all(layout.coordinate(thread, register) == at for (thread, register), at in places.items())


def paddings(dots: Sequence[DotPlan]) -> list[tuple[SSAValue, int, int]]:
    """Axes of staged values that must be padded to whole instructions: value, axis, extent."""
    found: list[tuple[SSAValue, int, int]] = []
    for plan in dots:
        for operand in (plan.a, plan.b):
            if isinstance(operand, StagedOperand):
                k, mn = operand.plan.shared.extents
                axes = (0, 1) if operand.transposed else (1, 0)
                found += [(operand.value, axes[0], k), (operand.value, axes[1], mn)]
    return found


def _fixed(
    dots: Sequence[DotPlan],
    summed: Sequence[SSAValue],
    axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]],
    sizes: Mapping[ClassId, int],
    warpgroups: int,
) -> dict[ClassId, Digits] | Refused:
    """Digits of all axes of products, and of shares of their sums over programs."""
    rows: set[ClassId] = set()
    columns: set[ClassId] = set()
    for plan in dots:
        m, n = axes_of[plan.dot.result]
        if m is None or n is None:
            return Refused("a product with an axis of one element")
        if -(-sizes[n] // COLUMNS) != -(-plan.shape[1] // COLUMNS):
            return Refused("products of one axis with different paddings")
        rows.add(m)
        columns.add(n)
        if isinstance(plan.a, RegisterOperand):
            k = axes_of[plan.dot.a][1]
            if k is None:
                return Refused("a product over one element")
            columns.add(k)
    for share in summed:
        *_, n = axes_of[share]
        if n is None or sizes[n] % COLUMNS:
            return Refused(f"a program's share of a sum is not a multiple of {COLUMNS} columns")
        columns.add(n)
    if rows & columns:
        return Refused("one axis is the rows of one product and the columns of another")
    if warpgroups != floor_power(warpgroups) and any(sizes[c] != ROWS * warpgroups for c in rows):
        return Refused(f"{warpgroups} warpgroups take tiles of {ROWS * warpgroups} rows")
    found = {c: accumulator_rows(sizes[c], warpgroups) for c in sorted(rows)}
    return found | {c: accumulator_columns(sizes[c]) for c in sorted(columns)}


def _reduces_across_warps(
    kernel: tile.Kernel, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]], digits: Mapping[ClassId, Digits]
) -> bool:
    """Whether a reduction, scan or sort runs along an axis that is distributed over warps."""
    inside = (op for op in kernel.walk() if isinstance(op, tile.Reduce | tile.Scan | tile.Sort))
    reduced = (axes_of[op.operands[0]][op.axis.data] for op in inside)
    lane_bits = LANES.bit_length() - 1
    return any(b >= lane_bits for c in reduced if c is not None and c in digits for b in digits[c].thread_bits)


def _contiguous(
    kernel: tile.Kernel,
    axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]],
    facts: CallFacts,
    free: Sequence[ClassId],
    sizes: Mapping[ClassId, int],
) -> tuple[dict[ClassId, int], list[ClassId]]:
    """Vector widths of the axes without products, and their order, those along which memory is contiguous first."""
    vectors: dict[ClassId, int] = {}
    for op in kernel.walk():
        if not isinstance(op, tile.Load | tile.Store | tile.AtomicReduce):
            continue
        coords, tensor = coords_of(op), tile.tensor_type(op.tensor)
        own = facts.of(tensor.tensor_name.data)
        unit = own.unit_axis
        if unit is None or not isinstance(coords[unit], Span):
            continue
        cls = axes_of[moved(op)][sum(isinstance(c, Span) for c in coords[:unit])]
        if cls in free and cls is not None:
            width = min(own.vector(tensor.element), 1 << (sizes[cls].bit_length() - 1))
            vectors[cls] = min(vectors.get(cls, width), width)
    return vectors, sorted(free, key=lambda c: (c not in vectors, c))


def value_registers(value: SSAValue, placement: Placement) -> int:
    """32-bit registers per thread of a tile or fragment."""
    assert isinstance(value.type, tile.TileType | tile.FragmentType)
    return -(-placement.home.registers(placement.axes_of[value]) * value.type.element.bits // 32)


def fragment_registers(kernel: tile.Kernel, dots: Sequence[DotPlan], placement: Placement) -> int:
    """Registers per thread of all fragments and of the largest product that is not accumulated in place."""
    held = sum(value_registers(op.results[0], placement) for op in kernel.walk() if isinstance(op, tile.FragmentInit))
    return held + max((value_registers(p.dot.result, placement) for p in dots if p.write is None), default=0)
