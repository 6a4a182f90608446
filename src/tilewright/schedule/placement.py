"""Placement of a plain kernel: threads, the distribution of every access, and notes for the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from xdsl.ir import Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import Expr, Interval, Sym, divisor
from tilewright.base.readable import arithmetic
from tilewright.hw.target import MAX_VECTOR_BYTES, Target
from tilewright.lang.axes import Span
from tilewright.lang.schedule import Schedule
from tilewright.layout.register import LANES
from tilewright.schedule.classes import Classes
from tilewright.schedule.distribute import Digits, Distribution, floor_power, spread
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.map_builder import ClassId
from tilewright.schedule.misaligned_rows import SYMBOL, Skew, find_skew
from tilewright.schedule.regroup import Parts, distribute_parts, merged_axis_of, parts_of, register_axes, unit_of
from tilewright.schedule.relayout import Relayout
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import Access, Indirect, contiguous_along, element, is_tile, moved, spans_of, tensor_name
from tilewright.transport import dialect as t

_LOOP_WEIGHT = 8  # an access in a stream counts as this many outside one
_HEAVY = 4  # accesses of at least 1/4 of the heaviest one's bytes decide vector widths
_TRANSPOSE_ELEMENTS = 1024  # below that, uncoalesced access is cheaper than a trip through shared memory


@dataclass(frozen=True)
class Placement:
    """The distribution of one kernel over its CTA.

    ``bounds`` are known intervals of symbols, ``assumptions`` the facts.
    """

    target: Target
    home: Distribution
    foreign: Mapping[Operation, Distribution]
    axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]]
    program_spans: tuple[Span, ...]
    bounds: Mapping[str, Interval]
    assumptions: tuple[Expr, ...]
    skew: Skew | None = None
    min_ctas: int = 1
    persistent: bool = False
    notes: tuple[str, ...] = field(default=())

    def digits(self, axis: ClassId) -> Digits:
        """Digits of a class at home."""
        return self.home.by_class[axis]

    def distribution_of(self, op: Operation) -> Distribution:
        """The distribution of a load or store: home, or its own where its contiguous axis is another one."""
        return self.foreign.get(op, self.home)


@dataclass(frozen=True)
class _Weighed:
    """One access: the class along which memory is contiguous, its vector width there, its bytes per program."""

    op: Access | Indirect
    unit: ClassId | None
    vector: int
    weight: int
    elements: int


def place(
    kernel: tile.Kernel,
    classes: Classes,
    facts: CallFacts,
    pins: Schedule,
    assumptions: tuple[Expr, ...],
    target: Target,
    *,
    threads: int | None = None,
    min_ctas: int | None = None,
    skewed: bool = True,
) -> Placement:
    """Chooses threads and CTAs per SM (unless given) and distributions for ``kernel``; unaligned rows are laid from
    boundaries where that is possible and ``skewed``."""
    threads = threads or pins.threads
    axes_of, sizes = classes.numbered(tiles_of(kernel))
    accesses = [_weigh(op, axes_of, facts) for op in kernel.walk() if isinstance(op, Access | Indirect)]
    serial = _serial(kernel, axes_of, {a.unit for a in accesses})
    summed = _summed(kernel, axes_of, serial)
    held = selected(kernel, axes_of)
    heaviest = max((a.weight for a in accesses), default=0)
    heavy = {a.unit for a in accesses if a.weight * _HEAVY >= heaviest}
    parts = parts_of(kernel, axes_of, sizes, heavy, {*serial, *summed, *held})
    whole = merged_axis_of(parts)
    accesses = [_of_whole(a, parts, sizes) for a in accesses]
    together = {frozenset(c for c in axes if c is not None) for axes in axes_of.values()}
    order = sorted(_order(accesses, sizes), key=lambda c: c not in summed)
    vectors = _vectors(accesses, sizes) | _single_elements(kernel, accesses, axes_of)
    if pins.vector is not None:
        vectors = {c: min(v, floor_power(pins.vector)) for c, v in vectors.items()}
    places = {v: tuple(c if c is None else whole.get(c, c) for c in axes) for v, axes in axes_of.items()}
    transposed = [a for a in accesses if _is_foreign(a, [c for c in order if c not in whole], places)]
    may_skew = skewed and pins.vector is None and order and not transposed and not _changes_layout(kernel)
    skew = _skew(accesses, sizes, facts, order[0], target) if may_skew else None
    if skew is not None:
        vectors[skew.axis] = skew.vector
        sizes[skew.axis] += skew.vector - 1
    largest = max((prod(sizes[c] for c in s) for s in together), default=1)
    searched = _searched(kernel, axes_of)
    fragments = [axes_of[op.result] for op in kernel.walk() if isinstance(op, tile.FragmentInit)]
    carried = sum(prod(sizes[c] for c in axes if c is not None) for axes in fragments)
    count = threads or _thread_count(kernel, largest, carried, transposed=bool(transposed), searched=bool(searched))
    vectors |= {c: min([floor_power(sizes[c]), *(a.vector for a in accesses if a.unit == c)]) for c in held}
    if serial and pins.vector is None:
        least = {c: min(vectors[c], _SUMMED) for c in summed}
        vectors = _narrowed(vectors, sizes, [c for c in order if c not in serial], count, least)
    fat = dict.fromkeys(searched, _SEARCHED)

    def spread_in(order: Sequence[ClassId], widths: Mapping[ClassId, int], last: Iterable[ClassId]) -> Distribution:
        """The wholes of parts are spread in their stead."""

        def spread_wholes(parts: Parts) -> Distribution:
            whole = merged_axis_of(parts)
            sets = {frozenset(whole.get(c, c) for c in s) for s in together}
            wholes = [c for c in order if c not in whole]
            kept = register_axes(kernel, axes_of, parts, sizes)
            return spread(sizes, widths, sets, wholes, count, serial=last, held=held, kept=kept, fat=fat)

        return distribute_parts(parts, sizes, spread_wholes)

    home = spread_in(order, vectors, serial)
    if skew is not None:
        home = replace(home, skew=(skew.axis, Sym(SYMBOL)))

    def along(unit: int | None, vector: int) -> Distribution:
        """A distribution for an access whose unit-stride axis is not the home's fastest."""
        assert unit is not None
        widths = vectors | {unit: min(vector, floor_power(sizes[unit]))}
        return spread_in([unit, *(c for c in order if c != unit)], widths, ())

    return Placement(
        target=target,
        home=home,
        skew=skew,
        persistent=bool(pins.persistent),
        min_ctas=min_ctas if min_ctas is not None else _occupancy(kernel, home, axes_of, target),
        foreign={access.op: along(access.unit, access.vector) for access in transposed},
        axes_of=axes_of,
        program_spans=program_spans(kernel),
        bounds=_bounds(kernel, count, skew),
        assumptions=assumptions,
        notes=tuple(_notes(home, axes_of, transposed, skew)),
    )


