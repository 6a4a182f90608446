"""Tile extents for the ``tw.auto`` keywords of kernels with matrix products, best first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.base.expr import TRUE, Const, Expr, all_of, ceildiv
from tilewright.hw.target import InstructionSet, Target
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.mask_free_steps import leading_steps, whole_first_step, whole_steps
from tilewright.schedule.hopper.operands import ROWS, accumulation
from tilewright.schedule.hopper.product_variant import ProductVariant
from tilewright.schedule.hopper.program_order import FEW_LENGTHS, lengthening
from tilewright.schedule.hopper.software_pipeline import pipelined_streams
from tilewright.schedule.hopper.tile_choice import Tiles, products_of, programs
from tilewright.schedule.transforms.swapped_operands import swapped
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import element, source_of, spans_of

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
_ROWS = (128, 128, 128, 64, 64)
_COLUMNS = (256, 192, 128, 64, 32)
_CHAINED = (128, 128, 64, 64, 32)
"""An axis that is the columns of one product and contracted by the next."""
_WIDE_CHAINED = 128, 64
"""Columns of a result beyond which chained products have fewer a step than ``_CHAINED``, and how many: two steps' fit
registers then (heads of 256, 4 x 8 x 4096, H200: 769 us instead of 780, causal 424 instead of 445)."""
_DEPTH_BYTES = 128
"""Contracted elements per step: one span of the widest swizzle."""


@dataclass(frozen=True)
class ChainedTile:
    """Tiles of two products of which the second contracts the columns of the first: rows, columns of a step,
    nanoseconds of a step, and of what a tile takes beside its steps. ``whole``: for launches of whole steps alone.
    ``resident`` CTAs share an SM."""

    rows: int
    columns: int
    step: int
    start: int
    whole: bool = False
    resident: int = 1


CHAINED_TILES = ChainedTile(256, 64, 1074, 2880), ChainedTile(192, 112, 1263, 2750), ChainedTile(128, 128, 1194, 1190)
"""Those of attention with heads of 64, 512 to 16,384 keys (H200), within 4 %. Of 192 rows three warpgroups hold their
share in 160 registers a thread, of 256 rows four in 112; with more columns they spill."""
LENGTHENING_TILES = (
    ChainedTile(64, 64, 996, 1865, whole=True, resident=3),
    ChainedTile(256, 64, 1040, 4000, whole=True),
    ChainedTile(192, 96, 1156, 4300),
    ChainedTile(128, 128, 1194, 1800),
)
"""The same where streams get longer with the program, as under a causal mask. Tiles are as tall as one step is long, or
as several, so that the mask's edge lies in as few as can be (192 rows, 4 x 32 x 4096, H200: 96 columns 651 us, 112
673). Of 256 rows, masks beside the comparison would spill. Of 64 rows three CTAs hide how each begins and ends: 16,384
tokens in sequences of 512 and 1,024, 32 heads, 133 and 217 us, in tiles of 128 x 128 147 and 226."""
CHAINED_COLUMNS = 64
"""Of the second product's result, at most."""
SOME_KEYS = 2048
"""Columns of a stream whose length only a loaded integer tells."""


PIPELINED_COLUMNS = 256
"""Of the results of two products side by side, in tiles of 128 rows: with more registers spill."""

AWAITED = 128
AWAITED_PRICE = 141
"""Columns of a tile whose products are waited for in each step, and the time of 192 rows of it in percent of that of
128: a warpgroup's sums and product leave registers for no more, and ping-pong works with three warpgroups as with two
(e4m3 with scales of blocks, 8192^3, H200: 1253 TFLOP/s against 1175)."""


def product_variants(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target, facts: CallFacts
) -> list[ProductVariant]:
    """Tile widths and when each is used: that which needs least time for its whole waves of CTAs."""
    choices, sized = product_extents(autos, trace)
    if InstructionSet.WGMMA not in target.instructions:
        return [ProductVariant(TRUE, tuple(choices))]
    if sized.columns:
        return _by_width(choices, sized, trace, target, facts)
    chained = list(_chained(choices, sized, trace, target)) if sized.rows else []
    awaited = _awaited(choices, sized, trace, target) if sized.rows else ()
    others = (*awaited, *_flat(choices, trace), ProductVariant(TRUE, tuple(choices)))
    whole = [[*_whole_steps(variant, trace, few_lengths=not chained), variant] for variant in others]
    return [*chained, *(each for variants in whole for each in variants)]


