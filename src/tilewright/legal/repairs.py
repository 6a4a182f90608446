"""Repairs of tile accesses: changes that make an access legal, each re-judged, ranked by the price model. They
are found by search, for every rule alike; the text that helps against one rule is in ``rule_help``.

A repair is data the compiler can act on: the plan that holds after the change, and what must be done for it - a
condition checked at launch, a tensor copied once, a tile widened or split, threads that copy instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING

from tilewright.base.expr import Expr, ceildiv, divisor, expr, sym
from tilewright.base.verdict import Illegal, Legal, Refuted, Repair, Repairs
from tilewright.hw.copy_prices import CopyMethod
from tilewright.hw.target import SM90A, Target
from tilewright.hw.tensormap import ADDRESS_ALIGN_BYTES, MAX_SMEM_TILE_BYTES, PATTERNS, Direction, Swizzle
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.misaligned_pitch import phases
from tilewright.legal.prices import Workload, extra_seconds
from tilewright.legal.proof import prove_view
from tilewright.legal.reinterpret import recasts
from tilewright.legal.repair_types import Change, Remedy, Staging, ThreadCopy
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.symbolic import decide_rules
from tilewright.legal.tma import TensorMapPlan, TileAccess, candidates, request_fields

if TYPE_CHECKING:
    from tilewright.legal.egraph import FoldedView

STAGING_ALIGN_BYTES = 256
"""Alignment of a workspace allocation."""
STAGING_PITCH_BYTES = 128
"""Rows of a staged tensor begin at multiples of a cache line: tensor copies of rows at odd multiples of 16 bytes touch
a line more a row (measured on H200: 5000^3 against 5120^3 in benchmarks/results/products.json)."""


def legalise(
    access: TileAccess, facts: Facts | None = None, target: Target = SM90A, workload: Workload | None = None
) -> Legal[TensorMapPlan] | Repairs[Remedy] | Illegal:
    """The legal plan of ``access``, or its repairs, cheapest first, with the core that makes them necessary.

    ``cost`` of a repair is the predicted extra time of one call against a legal access, in seconds.
    """
    known = facts or Facts()
    found = candidates(access, known, target, limit=1)
    if found.plans:
        return Legal(found.plans[0])
    for conditional, unmet in found.conditional:
        if _follows(tuple(u.residual for u in unmet), known):
            sizes = decide_rules(request_fields(conditional), known, target).guard
            return Legal(replace(conditional, guard=sizes))
    repairs = repairs_of(access, known, target, workload)
    return Repairs(found.core, repairs) if repairs else Illegal(found.core)


def repairs_of(
    access: TileAccess, facts: Facts, target: Target = SM90A, workload: Workload | None = None
) -> tuple[Repair[Remedy], ...]:
    """The cheapest repair of each kind that makes ``access`` legal, cheapest first; only split boxes if nothing else
    prevents the copy."""
    load = workload or Workload()
    found = candidates(access, facts, target)
    options: Iterable[tuple[Remedy, TileAccess]]
    if found.plans:
        whole = Remedy(Change.SPLIT_BOX, found.plans[0], tile=access.tile)
        options = ((r, access) for r in (whole, *_recast(access, whole, facts, target), *thread_copies(access, facts)))
    else:
        conditional = found.conditional[0][0] if found.conditional else None
        options = _remedies(access, facts, target, conditional)
    cheapest: dict[Change, Repair[Remedy]] = {}
    for remedy, seen in options:
        cost = extra_seconds(remedy, seen, load, target)
        best = cheapest.get(remedy.change)
        if best is None or cost < best.cost:
            cheapest[remedy.change] = Repair(_action(remedy), remedy, cost)
    return tuple(sorted(cheapest.values(), key=lambda r: r.cost))


def _remedies(
    access: TileAccess, facts: Facts, target: Target, conditional: TensorMapPlan | None
) -> Iterator[tuple[Remedy, TileAccess]]:
    """Every change of the access, and of every view of it, with the access that the change is made to."""
    from tilewright.legal.egraph import views  # noqa: PLC0415  egglog is loaded only when the direct way fails

    if conditional is not None:
        yield Remedy(Change.CONDITION, conditional, conditional.guard, tile=access.tile), access
    for remedy in _changes(access, facts, target):
        yield remedy, access
    for view in views(access, facts):
        if not isinstance(prove_view(view.access, view.indices, access, facts, view.axes), Refuted):
            reshaped = tuple(_reshaped(view.access, facts, target))
            rest = thread_copies(view.access, facts) if reshaped else _changes(view.access, facts, target)
            for remedy in (*reshaped, *rest):
                yield _through(view, remedy), view.access


def _changes(access: TileAccess, facts: Facts, target: Target) -> Iterator[Remedy]:
    """The repairs of an access that keep its axes."""
    yield from _other_swizzle(access, facts, target)
    yield from _other_width(access, facts, target)
    yield from _tail(access, facts, target)
    yield from _recast(access, Remedy(Change.REINTERPRET, tile=access.tile), facts, target)
    yield from _phased(access, facts, target)
    yield from _padded(access, facts, target)
    yield from thread_copies(access, facts)


def _reshaped(access: TileAccess, facts: Facts, target: Target) -> Iterator[Remedy]:
    """The view itself, if it is legal as it stands."""
    plan = _first_plan(access, facts, target)
    if plan is not None:
        folded = Remedy(Change.RESHAPE, plan, tile=access.tile)
        yield folded
        yield from _recast(access, folded, facts, target)


def _through(view: FoldedView, remedy: Remedy) -> Remedy:
    """A repair of a view as a repair of the tensor: coordinates over the tensor's own indices."""
    names = {index_symbol(i).name: index for i, index in enumerate(view.indices)}

    def placed(plan: TensorMapPlan) -> TensorMapPlan:
        return replace(plan, coordinates=tuple(c.substitute(names) for c in plan.coordinates))

    phases = remedy.phases
    if phases is not None:
        phases = replace(phases, classes=tuple(replace(c, plan=placed(c.plan)) for c in phases.classes))
    plan = None if remedy.plan is None else placed(remedy.plan)
    return replace(remedy, plan=plan, phases=phases, folds=view.axes)