def _changes_layout(kernel: tile.Kernel) -> bool:
    """Whether an op permutes elements or combines them in order, so that rows cannot be skewed."""
    return any(isinstance(op, Relayout | tile.Reshape | tile.Scan | tile.Sort) for op in kernel.walk())


def _thread_count(kernel: tile.Kernel, largest: int, carried: int, *, transposed: bool, searched: bool) -> int:
    """The threads of a CTA whose largest tile has ``largest`` elements and whose fragments have ``carried`` in all:
    fewer where accesses are ``transposed``, since their tiles are converted, and where axes are ``searched``, since a
    thread searches for several elements at once. Where rows are reduced, registers that fragments keep from step to
    step leave an SM too few warps (gradients of an RMS norm, 8192 x 8192, H200: 130 us with 256 threads, 121 with 512).
    """
    reduces = any(isinstance(op, tile.Reduce | tile.Scan | tile.Sort) for op in kernel.walk())
    count = default_threads(max(largest, carried) if reduces else largest, reduces=reduces)
    if transposed:
        count = max(32, min(1024, floor_power(largest // _BLOCK)))
    return min(count, max(LANES, floor_power(largest // _SEARCHED))) if searched else count


def _notes(
    home: Distribution,
    axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]],
    transposed: Sequence[_Weighed],
    skew: Skew | None,
) -> Iterator[str]:
    """The lines of the plan about a placement."""
    yield f"{home.threads} threads a CTA; {_describe(home, axes_of)}"
    for access in transposed:
        yield f"{access.op.name} of {tensor_name(access.op)} is contiguous along another axis: through shared"
    if skew is not None:
        yield f"axis {skew.axis} is laid from the {MAX_VECTOR_BYTES}-byte boundary before each row"


_BLOCK = 64
"""Elements per thread of a tile that is transposed: 8 x 8 of 16-bit type, whole vectors along both axes."""


def _is_foreign(
    access: _Weighed, order: Sequence[ClassId], axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]]
) -> bool:
    """Whether memory is contiguous along another axis than the tile's distribution."""
    first = next((c for c in order if c in axes_of[moved(access.op)]), None)
    large = access.elements >= _TRANSPOSE_ELEMENTS and isinstance(access.op, Access)
    return large and access.unit is not None and access.unit != first


_THREADS = ((32, 320), (64, 640), (128, 2560), (256, 10240), (512, 20480))
"""Threads for tiles of up to so many elements: one or two 16-byte vectors each."""

_THREADS_THAT_REDUCE = ((32, 640), (64, 1280), (128, 5120), (256, 20480), (512, 40960))
"""The same where rows are reduced: of long rows up to ten vectors, for fewer, fatter threads need fewer barriers, and
1024 threads expose the one they have (H200; rows of 4096 bf16 take as long with 256 threads as with 128, unaligned ones
of 4099 14 % longer)."""


def default_threads(elements: int, *, reduces: bool) -> int:
    """Threads for a tile of so many elements."""
    for threads, most in _THREADS_THAT_REDUCE if reduces else _THREADS:
        if elements <= most:
            return threads
    return 1024


_KEPT, _OVERHEAD = 32, 40  # registers for values kept unpacked, and for addresses, sums and temporaries


def _occupancy(
    kernel: tile.Kernel, home: Distribution, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]], target: Target
) -> int:
    """CTAs per SM to request from ptxas: as many as the registers of the tiles allow that are loaded before the first
    reduction.

    Later loads are made where they are used, a vector at a time.
    """
    words, widest = 0, 0
    for op in kernel.walk():
        if isinstance(op, tile.Reduce | tile.Scan | tile.Sort):
            break
        if isinstance(op, tile.Load | tile.Gather):
            count = home.registers(axes_of[op.result])
            words += -(-count * element(op.result).bits // 32)
            widest = max(widest, count)
    wanted = words + (widest if widest <= _KEPT else 0) + _OVERHEAD
    by_registers, by_threads = (
        target.registers_per_sm // (wanted * home.threads),
        target.max_threads_per_sm // home.threads,
    )
    return max(1, min(by_registers, by_threads, target.max_ctas_per_sm))


def tiles_of(kernel: tile.Kernel) -> list[SSAValue]:
    """All tiles, fragments and scalar arguments of a kernel."""
    values = (*kernel.body.block.args, *(r for op in kernel.walk() for r in op.results))
    return [value for value in values if is_tile(value)]


def aligned(width: int, begin: Expr) -> int:
    """The widest vector, of at most ``width`` elements, that ``begin`` is a multiple of."""
    while width > 1 and divisor(begin, {}) % width:
        width //= 2
    return width


def _weigh(op: Access | Indirect, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]], facts: CallFacts) -> _Weighed:
    value, tensor = moved(op), tile.tensor_type(op.tensor)
    own = facts.of(tensor.tensor_name.data)
    elements = prod(span.size for span in spans_of(value) if span is not None)
    depth, parent = 0, op.parent_op()
    while parent is not None:
        depth += isinstance(parent, tile.StreamLoop)
        parent = parent.parent_op()
    along = contiguous_along(op, own.unit_axis)
    unit = None if along is None else axes_of[value][along]
    vector = own.vector(tensor.element)
    if isinstance(op, Indirect) and own.unit_axis is not None:
        found = tile.moves_along(op, own.unit_axis)
        vector = 1 if found is None else aligned(vector, found[1])
    weight = elements * tensor.element.bytes * _LOOP_WEIGHT**depth
    return _Weighed(op, unit, vector, weight, elements)