def other_widths(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target, facts: CallFacts
) -> list[ProductVariant]:
    """Tiles of widths between those that are offered, with interpolated prices: for tuning, where they fill the last
    wave."""
    choices, sized = product_extents(autos, trace)
    if not (InstructionSet.WGMMA in target.instructions and sized.rows and sized.columns):
        return []
    return list(Tiles(choices[0], sized.rows, sized.columns, trace, target, facts).other_widths())


def _whole_steps(
    variant: ProductVariant,
    trace: Callable[[Mapping[str, int]], tile.Kernel],
    resident: int = 1,
    *,
    few_lengths: bool = False,
) -> Iterator[ProductVariant]:
    """The same for launches in which no step of software-pipelined streams needs a mask but for comparisons, or without
    comparisons the first one does not, which no product of the step before hides (attention of 1,024 keys, H200: 0.97
    of cuDNN instead of 0.94). Launches of ``few_lengths`` have an order of their own where no smaller tile is for
    them."""
    kernel = trace(variant.choices[0])
    streams = pipelined_streams(kernel)
    conditions = [(whole_first_step if leading_steps(s) is None else _whole)(kernel, s) for s in streams]
    masked = [condition for condition in conditions if condition not in (None, TRUE)]
    shapes = [tile.tile_type(dot.result).shape for dot in products_of(kernel)]
    wide = sum(columns for _, columns in shapes) > PIPELINED_COLUMNS
    if not masked or wide:
        return
    sharing = min(rows for rows, _ in shapes) // ROWS
    if sharing in (2, 3, 4) or resident > 1:
        whole = Candidate(sharing, resident=resident, software_pipelined=True, whole_steps=True)
        inside = all_of([variant.predicate, *masked])
        longer = lengthening(kernel) if kernel.ascending is None else None
        if longer is not None and few_lengths and sharing == 2:
            (lengths,) = (extent.expr for i, extent in enumerate(kernel.grid) if program_index(i) == longer)
            few = replace(whole, few_lengths=True)
            yield replace(variant, predicate=all_of([inside, lengths <= FEW_LENGTHS]), candidates=(few,))
        yield replace(variant, predicate=inside, candidates=(whole,))


def _whole(kernel: tile.Kernel, stream: tile.StreamLoop) -> Expr | None:
    """Under what all steps are whole; None for steps that few lengths are multiples of."""
    size = stream.axis.data.size
    return whole_steps(kernel, stream) if size & (size - 1) == 0 else None


def _by_width(
    choices: list[dict[str, int]],
    sized: Sized,
    trace: Callable[[Mapping[str, int]], tile.Kernel],
    target: Target,
    facts: CallFacts,
) -> list[ProductVariant]:
    """The variants of products with free columns, and mostly free rows."""
    wide = choices[0]
    small = {**wide, **dict.fromkeys((*sized.rows, *sized.columns), ROWS)}
    kernel = trace(wide)
    if not sized.rows or _changed(kernel, trace(small)) != [len(kernel.grid) - 2, len(kernel.grid) - 1]:
        return [ProductVariant(TRUE, tuple(choices))]
    return Tiles(wide, sized.rows, sized.columns, trace, target, facts).variants(choices)


def _flat(
    choices: Sequence[dict[str, int]], trace: Callable[[Mapping[str, int]], tile.Kernel]
) -> Iterator[ProductVariant]:
    """The variant with swapped operands, where tiles have fewer rows than an instruction and enough columns."""
    kernel = trace(choices[0])
    shapes = [tile.tile_type(dot.result).shape for dot in products_of(kernel)]
    narrow = all(element(dot.a).bits <= 16 for dot in products_of(kernel))
    flat = all(rows < ROWS and columns % ROWS == 0 for rows, columns in shapes)
    if narrow and flat and swapped(kernel) is not None:
        yield ProductVariant(TRUE, tuple(choices), swapped=True)


def _chained(
    choices: Sequence[dict[str, int]], sized: Sized, trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target
) -> Iterator[ProductVariant]:
    """Taller tiles for narrow chained products, where they need less time."""
    kernel = trace(choices[0])
    dots = products_of(kernel)
    narrow = len(dots) == 2 and tile.tile_type(dots[-1].result).shape[1] <= CHAINED_COLUMNS
    if not narrow or not sized.chained:
        return
    longer = lengthening(kernel)
    timed: list[tuple[dict[str, int], Expr]] = []
    tiles = CHAINED_TILES if longer is None else LENGTHENING_TILES
    for own in tiles:
        extents = {**choices[0], **dict.fromkeys(sized.rows, own.rows), **dict.fromkeys(sized.chained, own.columns)}
        made = trace(extents)
        steps = _steps(made, longer, own.columns)
        if steps is None:
            return
        rounds = ceildiv(programs(made, (1, 1)), target.sm_count * own.resident)
        timed.append((extents, rounds * (steps * own.step + 2 * own.start)))
    for i, (extents, time) in enumerate(timed[:-1]):
        variant = ProductVariant(all_of(time <= other for _, other in timed[i + 1 :]), (extents, *choices))
        yield from _whole_steps(variant, trace, tiles[i].resident)
        if not tiles[i].whole:
            yield variant