def _first_plan(access: TileAccess, facts: Facts, target: Target) -> TensorMapPlan | None:
    return next(iter(candidates(access, facts, target, limit=1).plans), None)


def _follows(residuals: tuple[Expr, ...], facts: Facts) -> bool:
    """Whether the solver proves ``predicate`` where matching left it open; a time-out counts as no, and the condition
    stays in the guard."""
    from tilewright.legal.smt import implied  # noqa: PLC0415  z3 is loaded only when the direct way fails

    return all(implied(residual, facts) for residual in residuals)


def _other_swizzle(access: TileAccess, facts: Facts, target: Target) -> Iterator[Remedy]:
    if access.swizzles or access.panel_bytes:
        plan = _first_plan(replace(access, swizzles=(), panel_bytes=0), facts, target)
        if plan is not None:
            yield Remedy(Change.SWIZZLE, plan, tile=access.tile)


def _other_width(access: TileAccess, facts: Facts, target: Target) -> Iterator[Remedy]:
    """Round the dense extent up to 16 bytes (loads), or down with the rest left to threads (stores too)."""
    axis = _dense_axis(access, facts)
    extent = None if axis is None else access.tile[axis]
    if axis is None or extent is None:
        return
    spans = [PATTERNS[s].span_bytes or ADDRESS_ALIGN_BYTES for s in access.swizzles]
    unit = max(min(spans, default=ADDRESS_ALIGN_BYTES), access.panel_bytes) // access.dtype.bytes
    narrow, wide = extent // unit * unit, -(-extent // unit) * unit
    if extent == narrow:
        return
    firsts = tuple(access.first_multiple(i) for i in range(len(access.shape)))  # tiles still begin where they did
    if access.direction is Direction.LOAD:
        tile = _with(access.tile, axis, wide)
        plan = _first_plan(replace(access, tile=tile, first_multiples=firsts), facts, target)
        if plan is not None:
            yield Remedy(Change.WIDEN, plan, tile=tile)
    if narrow:
        tile = _with(access.tile, axis, narrow)
        plan = _first_plan(replace(access, tile=tile, first_multiples=firsts), facts, target)
        if plan is not None:
            rest = _with(access.tile, axis, extent - narrow)
            shared, axes = _smem_tile(replace(access, tile=rest, swizzles=(Swizzle.NONE,), panel_bytes=0), axis)
            threads = ThreadCopy(CopyMethod.LOADS, access.dtype.bytes, shared, axes, narrow)
            yield Remedy(Change.SPLIT_COLUMNS, plan, threads=threads, tile=tile)