def _of_whole(access: _Weighed, parts: Parts, sizes: Mapping[ClassId, int]) -> _Weighed:
    """An access along a part of an axis as one along the whole."""
    unit, inner = unit_of(parts, sizes, access.unit)
    return replace(access, unit=unit, vector=access.vector * inner)


_MOST_SKEWED = 72
"""Elements per thread of a skewed tile: one register more than fits would spill."""


def _skew(
    accesses: Sequence[_Weighed], sizes: Mapping[ClassId, int], facts: CallFacts, axis: ClassId, target: Target
) -> Skew | None:
    """The skew of the axis with most contiguous traffic, if its heavy accesses share one."""
    heaviest = max((a.weight for a in accesses), default=0)
    heavy = [a.op for a in accesses if a.weight * _HEAVY >= heaviest]
    boxes = [op for op in heavy if isinstance(op, Access)]
    if len(boxes) < len(heavy):
        return None
    found = find_skew({a.op: a.unit for a in accesses if isinstance(a.op, Access)}, boxes, sizes, facts, axis)
    if found is None:
        return None
    most = _MOST_SKEWED * target.max_threads_per_cta
    return found if sizes[axis] + found.vector - 1 <= most else None


def _order(accesses: Sequence[_Weighed], sizes: Mapping[ClassId, int]) -> list[ClassId]:
    """Classes, the one with most contiguous traffic first."""
    traffic = {c: sum(a.weight for a in accesses if a.unit == c) for c in sizes}
    return sorted(sizes, key=lambda c: (-traffic[c], -sizes[c], c))