def _steps(kernel: tile.Kernel, longer: str | None, columns: int) -> Expr | None:
    """Twice the average number of steps of a program; None where it depends on loaded integers and grows with the
    program."""
    trip = sum((op.trip.expr for op in kernel.walk() if isinstance(op, tile.StreamLoop)), Const(0))
    loaded = {op.symbol.data for op in kernel.walk() if isinstance(op, tile.Bind)}
    if not loaded.isdisjoint(trip.symbols):
        return Const(2 * SOME_KEYS // columns) if longer is None else None
    if longer is None:
        return trip * 2
    (last,) = (extent.expr - 1 for i, extent in enumerate(kernel.grid) if program_index(i) == longer)
    return trip.substitute({longer: 0}) + trip.substitute({longer: last})


def _awaited(
    choices: list[dict[str, int]], sized: Sized, trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target
) -> Iterator[ProductVariant]:
    """Tall tiles of one product that is waited for in each step, where their waves need less time."""
    kernel = trace(choices[0])
    dots = products_of(kernel)
    if len(dots) != 1 or accumulation(dots[0]) is not None or tile.tile_type(dots[0].result).shape != (128, AWAITED):
        return
    if not all(isinstance(source_of(value)[0].owner, tile.Load) for value in (dots[0].a, dots[0].b)):
        return
    tall = {**choices[0], **dict.fromkeys(sized.rows, 3 * ROWS)}
    less = _waves(trace(tall), target) * AWAITED_PRICE <= _waves(kernel, target) * 100
    yield ProductVariant(less, (tall, *choices))


def _changed(one: tile.Kernel, other: tile.Kernel) -> list[int]:
    """The axes along which two grids differ."""
    return [i for i, (a, b) in enumerate(zip(one.grid, other.grid, strict=True)) if a != b]


@dataclass(frozen=True)
class Sized:
    """Autos that size only rows or only columns of products, and columns that the next product contracts."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    chained: tuple[str, ...] = ()


def product_extents(
    autos: Sequence[str], trace: Callable[[Mapping[str, int]], tile.Kernel]
) -> tuple[list[dict[str, int]], Sized]:
    """Choices of extents, by what each auto sizes: the rows, the columns or the depth of products."""
    if not autos:
        return [{}], Sized((), ())
    probes = dict(zip(autos, _PRIMES, strict=False))
    large, small = trace(probes), trace(dict.fromkeys(autos, 1))
    rows: set[str] = set()
    columns: set[str] = set()
    depth: set[str] = set()
    narrow = 16
    widest = max((tile.tile_type(dot.result).shape[1] for dot in products_of(small)), default=0)
    for dot, base in zip(products_of(large), products_of(small), strict=True):
        narrow = min(narrow, element(dot.a).bits)
        for value, axis, found in ((dot.result, 0, rows), (dot.result, 1, columns), (dot.a, 1, depth)):
            twin = {dot.result: base.result, dot.a: base.a}[value]
            span, unit = spans_of(value)[axis], spans_of(twin)[axis]
            if span is not None and unit is not None:
                found |= {name for name, prime in probes.items() if span.size == unit.size * prime}
    choices: list[dict[str, int]] = []
    for m, n, most in zip(_ROWS, _COLUMNS, _CHAINED, strict=True):
        both = min(most, _WIDE_CHAINED[1]) if widest > _WIDE_CHAINED[0] else most
        choice: dict[str, int] = {}
        for name in autos:
            if name in rows:
                choice[name] = m
            elif name in columns and name in depth:
                choice[name] = both
            elif name in columns:
                choice[name] = n
            else:
                choice[name] = _DEPTH_BYTES * 8 // narrow
        if choice not in choices:
            choices.append(choice)
    alone = tuple(sorted(rows - columns - depth)), tuple(sorted(columns - depth - rows))
    return choices, Sized(*alone, tuple(sorted((columns & depth) - rows)))


def _waves(kernel: tile.Kernel, target: Target) -> Expr:
    """How often all SMs take a program."""
    return ceildiv(programs(kernel, (1, 1)), target.sm_count)