def _tail(access: TileAccess, facts: Facts, target: Target) -> Iterator[Remedy]:
    """A map that ends at the last whole 16 bytes of each row: stores through it write nothing after the row."""
    axis = _dense_axis(access, facts)
    if axis is None or access.direction is Direction.LOAD:
        return
    unit = ADDRESS_ALIGN_BYTES // access.dtype.bytes
    extent = facts.apply(expr(access.shape[axis]))
    end = extent // unit * unit
    if facts.decide((extent - end).eq(0)) or end.constant == 0:
        return
    shape = tuple(end if i == axis else n for i, n in enumerate(access.shape))
    firsts = tuple(access.first_multiple(i) for i in range(len(shape)))
    plan = _first_plan(replace(access, shape=shape, first_multiples=firsts), facts, target)
    if plan is not None:
        shared, axes = _smem_tile(replace(access, tile=_with(access.tile, axis, unit), swizzles=(Swizzle.NONE,)), axis)
        threads = ThreadCopy(CopyMethod.LOADS, access.dtype.bytes, shared, axes)
        yield Remedy(Change.TAIL, plan, threads=threads, tile=access.tile, tail=end)


def _recast(access: TileAccess, remedy: Remedy, facts: Facts, target: Target) -> Iterator[Remedy]:
    """``remedy`` with its bytes copied as the widest words that need fewer boxes, or any where it has no plan."""
    dense = _dense_axis(access, facts)
    if dense is None or (remedy.plan is not None and len(remedy.plan.boxes) == 1):
        return
    for words in recasts(access, dense, facts):
        plan = _first_plan(words.access, facts, target)
        if plan is not None and (remedy.plan is None or len(plan.boxes) < len(remedy.plan.boxes)):
            plan = replace(plan, coordinates=tuple(c.substitute(words.indices) for c in plan.coordinates))
            yield replace(remedy, change=Change.REINTERPRET, plan=plan, words=words.factor)
            return


def _phased(access: TileAccess, facts: Facts, target: Target) -> Iterator[Remedy]:
    dense = _dense_axis(access, facts)
    found = None if dense is None else phases(access, dense, facts, target)
    if found is not None:
        yield Remedy(Change.PHASES, found.classes[0].plan, tile=access.tile, phases=found)


def _padded(access: TileAccess, facts: Facts, target: Target) -> Iterator[Remedy]:
    """The tensor copied once, rows padded to whole lines; what was not dense becomes dense."""
    axis = _dense_axis(access, facts)
    if axis is None:
        axis = max((i for i, t in enumerate(access.tile) if t is not None and t > 1), default=None)
    if axis is None:
        return
    shape = [facts.apply(expr(extent)) for extent in access.shape]
    staging = staged(shape, axis, access.dtype.bytes, sym(f"{access.name}.staged"))
    known = replace(facts, divisors={**facts.divisors, f"{access.name}.staged": STAGING_ALIGN_BYTES})
    plan = _first_plan(replace(access, strides=staging.strides, address=staging.address), known, target)
    if plan is not None:
        yield Remedy(Change.PAD, plan, staging=staging, tile=access.tile)


def staged(shape: Sequence[Expr], axis: int, element_bytes: int, address: Expr) -> Staging:
    """A tensor of ``shape`` in a workspace: dense along ``axis``, rows padded, the other axes nested in their order."""
    unit = STAGING_PITCH_BYTES // element_bytes
    strides: list[Expr] = [expr(1)] * len(shape)
    step = ceildiv(shape[axis], unit) * unit
    for i in reversed(range(len(shape))):
        if i != axis:
            strides[i] = step
            step = step * shape[i]
    return Staging(tuple(strides), step * element_bytes, address)