def _vectors(accesses: Sequence[_Weighed], sizes: Mapping[ClassId, int]) -> dict[ClassId, int]:
    """Consecutive elements per thread along each class: the narrowest of the heavy accesses.

    A wide vector under a narrow access would put its lanes 16 bytes apart, which costs 3x (measured on H200).
    """
    heaviest = max((a.weight for a in accesses), default=0)
    vectors: dict[ClassId, int] = {}
    for c, size in sizes.items():
        widths = [a.vector for a in accesses if a.unit == c and a.weight * _HEAVY >= heaviest]
        vectors[c] = min([floor_power(size), *widths]) if widths else 1
    return vectors


_VECTOR_BYTES = 16


def _single_elements(
    kernel: tile.Kernel, accesses: Sequence[_Weighed], axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]]
) -> dict[ClassId, int]:
    """Columns that are reduced, of rows that do not begin at whole vectors, have threads of their own: the loads of the
    last tile are guarded then, where narrower vectors are looked at again, element by element. Sums of the columns of
    16384 x 4100 and 4102 bf16 (H200): 51 us, by vectors of 8 and of 4 bytes 56 and 69; by whole ones 49."""
    heaviest = max((a.weight for a in accesses), default=0)
    heavy = [a for a in accesses if a.weight * _HEAVY >= heaviest]
    reduced = {axes_of[op.x][op.axis.data] for op in kernel.walk() if isinstance(op, tile.Reduce)}
    units = {a.unit for a in heavy}
    if not reduced or units & reduced or not all(isinstance(a.op, tile.Load) for a in heavy):
        return {}
    narrow = all(a.vector * tile.tensor_type(a.op.tensor).element.bytes < _VECTOR_BYTES for a in heavy)
    return {c: 1 for c in units if c is not None and narrow}


def _serial(
    kernel: tile.Kernel, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]], units: Iterable[ClassId | None]
) -> frozenset[ClassId]:
    """Classes along which scans and sorts run and no access is contiguous: a thread holds as much of them as
    possible."""
    along = (op for op in kernel.walk() if isinstance(op, tile.Scan | tile.Sort))
    scanned = (axes_of[op.operands[0]][op.axis.data] for op in along)
    return frozenset(c for c in scanned if c is not None and c not in units)


def _summed(
    kernel: tile.Kernel, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]], serial: Iterable[ClassId]
) -> frozenset[ClassId]:
    """Classes along which scanned values are reduced once for each element of a ``serial`` class: wide vectors along
    them, in neighbouring lanes, save shuffles and exchanges between warps."""
    reduces = (op for op in kernel.walk() if isinstance(op, tile.Reduce))
    along = ((axes_of[op.x], op.axis.data) for op in reduces)
    found = (axes[axis] for axes, axis in along if not set(serial).isdisjoint(axes))
    return frozenset(c for c in found if c is not None and c not in serial)


def selected(kernel: tile.Kernel, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]]) -> frozenset[ClassId]:
    """Classes of the least elements that sorts select: every thread holds them all."""
    classes = (axes_of[op.result][op.axis.data] for op in _selections(kernel))
    return frozenset(c for c in classes if c is not None)


