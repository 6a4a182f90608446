"""Tile extents for the ``tw.auto`` keywords of kernels with matrix products, best first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from tilewright.base.expr import FALSE, TRUE, Const, Expr, all_of, any_of, ceildiv, minimum, negate
from tilewright.hw.target import InstructionSet, Target
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.loaded_bounds import LoadedBounds
from tilewright.schedule.hopper.mask_free_steps import leading_steps, whole_first_step, whole_steps
from tilewright.schedule.hopper.operands import COLUMNS, ROWS, accumulation
from tilewright.schedule.hopper.product_variant import ProductVariant
from tilewright.schedule.hopper.program_order import FEW_LENGTHS, lengthening
from tilewright.schedule.hopper.software_pipeline import pipelined_streams
from tilewright.schedule.hopper.split_extents import CLUSTERED_CTAS, split_variants
from tilewright.schedule.hopper.tile_prices import LINE_BYTES, SECTOR_BYTES, Price, panel_columns, straddles
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


WIDTHS = {
    128: Price(355, 960, 600, across=576),
    256: Price(641, 1400, 1000, across=867),
    192: Price(478, 1250, 1000, across=711),
}
"""Columns of a tile that are offered where rows and columns are free. With several the last wave of tiles is rarely far
from full."""
ONE_WAVE_WIDTHS = 128, 192
"""Of these, those whose operands L2 need not keep where all tiles run at one time: nothing is read again later (H200:
512 x 4096^2 27.6 us instead of 29.6, 384 x 5120^2 32.6 instead of 36.9; of 256 columns the same). Rows that begin
inside of sectors share them (300 x 5000^2: 54.2 instead of 49.8)."""
FEW_WAVES = 3
FILLING_WIDTHS = {
    96: Price(316, 900, 1500, across=520),
    112: Price(327, 930, 2500, across=545),
    160: Price(415, 1100, 2240, across=650),
    224: Price(543, 1320, 2830, across=770),
}
"""The same for launches of few waves, whose last one is a large part: 3 % less time in the mean of 34 shapes drawn at
random, up to 13 % of one (H200, all widths of 72 to 248 timed, benchmarks/results/product_widths.json; prices of rows
that begin inside of a sector are interpolated)."""
PING_PONG_WIDTHS = {
    208: Price(520, 690, 1900, across=757, least=2200),
    192: Price(478, 630, 1900, across=705, least=2000),
    160: Price(416, 520, 1900, across=640, least=1700),
}
"""The same for ping-pong: one warpgroup's epilogue is hidden, and each needs registers for a whole tile, which 224
columns exceed. Two steps do not hide it (64 products of 512 x 512 x 128, H200: 19.2 us, without ping-pong in 128 x 256
17.4)."""
PING_PONG = (Candidate(1, ping_pong=2, whole_stores=True),)
TALL_ROWS = 192
TALL_WIDTHS = {
    192: Price(753, 1550, 1000, across=889),
    160: Price(616, 1440, 400, across=759),
    128: Price(507, 1210, 300, across=698),
}
"""The same of three warpgroups."""
TALL = (Candidate(3, whole_stores=True),)
BROAD_ROWS = 256
BROAD_WIDTHS = {160: Price(780, 4600, 1700, across=935)}
"""The same of two warpgroups with 128 rows each: no tile takes longer to end, and none has more work for the bytes that
it reads (A B, 2048 x 5120 x 5120, H200: 145 us in two whole waves, in 128 x 160 by ping-pong 158)."""
BROAD = (Candidate(2, whole_stores=True),)
SHARED_WIDTHS = {
    (128, (2, 1)): {
        256: Price(645, 1750, 1600),
        224: Price(585, 1400, 1600),
        192: Price(515, 1250, 1600),
        160: Price(445, 1150, 1600),
    },
    (128, (2, 2)): {128: Price(410, 900, 1200)},
    (128, (1, 4)): {128: Price(415, 700, 1200)},
    (64, (4, 1)): {128: Price(255, 1300, 300)},
    (192, (1, 2)): {128: Price(508, 900, 1900)},
}
"""The same for clusters, whose CTAs read a part of what they share, where rows do not begin with L2 lines. Of several
products side by side, whose fragments a thread holds together, each has its share of all these columns."""
NEVER = 10**12
"""Nanoseconds of what is not offered."""
SKINNY_ROWS = 64
SKINNY_WIDTHS = {32: Price(253, 600), 64: Price(337, 600)}
"""Products with so few rows read their right operand once: the time of a tile is proportional to its bytes, and narrow
tiles occupy all CTAs."""

FEW_WIDTHS = {128: Price(275, 500, across=379), 64: Price(182, 640, across=262)}
"""Products of so few tiles that wide ones leave most CTAs without: 64 rows."""

SWAPPED_COLUMNS = 64
SWAPPED = {16: Price(115, 500), 32: Price(135, 580)}
"""Columns of a tile with swapped operands; its rows, for products of at most so many, and its price. Each byte of the
right operand is read once, and the copies are no longer of rows that are not there (8192 x 8192 of one and 16 rows,
H200: 44 us, with tiles of 64 rows 54 to 59; 128 x 16 45, 64 x 8 46)."""

SWAPPED_GROUPS = 32, 128
SWAPPED_GROUPS_PRICE = Price(526, 0)
"""Rows and columns of a tile with swapped operands, where groups of rows have at most as many on average and each reads
a weight of its own, and its price: the time of the weight's bytes (1024 rows in 128 groups, 1536 x 2048, H200:
215 us, with tiles of 64 x 128 222, of 128 x 128 234, 16 x 128 217; 64 rows in 8, 14336 x 4096: 243, 252, 344, 245)."""


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
SOME_STEPS = 32
"""Steps of a product of which nothing is known before it runs."""


PIPELINED_COLUMNS = 256
"""Of the results of two products side by side, in tiles of 128 rows: with more registers spill."""

AWAITED = 128
AWAITED_PRICE = 141
"""Columns of a tile whose products are waited for in each step, and the time of 192 rows of it in percent of that of
128: a warpgroup's sums and product leave registers for no more, and ping-pong works with three warpgroups as with two
(e4m3 with scales of blocks, 8192^3, H200: 1253 TFLOP/s against 1175)."""


@dataclass(frozen=True)
class _Family:
    """Widths of one kind of schedule, with their prices, and when it applies: ping-pong, for example, needs two tiles
    for a CTA (``waves``; one wave of 1000 x 2880 x 2880 ran at 0.98 of cuBLAS with them, at 1.02 without, H200)."""

    extents: dict[str, int]
    widths: dict[int, Price]
    applies: Expr = TRUE
    candidates: tuple[Candidate, ...] = ()
    waves: int = 1
    few_waves: bool = False
    """It is for at most ``FEW_WAVES``."""
    one_row: bool = False
    one_wave: bool = False

    @property
    def cluster(self) -> tuple[int, int]:
        """CTAs that work together."""
        return self.candidates[0].cluster if self.candidates else (1, 1)


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
    """Tiles of widths between those of the families, with interpolated prices: for tuning, where they fill the last
    wave."""
    choices, sized = product_extents(autos, trace)
    if not (InstructionSet.WGMMA in target.instructions and sized.rows and sized.columns):
        return []
    wide = choices[0]
    kernel = trace(wide)
    sectors, beside = straddles(kernel, facts, SECTOR_BYTES), len(_dots(kernel))
    found: list[ProductVariant] = []
    known = {**WIDTHS, **FILLING_WIDTHS}
    for narrower, wider in pairwise(sorted(known)):
        for width in range(narrower + COLUMNS, wider, COLUMNS):
            extents = {**wide, **dict.fromkeys(sized.columns, _share(width, beside))}
            price = known[narrower].between(known[wider], (width - narrower) / (wider - narrower))
            candidate = _candidate_tile(_Family(extents, {}), extents, trace(extents), price, target, sectors)
            found.append(ProductVariant(TRUE, (extents,), time=candidate.time))
    return found


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
    shapes = [tile.tile_type(dot.result).shape for dot in _dots(kernel)]
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
    skinny = {**wide, **dict.fromkeys(sized.rows, SKINNY_ROWS)}
    kernel, small = trace(wide), trace({**skinny, **dict.fromkeys(sized.columns, min(SKINNY_WIDTHS))})
    if not (sized.rows and sized.columns) or _changed(kernel, small) != [len(kernel.grid) - 2, len(kernel.grid) - 1]:
        return [ProductVariant(TRUE, tuple(choices))]
    lines = straddles(kernel, facts, LINE_BYTES)
    across = lines.ne(0)
    sectors = straddles(kernel, facts, SECTOR_BYTES)
    beside, panel = len(_dots(kernel)), panel_columns(kernel, facts)

    def candidate_tiles(families: Sequence[_Family]) -> list[_CandidateTile]:
        return [
            _candidate_tile(family, extents, made, price.copying(panel, _shape(made)), target, sectors)
            for family in families
            if family.applies != FALSE
            for width, price in family.widths.items()
            for own in (width if family.widths is SKINNY_WIDTHS else _share(width, beside),)
            for extents in ({**family.extents, **dict.fromkeys(sized.columns, own)},)
            for made in (trace(extents),)
        ]

    alone = TRUE if LoadedBounds(kernel).binds else FALSE
    ping_pong = _Family(wide, PING_PONG_WIDTHS, negate(alone), candidates=PING_PONG, waves=2)
    tall = _Family({**wide, **dict.fromkeys(sized.rows, TALL_ROWS)}, TALL_WIDTHS, negate(alone), TALL)
    broad = _Family({**wide, **dict.fromkeys(sized.rows, BROAD_ROWS)}, BROAD_WIDTHS, negate(alone), BROAD)
    filling = _Family(wide, FILLING_WIDTHS, negate(alone), few_waves=True)
    many = candidate_tiles((filling, ping_pong, tall, broad, _Family(wide, WIDTHS)))
    fewer = candidate_tiles((_Family(skinny, FEW_WIDTHS),))
    large = [one for one in many if one.family.waves == 1 and not one.family.few_waves]
    shared = [
        replace(family, widths={width: price}, applies=all_of([family.applies, *less]))
        for (rows, cluster), widths in SHARED_WIDTHS.items()
        for own in ({**wide, **dict.fromkeys(sized.rows, rows)},)
        for family in (_Family(own, widths, all_of([across, negate(alone)]), _clusters(rows, cluster)),)
        for one, (width, price) in zip(candidate_tiles((family,)), widths.items(), strict=False)
        for less in ([one.time <= other.time for other in large],)
    ]
    clustered = candidate_tiles(shared)
    few = [
        _Family(skinny, {width: price}, all_of([*quicker, *alone_or_quicker]), one_wave=True)
        for one, (width, price) in zip(fewer, FEW_WIDTHS.items(), strict=True)
        for quicker in ([_not_slower(one, other) for other in many],)
        for alone_or_quicker in ([any_of([negate(across), one.time <= other.time]) for other in clustered],)
    ]
    rivals = (
        candidate_tiles((_Family(skinny, SKINNY_WIDTHS, small.grid.data[-2].expr <= 1, one_row=True),)),
        candidate_tiles(few),
        clustered,
        many,
    )
    turned = list(_swapped(wide, choices, sized, trace, target, sectors))
    few_rows = (*rivals[0], *(one for _, one in turned))
    alike = (*fewer, *(one for one in many if one.family.waves == 1))  # whatever needs few waves: parts do
    whole = minimum(
        *(one.time for one in alike),
        *(one.time * one.row_tiles for one in few_rows),
        *(one.time + (1 - lines) * NEVER for one in clustered if one.extents[sized.rows[0]] == SKINNY_ROWS),
    )
    parts = split_variants(wide, sized.rows, sized.columns, choices, trace, target, whole, sectors)
    found = [*parts, *(variant for variant, _ in turned)]
    for group in rivals:
        for i, candidate in enumerate(group):
            family = candidate.family
            applies = all_of([family.applies, candidate.waves <= FEW_WAVES]) if family.few_waves else family.applies
            needs = [applies, *([candidate.waves >= family.waves] if family.waves > 1 else [])]
            best = all_of([*needs, *(_not_slower(candidate, other) for other in group[i + 1 :])])
            own = ProductVariant(best, (candidate.extents, *choices), family.candidates, applies, time=candidate.time)
            if family.widths is WIDTHS and candidate.extents[sized.columns[0]] * beside in ONE_WAVE_WIDTHS:
                once = all_of([best, negate(alone), candidate.waves <= 1, sectors <= 0])
                found += [replace(own, predicate=once, one_wave=True)] if once != FALSE else []
            found.append(replace(own, one_row=family.one_row, one_wave=family.one_wave))
    return found


def _swapped(
    wide: Mapping[str, int],
    choices: Sequence[dict[str, int]],
    sized: Sized,
    trace: Callable[[Mapping[str, int]], tile.Kernel],
    target: Target,
    sectors: Expr,
) -> Iterator[tuple[ProductVariant, _CandidateTile]]:
    """Swapped operands, for products of few rows, in all or in each group."""
    if LoadedBounds(trace(wide)).binds:
        yield from _swapped_groups(wide, choices, sized, trace, target, sectors)
        return
    for rows, price in SWAPPED.items():
        extents = {**wide, **dict.fromkeys(sized.rows, rows), **dict.fromkeys(sized.columns, SWAPPED_COLUMNS)}
        kernel = trace(extents)
        if swapped(kernel) is None:
            return
        few = kernel.grid.data[-2].expr <= 1
        candidate = _candidate_tile(_Family(extents, {}), extents, kernel, price, target, sectors)
        found = ProductVariant(few, (extents, *choices), applies=few, swapped=True, one_row=True, time=candidate.time)
        yield found, candidate


def _flat(
    choices: Sequence[dict[str, int]], trace: Callable[[Mapping[str, int]], tile.Kernel]
) -> Iterator[ProductVariant]:
    """The variant with swapped operands, where tiles have fewer rows than an instruction and enough columns."""
    kernel = trace(choices[0])
    shapes = [tile.tile_type(dot.result).shape for dot in _dots(kernel)]
    narrow = all(element(dot.a).bits <= 16 for dot in _dots(kernel))
    flat = all(rows < ROWS and columns % ROWS == 0 for rows, columns in shapes)
    if narrow and flat and swapped(kernel) is not None:
        yield ProductVariant(TRUE, tuple(choices), swapped=True)


def _swapped_groups(
    wide: Mapping[str, int],
    choices: Sequence[dict[str, int]],
    sized: Sized,
    trace: Callable[[Mapping[str, int]], tile.Kernel],
    target: Target,
    sectors: Expr,
) -> Iterator[tuple[ProductVariant, _CandidateTile]]:
    """Swapped operands, where twice as many rows would spare less than a quarter of the tiles: these are the groups'
    only ones."""
    rows, columns = SWAPPED_GROUPS
    extents = {**wide, **dict.fromkeys(sized.rows, rows), **dict.fromkeys(sized.columns, columns)}
    kernel, taller = trace(extents), trace({**extents, **dict.fromkeys(sized.rows, 2 * rows)})
    if swapped(kernel) is None:
        return
    few = kernel.grid.data[-2].expr * 3 <= taller.grid.data[-2].expr * 4
    candidate = _candidate_tile(_Family(extents, {}), extents, kernel, SWAPPED_GROUPS_PRICE, target, sectors)
    yield ProductVariant(few, (extents, *choices), applies=few, swapped=True), candidate


def _chained(
    choices: Sequence[dict[str, int]], sized: Sized, trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target
) -> Iterator[ProductVariant]:
    """Taller tiles for narrow chained products, where they need less time."""
    kernel = trace(choices[0])
    dots = _dots(kernel)
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
        rounds = ceildiv(_tiles(made, (1, 1)), target.sm_count * own.resident)
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


def _known_steps(kernel: tile.Kernel) -> Expr:
    """The steps of a tile; ``SOME_STEPS`` where they depend on the program or on loaded integers."""
    streams = [op for op in kernel.walk() if isinstance(op, tile.StreamLoop)]
    trip = sum((op.trip.expr for op in streams), Const(0))
    inside = {op.symbol.data for op in kernel.walk() if isinstance(op, tile.Bind)}
    inside |= {op.counter.data for op in streams} | {program_index(i) for i in range(len(kernel.grid))}
    return trip if inside.isdisjoint(trip.symbols) else Const(SOME_STEPS)


def _awaited(
    choices: list[dict[str, int]], sized: Sized, trace: Callable[[Mapping[str, int]], tile.Kernel], target: Target
) -> Iterator[ProductVariant]:
    """Tall tiles of one product that is waited for in each step, where their waves need less time."""
    kernel = trace(choices[0])
    dots = _dots(kernel)
    if len(dots) != 1 or accumulation(dots[0]) is not None or tile.tile_type(dots[0].result).shape != (128, AWAITED):
        return
    if not all(isinstance(source_of(value)[0].owner, tile.Load) for value in (dots[0].a, dots[0].b)):
        return
    tall = {**choices[0], **dict.fromkeys(sized.rows, 3 * ROWS)}
    less = _waves(trace(tall), (1, 1), target) * AWAITED_PRICE <= _waves(kernel, (1, 1), target) * 100
    yield ProductVariant(less, (tall, *choices))


@dataclass(frozen=True)
class _CandidateTile:
    """Tiles of one width, how often all CTAs take one, and the nanoseconds of all waves."""

    family: _Family
    extents: dict[str, int]
    waves: Expr
    time: Expr
    row_tiles: Expr
    """A candidate for one row of tiles is that many times slower with several."""


def _share(width: int, beside: int) -> int:
    """The columns of each of several products of a step, which share those of a tile."""
    return width // beside // COLUMNS * COLUMNS


def _candidate_tile(
    family: _Family, extents: dict[str, int], kernel: tile.Kernel, price: Price, target: Target, sectors: Expr
) -> _CandidateTile:
    """The candidate of a kernel traced with ``extents``; ``sectors`` as in ``Price.steps``."""
    waves = _waves(kernel, family.cluster, target)
    time = price.time(waves, _known_steps(kernel), sectors)
    return _CandidateTile(family, extents, waves, time, kernel.grid.data[-2].expr)


def _changed(one: tile.Kernel, other: tile.Kernel) -> list[int]:
    """The axes along which two grids differ."""
    return [i for i, (a, b) in enumerate(zip(one.grid, other.grid, strict=True)) if a != b]


def _not_slower(one: _CandidateTile, other: _CandidateTile) -> Expr:
    """The condition under which ``one`` takes at most the time of ``other``, or ``other`` does not apply."""
    quicker = one.time <= other.time
    if other.family.few_waves:
        return any_of([quicker, other.waves > FEW_WAVES])
    return quicker if other.family.waves == 1 else any_of([quicker, other.waves < other.family.waves])


def _clusters(rows: int, shape: tuple[int, int]) -> tuple[Candidate, ...]:
    return (Candidate(rows // ROWS, cluster=shape, whole_stores=True),)


def _waves(kernel: tile.Kernel, cluster: tuple[int, int], target: Target) -> Expr:
    """The number of waves of CTAs."""
    return ceildiv(_tiles(kernel, cluster), CLUSTERED_CTAS.get(prod(cluster), target.sm_count))


def _tiles(kernel: tile.Kernel, cluster: tuple[int, int]) -> Expr:
    """Tiles of a launch, in whole clusters."""
    shape = (*(1 for _ in kernel.grid.data[2:]), *cluster)
    pairs = zip(kernel.grid, shape, strict=True)
    return prod((extent.expr if n == 1 else ceildiv(extent.expr, n) * n for extent, n in pairs), start=Const(1))


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
    widest = max((tile.tile_type(dot.result).shape[1] for dot in _dots(small)), default=0)
    for dot, base in zip(_dots(large), _dots(small), strict=True):
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


def _dots(kernel: tile.Kernel) -> list[tile.Dot]:
    return [op for op in kernel.walk() if isinstance(op, tile.Dot)]


def _shape(kernel: tile.Kernel) -> tuple[int, ...]:
    """The shape of the first product's result."""
    return tile.tile_type(_dots(kernel)[0].result).shape