def thread_copies(access: TileAccess, facts: Facts) -> Iterator[Remedy]:
    """Copies by threads: cp.async where addresses admit 4, 8 or 16 bytes at a time, loads through registers always."""
    axis = _dense_axis(access, facts)
    fallback = max((i for i, t in enumerate(access.tile) if t is not None), default=None)
    inner = fallback if axis is None else axis
    if inner is None:
        return
    shared, axes = _smem_tile(access, inner)
    if shared.size_bytes > MAX_SMEM_TILE_BYTES:
        return
    size = access.dtype.bytes
    vector = size
    if axis is not None:
        known = [facts.apply(access.address)]
        known += [facts.apply(s) * size for i, s in enumerate(access.strides) if i != axis]
        step = reduce(gcd, (divisor(k, facts.divisors) for k in known), 16)
        vector = gcd(step or 16, (access.tile[axis] or 1) * size, access.first_multiple(axis) * size)
    if axis is not None and vector >= 4 and access.direction is Direction.LOAD:
        yield Remedy(Change.CP_ASYNC, threads=ThreadCopy(CopyMethod.CP_ASYNC, vector, shared, axes), tile=access.tile)
    yield Remedy(Change.LOADS, threads=ThreadCopy(CopyMethod.LOADS, max(vector, size), shared, axes), tile=access.tile)


def _smem_tile(access: TileAccess, inner: int) -> tuple[SmemTile, tuple[int, ...]]:
    """The shared-memory tile that threads fill: the layout a tensor copy with the first admissible swizzle would
    leave."""
    kept = [i for i, t in enumerate(access.tile) if t is not None]
    axes = (inner, *(i for i in reversed(kept) if i != inner))
    extents = tuple(access.tile[i] or 1 for i in axes)
    size = access.dtype.bytes
    for swizzle in access.swizzles or (Swizzle.B128, Swizzle.B64, Swizzle.B32):
        span = PATTERNS[swizzle].span_bytes
        if span and extents[0] * size % span == 0:
            return SmemTile(extents, span // size, size, swizzle), axes
    return SmemTile(extents, access.panel_bytes // size or extents[0], size, Swizzle.NONE), axes


def _dense_axis(access: TileAccess, facts: Facts) -> int | None:
    """The tile's axis of stride 1, the longest when there are several."""
    dense = [
        i
        for i, (stride, tile) in enumerate(zip(access.strides, access.tile, strict=True))
        if tile is not None and facts.decide(expr(stride).eq(1))
    ]
    return max(dense, key=lambda i: access.tile[i] or 0, default=None)


def _with(tile: tuple[int | None, ...], axis: int, extent: int) -> tuple[int | None, ...]:
    return (*tile[:axis], extent, *tile[axis + 1 :])


def _action(remedy: Remedy) -> str:
    folded = f"{Change.RESHAPE.value}: {' '.join(map(str, remedy.folds))}, tile {_extents(remedy.tile)}"
    if remedy.change is Change.RESHAPE:
        return folded
    return f"{folded}; {_what(remedy)}" if remedy.folds else _what(remedy)


def _what(remedy: Remedy) -> str:
    match remedy.change:
        case Change.CONDITION:
            return f"{remedy.change.value}: {remedy.condition}"
        case Change.SPLIT_BOX:
            assert remedy.plan is not None
            if remedy.plan.rank < len(remedy.tile) and len(remedy.plan.boxes) == 1:  # the rank alone was the fault
                return f"fold axes that are only indexed: a map of {remedy.plan.rank} dimensions"
            return f"{remedy.change.value}: {len(remedy.plan.boxes)} of {_extents(reversed(remedy.plan.box))}"
        case Change.SWIZZLE:
            assert remedy.plan is not None
            return f"{remedy.change.value}: {remedy.plan.swizzle.name}"
        case Change.RESHAPE:
            return remedy.change.value
        case Change.WIDEN | Change.SPLIT_COLUMNS:
            return f"{remedy.change.value}: tile {_extents(remedy.tile)}"
        case Change.TAIL:
            return f"{remedy.change.value}: from column {remedy.tail}"
        case Change.PHASES:
            assert remedy.phases is not None
            return f"{remedy.change.value}: {len(remedy.phases.classes)} maps"
        case Change.REINTERPRET:
            assert remedy.plan is not None
            return f"{remedy.change.value}: words of {remedy.words}, {len(remedy.plan.boxes)} boxes"
        case Change.PAD:
            assert remedy.staging is not None
            return f"{remedy.change.value}: strides {_extents(remedy.staging.strides)} elements"
        case Change.CP_ASYNC | Change.LOADS:
            assert remedy.threads is not None
            return f"{remedy.change.value}: {remedy.threads.vector_bytes} bytes at a time"


def _extents(values: Iterable[Expr | int | None]) -> str:
    return " x ".join("index" if v is None else str(v) for v in values)
