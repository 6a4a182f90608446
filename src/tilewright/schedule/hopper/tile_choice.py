"""The tile of a product whose rows and columns are free: of those that serve a launch, the one with the least price."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from tilewright.base.cached import cached_property
from tilewright.base.expr import FALSE, TRUE, Const, Expr, all_of, any_of, ceildiv, maximum, minimum
from tilewright.hw.target import Target
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.epilogue_loop import LEAST_INSTRUCTIONS
from tilewright.schedule.hopper.loaded_bounds import LoadedBounds
from tilewright.schedule.hopper.operands import COLUMNS, ROWS
from tilewright.schedule.hopper.product_tiles import TILES, ProductTile
from tilewright.schedule.hopper.product_variant import ProductVariant
from tilewright.schedule.hopper.shared_memory_epilogue import elements_beyond
from tilewright.schedule.hopper.tile_prices import (
    INSTRUCTION,
    LINE_BYTES,
    LOAD,
    SECTOR_BYTES,
    Price,
    ProductLaunch,
    copied_whole,
    instructions_beside,
    loads_beside,
    operand_bytes,
    panel_columns,
    straddles,
)
from tilewright.schedule.transforms.split_k import FEW, NotSplitError, split
from tilewright.schedule.transforms.swapped_operands import swapped
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index

WIDE_ROWS = 2 * ROWS
CLUSTERED_CTAS = {2: 132, 4: 120}
"""CTAs that run at one time, by those of a cluster (H200, cuOccupancyMaxActiveClusters; 128 in clusters of 4 took two
waves)."""
PART_STEPS = 16
"""Steps of 128 bytes that a part has at least which a second kernel adds (128 x 128 x 65536, H200: 32, 64 and 128 parts
22, 17 and 18 us)."""
FEW_WAVES = 3
FEW_ROWS = next(own for own in TILES if own.one_row)
COLUMN_TILES = 40
"""The tile of products of at most so many rows, but for parts where there are not more than so many of it: prices are
less exact than that (132 products of 1 to 16 rows, H200: a mean regret of 1.003, by prices alone 1.014)."""
FEW_STEPS = 32
"""Steps up to which epilogues are a larger part of a launch than prices say: ping-pong counts as 2 % quicker (32
products of 1024^3, H200: 102.9 us by ping-pong in 128 x 208, 106.4 in 128 x 256, otherwise taken for equal)."""
HIDING_STEPS = 4
"""Steps that hide an epilogue, at least (64 products of 512 x 512 x 128, two steps, H200: 19.2 us by ping-pong in 128 x
208, 17.4 in 128 x 256)."""
SOME_STEPS = 32
"""Steps of a product of which nothing is known before it runs."""
ONE_WAVE_COLUMNS = 128, 192
"""Columns of tiles of 128 rows whose operands L2 need not keep where all tiles run at one time: nothing is read again
later (H200: 512 x 4096^2 27.6 us instead of 29.6, 384 x 5120^2 32.6 instead of 36.9; of 256 columns the same). Rows
that begin inside of sectors share them (300 x 5000^2: 54.2 instead of 49.8)."""
SWAPPED_GROUPS = 32, 128
"""Rows and columns of a tile with swapped operands, where groups of rows have at most as many on average and each reads
a weight of its own (1024 rows in 128 groups, 1536 x 2048, H200: 215 us, with tiles of 64 x 128 222, of 128 x 128 234,
16 x 128 217; 64 rows in 8, 14336 x 4096: 243, 252, 344, 245)."""
NEVER = 10**12
"""Nanoseconds of what does not serve a launch."""

Trace = Callable[[Mapping[str, int]], tile.Kernel]


@dataclass(frozen=True)
class _Offer:
    """A tile that some launches may get: its variant, what its time depends on, and the ``limits`` of the launches that
    it serves, of which the first of a pair is at most the second."""

    tile: ProductTile
    variant: ProductVariant
    launch: ProductLaunch
    limits: tuple[tuple[Expr, Expr], ...] = ()

    @cached_property
    def serves(self) -> Expr:
        """Whether it serves a launch."""
        return all_of(low <= high for low, high in self.limits)

    @cached_property
    def time(self) -> Expr:
        """Nanoseconds where it serves."""
        assert self.variant.time is not None
        return self.variant.time

    @cached_property
    def time_or_never(self) -> Expr:
        """The same, and far more where it does not."""
        return self.time + sum((maximum(low - high, 0) for low, high in self.limits), Const(0)) * NEVER


class Tiles:
    """The tiles of a kernel with free rows and columns; ``wide`` are the extents of all autos with the widest one."""

    def __init__(
        self,
        wide: Mapping[str, int],
        rows: Sequence[str],
        columns: Sequence[str],
        trace: Trace,
        target: Target,
        facts: CallFacts,
    ):
        self._wide, self._rows, self._columns = wide, rows, columns
        self._trace, self._target = trace, target
        kernel = trace(wide)
        self._grouped = LoadedBounds(kernel).binds
        self._copied = copied_whole(kernel, facts)
        self._lines, self._sectors = (straddles(kernel, facts, unit) for unit in (LINE_BYTES, SECTOR_BYTES))
        self._beside, self._panel = len(products_of(kernel)), panel_columns(kernel, facts)
        self._bytes = operand_bytes(kernel)
        loads, instructions = loads_beside(kernel), instructions_beside(kernel) if self._beside == 1 else 0
        self._epilogue = LOAD * len(loads) + INSTRUCTION * instructions if self._beside == 1 else 0
        self._loads, self._long = bool(loads), instructions >= LEAST_INSTRUCTIONS
        self._beyond = tuple((each, Const(0)) for each in elements_beyond(kernel, facts))
        self._has_parts = TRUE
        if not self._grouped and self._swaps(FEW_ROWS):
            row_tiles, column_tiles = (extent.expr for extent in trace(self._extents(FEW_ROWS)).grid.data[-2:])
            self._has_parts = any_of([row_tiles > 1, column_tiles <= COLUMN_TILES])

    def variants(self, choices: Sequence[Mapping[str, int]]) -> list[ProductVariant]:
        """A variant of each tile, and when it is used: where it takes no longer than those behind it, so that the
        others still serve every launch without it; ``choices`` are the extents to fall back to."""
        *others, last = self._every_offer(choices)
        found, least = [last.variant], last.time
        for own in reversed(others):
            best = own.serves if own.tile == FEW_ROWS else all_of([own.serves, own.time <= least])
            if own.variant.parts is not None or own.variant.narrow is not None:
                best = all_of([best, self._has_parts])
            least = minimum(own.time_or_never, least)
            found.append(replace(own.variant, predicate=best))
            once = all_of([best, own.launch.waves <= 1, self._sectors <= 0])
            wide = own.tile.plain and own.tile.rows == WIDE_ROWS and own.tile.columns in ONE_WAVE_COLUMNS
            if wide and once != FALSE and not self._grouped:
                found.append(replace(own.variant, predicate=once, one_wave=True))
        return [*self._swapped_groups(choices), *reversed(found)]

    def _every_offer(self, choices: Sequence[Mapping[str, int]]) -> list[_Offer]:
        """In dispatch order. Where only extents tell whether tensor copies can store the result, those that store by
        rows as well are few, behind all others: their code is twice as long, or more."""
        offers = [own for each in TILES for own in self._offers(each, choices) if own.serves != FALSE]
        if not self._beyond:
            return offers

        def shorter(own: _Offer) -> _Offer:
            if own.tile.one_row or own.tile.kernels:
                return own
            variant = replace(own.variant, applies=all_of([own.variant.applies, *(x <= y for x, y in self._beyond)]))
            return replace(own, variant=replace(variant, whole_stores=True), limits=(*own.limits, *self._beyond))

        return [*map(shorter, offers), *(own for own in offers if own.tile.any_extent)]

    def other_widths(self) -> Iterator[ProductVariant]:
        """Tiles of widths between those that are offered, with interpolated prices."""
        known = {own.columns: own.price for own in TILES if own.plain and own.rows == WIDE_ROWS}
        for narrower, wider in pairwise(sorted(known)):
            for width in range(narrower + COLUMNS, wider, COLUMNS):
                price = known[narrower].between(known[wider], (width - narrower) / (wider - narrower))
                yield self._variant(ProductTile(WIDE_ROWS, width, price), ())[0]

    def _offers(self, own: ProductTile, choices: Sequence[Mapping[str, int]]) -> Iterator[_Offer]:
        """A tile with its variants, of which each serves other launches; none where the kernel can't have it."""
        epilogue = (own.for_loads or not self._loads) and (own.for_long_epilogues or not self._long)
        if (self._grouped and not own.of_loaded_bounds) or (own.copied and not self._copied) or not epilogue:
            return
        if own.parts > 1:
            yield from self._clustered(own)
        elif own.kernels:
            yield from self._in_two_kernels(own, choices)
        elif not own.swapped or self._swaps(own):
            variant, launch = self._variant(own, choices)
            limits: list[tuple[Expr, Expr]] = []
            if own.one_row:
                limits.append((self._trace(variant.choices[0]).grid.data[-2].expr, Const(1)))
            if own.straddling:
                limits.append((Const(1), self._lines))
            if own.few_waves and not self._grouped:
                limits.append((launch.waves, Const(FEW_WAVES)))
            if own.candidate is not None and own.candidate.ping_pong > 1:
                limits += [(Const(2), launch.waves), (Const(HIDING_STEPS), launch.steps)]
            offer = _Offer(own, variant, launch, tuple(limits))
            yield replace(offer, variant=replace(variant, applies=offer.serves))

    def _swaps(self, own: ProductTile) -> bool:
        """Whether the operands of all products can be swapped; several in tiles of few rows alone."""
        return (own.one_row or self._beside == 1) and swapped(self._trace(self._extents(own))) is not None

    def _variant(self, own: ProductTile, choices: Sequence[Mapping[str, int]]) -> tuple[ProductVariant, ProductLaunch]:
        """That of a tile of one kernel."""
        extents = self._extents(own)
        cluster = (1, 1) if own.candidate is None else own.candidate.cluster
        hides = own.candidate is not None and own.candidate.ping_pong > 1
        launch, price = self._launch(own, extents, cluster), self._price(own, extents)
        if not hides:
            price = replace(price, wave=price.wave * self._beside)
        time = price.time(launch)
        if hides and cluster == (1, 1):
            time -= minimum(maximum(FEW_STEPS + 1 - launch.steps, 0), 1) * time // 50
        candidates = () if own.candidate is None else (own.candidate,)
        variant = ProductVariant(TRUE, (extents, *choices), candidates, time=time)
        return replace(variant, swapped=own.swapped, one_row=own.one_row, one_wave=own.one_wave), launch

    def _launch(self, own: ProductTile, extents: Mapping[str, int], cluster: tuple[int, int] = (1, 1)) -> ProductLaunch:
        """That of whole tiles."""
        kernel = self._trace(extents)
        sms, steps = CLUSTERED_CTAS.get(prod(cluster), self._target.sm_count), _steps(kernel)
        elements = prod(tile.tile_type(products_of(kernel)[0].result).shape)
        few, many = (int(elements * self._epilogue * percent / 100_000) for percent in own.epilogue)
        epilogue = minimum(maximum(FEW_STEPS + 1 - steps, 0), 1) * (few - many) + many
        return ProductLaunch(programs(kernel, cluster), sms, steps, self._sectors, self._bytes, epilogue)

    def _price(self, own: ProductTile, extents: Mapping[str, int]) -> Price:
        """The tile's, with what it copies in vain."""
        return own.price.copying(self._panel, tile.tile_type(products_of(self._trace(extents))[0].result).shape)

    def _clustered(self, own: ProductTile) -> Iterator[_Offer]:
        """Parts that a cluster adds, in launches of one wave."""
        extents = self._extents(own)
        if extents[self._columns[0]] % (own.parts * COLUMNS) or own.candidate is None:
            return
        narrow = {**extents, **{name: extents[name] // own.parts for name in self._columns}}
        try:
            split(self._trace(extents), many=False).clustered(self._trace(narrow), own.parts)
        except NotSplitError:
            return
        launch = self._launch(own, extents).in_parts(Const(own.parts), CLUSTERED_CTAS[own.parts])
        time = self._price(own, extents).time(launch)
        variant = ProductVariant(TRUE, (extents,), (own.candidate,), narrow=narrow, one_wave=own.one_wave, time=time)
        yield _Offer(own, variant, launch, ((launch.waves, Const(1)),))

    def _in_two_kernels(self, own: ProductTile, choices: Sequence[Mapping[str, int]]) -> Iterator[_Offer]:
        """As many parts as leave no SM idle, which a second kernel adds: a few, or many."""
        extents = self._extents(own)
        try:
            split(self._trace(extents), many=False)
        except NotSplitError:
            return
        whole = self._launch(own, extents)
        parts = minimum(maximum(whole.sms // maximum(whole.programs, 1), 1), maximum(whole.steps // PART_STEPS, 1))
        launch = whole.in_parts(parts, whole.sms)
        time = self._price(own, extents).time(launch)
        few = ProductVariant(TRUE, (extents, *choices), parts=parts, one_wave=own.one_wave, time=time)
        yield _Offer(own, few, launch, ((Const(2), parts), (parts, Const(FEW))))
        yield _Offer(own, replace(few, many=True), launch, ((Const(FEW + 1), parts),))

    def _swapped_groups(self, choices: Sequence[Mapping[str, int]]) -> Iterator[ProductVariant]:
        """Swapped operands, where twice as many rows would spare less than a quarter of the tiles: these are the
        groups' only ones."""
        if not self._grouped:
            return
        rows, columns = SWAPPED_GROUPS
        extents = {**self._wide, **dict.fromkeys(self._rows, rows), **dict.fromkeys(self._columns, columns)}
        kernel, taller = self._trace(extents), self._trace({**extents, **dict.fromkeys(self._rows, 2 * rows)})
        if swapped(kernel) is not None:
            few = kernel.grid.data[-2].expr * 3 <= taller.grid.data[-2].expr * 4
            yield ProductVariant(few, (extents, *choices), applies=few, swapped=True)

    def _extents(self, own: ProductTile) -> dict[str, int]:
        """All extents; of several products of a step each has its share of the columns, but of swapped ones."""
        columns = own.columns if own.swapped else own.columns // self._beside // COLUMNS * COLUMNS
        return {**self._wide, **dict.fromkeys(self._rows, own.rows), **dict.fromkeys(self._columns, columns)}


def _steps(kernel: tile.Kernel) -> Expr:
    """The steps of a tile; ``SOME_STEPS`` where they depend on the program or on loaded integers."""
    streams = [op for op in kernel.walk() if isinstance(op, tile.StreamLoop)]
    trip = sum((op.trip.expr for op in streams), Const(0))
    inside = {op.symbol.data for op in kernel.walk() if isinstance(op, tile.Bind)}
    inside |= {op.counter.data for op in streams} | {program_index(i) for i in range(len(kernel.grid))}
    return trip if inside.isdisjoint(trip.symbols) else Const(SOME_STEPS)


def programs(kernel: tile.Kernel, cluster: tuple[int, int]) -> Expr:
    """Programs of a launch, in whole clusters."""
    shape = (*(1 for _ in kernel.grid.data[2:]), *cluster)
    pairs = zip(kernel.grid, shape, strict=True)
    return prod((extent.expr if n == 1 else ceildiv(extent.expr, n) * n for extent, n in pairs), start=Const(1))


def products_of(kernel: tile.Kernel) -> list[tile.Dot]:
    """The products of a kernel, in order."""
    return [op for op in kernel.walk() if isinstance(op, tile.Dot)]