def _searched(kernel: tile.Kernel, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]]) -> frozenset[ClassId]:
    """Classes along which sorts select the least elements."""
    classes = (axes_of[op.x][op.axis.data] for op in _selections(kernel))
    return frozenset(c for c in classes if c is not None)


def _selections(kernel: tile.Kernel) -> Iterator[tile.Sort]:
    """Sorts that keep only the least elements."""
    return (op for op in kernel.walk() if isinstance(op, tile.Sort) and op.count is not None)


_SEARCHED = 32
"""Elements per thread of an axis along which the least are selected: a thread merges its own runs in registers, and a
row lies in so few lanes that a warp merges several rows at once (docs/measured/indices.md, top-8 of 256)."""

_SUMMED = 4
"""Elements of a class along which scanned values are reduced that a thread keeps: with fewer, loads and shuffles for
each element cost more than sharing the scanned axis among threads (a selective scan of 4096 x 2048 on H200: 147 us with
4, 324 with 2)."""


def _narrowed(
    vectors: Mapping[ClassId, int],
    sizes: Mapping[ClassId, int],
    order: Sequence[ClassId],
    threads: int,
    least: Mapping[ClassId, int],
) -> dict[ClassId, int]:
    """Vectors narrowed so that the classes of ``order`` occupy all threads, the last ones first, but no narrower than
    ``least``."""
    found = dict(vectors)
    for c in reversed(order):
        while found[c] > least.get(c, 1) and prod(-(-sizes[o] // found[o]) for o in order) < threads:
            found[c] //= 2
    return found


def program_spans(kernel: tile.Kernel) -> tuple[Span, ...]:
    """Spans that don't move with a stream, nor depend on what is loaded, in order of appearance."""
    counters = {s.counter.data for s in kernel.walk() if isinstance(s, tile.StreamLoop)} | loaded_of(kernel)
    found: dict[Span, None] = {}
    for value in tiles_of(kernel):
        for span in spans_of(value):
            if span is not None and not (span.origin.symbols | span.stop.symbols) & counters:
                found[span] = None
    return tuple(found)


def _bounds(kernel: tile.Kernel, threads: int, skew: Skew | None) -> dict[str, Interval]:
    """Known intervals of symbols."""
    found: dict[str, Interval] = {t.THREAD: (0, threads - 1), **dict.fromkeys(symbols_of(kernel), (0, None))}
    found |= dict.fromkeys(loaded_of(kernel), (0, MAX_EXTENT))
    return found if skew is None else {**found, SYMBOL: (0, skew.vector - 1)}


def loaded_of(kernel: tile.Kernel) -> set[str]:
    """Symbols of integers that programs load."""
    return {op.symbol.data for op in kernel.walk() if isinstance(op, tile.Bind)}


def symbols_of(kernel: tile.Kernel) -> set[str]:
    """Dimensions, program ids and counters: never negative."""
    names = {program_index(i) for i in range(len(kernel.grid))}
    names |= {s.counter.data for s in kernel.walk() if isinstance(s, tile.StreamLoop)}
    for arg in kernel.body.block.args:
        if isinstance(arg.type, tile.TensorType):
            for dim in arg.type.dims:
                names |= dim.expr.symbols
    return names


def _describe(home: Distribution, axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]]) -> str:
    """Each axis by the extent at which its range ends, with its distribution."""
    names: dict[ClassId, str] = {}
    for value, axes in axes_of.items():
        for c, span in zip(axes, spans_of(value), strict=True):
            if c is not None and span is not None:
                names.setdefault(c, arithmetic(span.stop))
    return "; ".join(_dealt(d, names.get(c, "")) for c, d in home.digits) or "one element"


def _dealt(digits: Digits, along: str) -> str:
    named = f"{digits.size} of {along}" if along and along != str(digits.size) else f"{digits.size}"
    parts = [f"vectors of {digits.vector}"] if digits.vector > 1 else []
    threads = 1 << len(digits.thread_bits)
    parts.append(f"{threads} threads" if threads > 1 else "1 thread")
    parts += [f"{digits.repeats} times"] if digits.repeats > 1 else []
    return f"{named}: {', '.join(parts)}"
