"""Where each ``tile.dot`` finds its operands: a tile copied by TMA, registers, or a register-staged tile.

TmaOperand            a loaded tile (perhaps transposed) that a legal tensor map delivers in a layout wgmma reads
PagedOperand          one whose rows lie in pages that a table names: a tensor copy for each page
ThreadCopiedOperand   a loaded tile that no map delivers, or one of rows where loaded integers say: the producer's
                      threads copy it into the same layout
ConvertedOperand      an 8-bit tile that such copies bring, multiplied in 16 bits: threads convert it in between
RegisterOperand       a 16-bit left operand whose registers are those of an accumulator already
StagedOperand         any other value: written to shared memory in the swizzled layout by the threads that hold it
WidenedOperand        a value in shared memory in the accumulator's type, for products without wgmma
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue

from tilewright.base.cached import cached_property
from tilewright.base.dtypes import DType
from tilewright.base.expr import TRUE, Expr, Sym, maximum, simplify
from tilewright.base.verdict import Legal
from tilewright.hw.copy_prices import CopyMethod
from tilewright.hw.rules.wgmma import INSTRUCTION_K_BITS
from tilewright.hw.spaces import WARPGROUP_THREADS
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.lang.axes import Coord, Span
from tilewright.legal import tma, wgmma
from tilewright.legal.facts import Facts, index_axis, index_symbol
from tilewright.legal.repair_types import Remedy, ThreadCopy
from tilewright.legal.repairs import thread_copies
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tma import TensorMapPlan
from tilewright.legal.wgmma import Major, WgmmaOperand, WgmmaOperandPlan
from tilewright.legal.wgmma import OperandRole as OperandRole
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.gathered_rows import GatheredRows, gathered_rows
from tilewright.schedule.hopper.operand_layouts import OperandRead, choose_layouts
from tilewright.schedule.hopper.paged_tile import PagedTile, paged_tile
from tilewright.schedule.hopper.ragged_maps import end_inside, ragged_map
from tilewright.schedule.hopper.register_operand import RegisterRows
from tilewright.schedule.tile_accesses import coords_followed, legal_facts, tile_access
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, element, source_of, spans_of, tensor_name

ROWS = 64
"""Rows of one wgmma (hw.rules.wgmma.INSTRUCTION_M)."""
COLUMNS = 8
MAX_COLUMNS = 256
FEW_ROWS = 1 << 28
"""Rows of 16 bytes of 16-bit elements, or of 8-bit ones, whose offsets are 32-bit integers."""
SWIZZLES = (Swizzle.B128, Swizzle.B64, Swizzle.B32)


@dataclass(frozen=True)
class AsyncOperand:
    """A loaded tile that is copied to shared memory asynchronously, in a layout that wgmma reads."""

    load: tile.Load | tile.Gather
    plan: WgmmaOperandPlan
    landing: SmemTile | None = field(default=None, kw_only=True)
    """Where it lands if threads read it there, and not wgmma."""

    @property
    def shared(self) -> SmemTile:
        """Where its elements lie."""
        return self.plan.shared if self.landing is None else self.landing


@dataclass(frozen=True)
class TmaOperand(AsyncOperand):
    """A tile copied by TMA."""

    map: TensorMapPlan

    @property
    def tx_bytes(self) -> int:
        """Bytes of all copies of a tile."""
        return self.map.tx_bytes


@dataclass(frozen=True)
class PagedOperand(TmaOperand):
    """A tile copied page by page; ``map`` is that of one page's copies."""

    pages: PagedTile

    @property
    def tx_bytes(self) -> int:
        """Bytes of all copies of a tile."""
        return self.map.tx_bytes * self.pages.boxes


@dataclass(frozen=True)
class ThreadCopiedOperand(AsyncOperand):
    """A tile copied by threads; ``remedy`` is the repair that the legality rules offered instead of a tensor map. For a
    gather ``rows`` says how its rows are addressed."""

    remedy: Remedy
    rows: GatheredRows | None = None

    @property
    def copies(self) -> ThreadCopy:
        """How the threads copy."""
        assert self.remedy.threads is not None
        return self.remedy.threads

    @property
    def asynchronous(self) -> bool:
        """By cp.async; else by loads and stores, element by element."""
        return self.copies.method is CopyMethod.CP_ASYNC

    @property
    def vector(self) -> int:
        """Elements that a thread copies at a time."""
        return self.copies.vector_bytes // self.shared.element_bytes if self.asynchronous else 1


@dataclass(frozen=True, eq=False)
class ConvertedOperand:
    """The ``cast`` of a copied tile, in shared memory of its own. Of ``rows`` those beyond the domain must be cleared;
    None where there are none, or copies leave zeros there."""

    source: TmaOperand | ThreadCopiedOperand
    plan: WgmmaOperandPlan
    cast: tile.Cast
    rows: Span | None


@dataclass(frozen=True)
class RegisterOperand:
    """A left operand in registers."""

    value: SSAValue


@dataclass(frozen=True)
class StagedOperand:
    """A value that threads write to shared memory, K innermost."""

    value: SSAValue
    plan: WgmmaOperandPlan
    transposed: bool
    """The value's axes are (k, mn)."""


@dataclass(frozen=True)
class WidenedOperand:
    """A value written to shared memory in the accumulator's type, for products without wgmma."""

    value: SSAValue


Operand: TypeAlias = (
    TmaOperand | ThreadCopiedOperand | ConvertedOperand | RegisterOperand | StagedOperand | WidenedOperand
)


@dataclass(frozen=True)
class DotPlan:
    """One product: operands, the instruction's columns, and the fragment it accumulates into, if it does in place."""

    dot: tile.Dot
    a: Operand
    b: Operand
    n: int
    write: tile.FragmentWrite | None

    @property
    def dtype(self) -> DType:
        """Element type of the operands."""
        return element(self.dot.a)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the result, padding included."""
        rows, columns = tile.tile_type(self.dot.result).shape
        return rows, columns


@dataclass(frozen=True)
class Analysis:
    """Decides operands. ``copies`` allows tensor copies; ``bounds`` are those of the placement."""

    kernel: tile.Kernel
    facts: CallFacts
    warpgroups: int
    copies: bool = True
    ordinary: bool = False
    """Multiply without wgmma."""

    def dots(self) -> tuple[DotPlan, ...] | str:
        """A plan for every product of the kernel, or why wgmma can't do one."""
        found: list[DotPlan] = []
        for op in self.products:
            answer = self.dot(op)
            if isinstance(answer, str):
                return answer
            found.append(answer)
        return tuple(found)

    def dot(self, op: tile.Dot) -> DotPlan | str:
        if self.ordinary:
            return DotPlan(op, WidenedOperand(op.a), WidenedOperand(op.b), COLUMNS, accumulation(op))
        dtype = element(op.a)
        if dtype != element(op.b):
            return f"operands of {dtype} and {element(op.b)}: this schedule multiplies those of one dtype"
        if not (dtype.is_float and dtype.bits <= 16) and dtype.name != "tf32":
            return f"operands of {dtype}: this schedule multiplies 8- and 16-bit floats and tf32"
        rows, columns = tile.tile_type(op.result).shape
        n = instruction_columns(-(-columns // COLUMNS) * COLUMNS)
        depth = tile.tile_type(op.a).shape[1]
        a = self.asynchronous(op, OperandRole.A, n) if rows % (ROWS * self.warpgroups) == 0 else None
        b = self.asynchronous(op, OperandRole.B, n) if columns % COLUMNS == 0 else None
        left: Operand
        loaded = isinstance(source_of(op.a)[0].owner, tile.Load)
        if a is not None:
            left = a
        elif dtype.bits == 16 and depth % 16 == 0 and not loaded and self.register_rows.take(op):
            left = RegisterOperand(op.a)
        else:
            left = self.staged(op.a, OperandRole.A, n)
        right: Operand = b or self.converted(op, n) or self.staged(op.b, OperandRole.B, n)
        return DotPlan(op, left, right, n, accumulation(op))

    # -- operands -------------------------------------------------------------------------------------------------
    @cached_property
    def register_rows(self) -> RegisterRows:
        """Which computed left operands stay in registers."""
        return RegisterRows(self.kernel, self.products)

    @cached_property
    def products(self) -> tuple[tile.Dot, ...]:
        return tuple(op for op in self.kernel.walk() if isinstance(op, tile.Dot))

    def asynchronous(self, op: tile.Dot, role: OperandRole, n: int) -> TmaOperand | ThreadCopiedOperand | None:
        """The operand as tensor copies bring it, else as threads do that copy without waiting."""
        value, found = op.a if role is OperandRole.A else op.b, self.chosen_layouts.get((op, role))
        return found or self.thread_copied(value, role, n) or self.gathered(value, role, n)

    @cached_property
    def chosen_layouts(self) -> Mapping[tuple[tile.Dot, OperandRole], TmaOperand]:
        """How the loaded operands of all products are copied, chosen together."""
        return choose_layouts(self.reads())

    def reads(self) -> tuple[OperandRead[TmaOperand], ...]:
        """The operands of the kernel's products, with the tensor maps that could copy them."""
        found: list[OperandRead[TmaOperand]] = []
        for op in self.products:
            n = instruction_columns(-(-tile.tile_type(op.result).shape[1] // COLUMNS) * COLUMNS)
            for role in OperandRole:
                found.append(OperandRead(op, role, n, self.ways(op, role, n)))
        return tuple(found)

    def copied(self, value: SSAValue, role: OperandRole, n: int) -> TmaOperand | None:
        """The operand through a tensor map, if the rules allow one whose layout wgmma reads."""
        return next(self.candidates(value, role, n), None)

    def candidates(
        self, value: SSAValue, role: OperandRole, n: int, end: tuple[int, Expr] | None = None
    ) -> Iterator[TmaOperand]:
        """The operand through every tensor map that the rules allow and whose layout wgmma reads, widest swizzle
        first; with an ``end`` along a tensor axis through maps whose copies bring zeros for what lies behind."""
        gather = source_of(value)[0].owner
        if isinstance(gather, tile.Gather):
            yield from self.paged(gather, value, role, n)
        for load, extents, swizzle, major in self.layouts(value, role):
            unit = self.facts.of(tensor_name(load)).unit_axis
            if unit is None or extents[unit] is None:
                return None  # no map runs along an axis of which the tile has one element
            # rows of k may be copied beyond the tile's columns: nothing multiplies these; columns beyond its k would be
            padded = major is Major.MN
            map_plan = (
                tensor_map(load, extents, swizzle, self.known, padded=padded)
                if end is None
                else ragged_map(load, *end, extents, swizzle, self.known, padded=padded)
            )
            if not isinstance(map_plan, TensorMapPlan):
                continue
            shared = map_plan.shared.whole_panels
            answer = wgmma.plan(WgmmaOperand(role, element(load.result), shared, major, n, "f32"))
            if isinstance(answer, Legal):
                yield TmaOperand(load, answer.fields, map_plan)

    def loaded_end(self, load: tile.Load, axis: int) -> Expr | None:
        """Where the domain of a tensor axis ends, if loaded integers say so and copies could end there
        (``ragged_maps``); where the program says it, as a diagonal does, few steps are cut."""
        rows, extent = coords_of(load)[axis], tile.tensor_type(load.tensor).dims.data[axis].expr
        assert isinstance(rows, Span)
        loaded = {op.symbol.data for op in self.kernel.walk() if isinstance(op, tile.Bind)}
        if loaded.isdisjoint(rows.stop.symbols):
            return None
        if element(load.result).bytes > 2 or self.facts.index_bits != 32:
            return None  # a launch might have more rows
        stop = end_inside(self.kernel, rows, extent, FEW_ROWS)
        return None if isinstance(stop, str) else stop

    def paged(self, gather: tile.Gather, value: SSAValue, role: OperandRole, n: int) -> Iterator[PagedOperand]:
        """The operand through maps of which a box is a page, or a part of one, in a layout that wgmma reads."""
        pages, unit = paged_tile(gather), self.facts.of(tensor_name(gather)).unit_axis
        across = None if pages is None or unit is None else pages.axes[unit]
        if not self.copies or pages is None or across is None or across == pages.axis:
            return
        spans, (_, perm) = spans_of(gather.result), source_of(value)
        inner = spans[across]
        assert inner is not None
        extents = tuple(None if d is None else pages.rows if d == pages.axis else inner.size for d in pages.axes)
        major = Major.K if across == perm[1 if role is OperandRole.A else 0] else Major.MN
        for swizzle in SWIZZLES:
            map_plan = tensor_map(gather, extents, swizzle, self.known)
            if map_plan is None or map_plan.shared.shared_tile is None:
                continue  # pages begin where the swizzle's pattern does
            shared = replace(map_plan.shared, extents=(inner.size, pages.span.size))
            answer = wgmma.plan(WgmmaOperand(role, element(gather.result), shared, major, n, "f32"))
            if isinstance(answer, Legal):
                yield PagedOperand(gather, answer.fields, map_plan, pages)

    def converted(self, op: tile.Dot, n: int) -> ConvertedOperand | None:
        """The right operand as copies bring it in 8 bits, row after row, if threads share it evenly."""
        cast = conversion_of(op)
        if cast is None or not self.copies or element(cast.x).bits != 8 or element(op.b).bits != 16:
            return None
        load = source_of(cast.x)[0].owner
        assert isinstance(load, tile.Load | tile.Gather)
        if isinstance(load, tile.Gather) and (rows := gathered_rows(load)) is not None:
            return self.converted_rows(op, cast, rows, n)
        unit = self.facts.of(tensor_name(load)).unit_axis
        pages = paged_tile(load) if isinstance(load, tile.Gather) else None
        coords = coords_followed(load)
        axes = pages.axes if pages is not None else _axes_of(coords)
        across, (_, perm) = None if unit is None else axes[unit], source_of(op.b, casts=True)
        if across is None or (pages is None and isinstance(load, tile.Gather)):
            return None
        spans = spans_of(load.result)
        inner, rows = spans[across], spans[1 - across]
        if inner is None or rows is None or (pages is not None and across == pages.axis):
            return None
        k_major = perm[0] == across
        whole = ends_with_tensor(load.results[0], across if k_major else 1 - across)
        if k_major and not whole:
            return None
        sizes = {across: inner.size, 1 - across: rows.size if pages is None else pages.rows}
        map_plan = tensor_map(load, [None if d is None else sizes[d] for d in axes], Swizzle.NONE, self.known)
        if map_plan is None or len(map_plan.boxes) != 1 or map_plan.shared.shared_tile is None:
            return None
        landing = replace(map_plan.shared, extents=(inner.size, rows.size))
        plan = self.converted_plan(element(op.b), landing, Major.K if k_major else Major.MN, n)
        if plan is None or landing.panels != 1:
            return None
        source = (
            TmaOperand(load, plan, map_plan, landing=landing)
            if pages is None
            else PagedOperand(load, plan, map_plan, pages, landing=landing)
        )
        return ConvertedOperand(source, plan, cast, None if whole else rows)

    def converted_rows(self, op: tile.Dot, cast: tile.Cast, rows: GatheredRows, n: int) -> ConvertedOperand | None:
        """The same of rows that loaded integers name: the producer's threads copy them, and zeros for the others."""
        k_major = source_of(op.b, casts=True)[1][0] != rows.axis
        for remedy, landing in self.row_copies(rows, Swizzle.NONE):
            plan = self.converted_plan(element(op.b), landing, Major.K if k_major else Major.MN, n)
            if plan is not None and landing.panels == 1:
                source = ThreadCopiedOperand(rows.gather, plan, remedy, rows, landing=landing)
                return ConvertedOperand(source, plan, cast, None)
        return None

    def converted_plan(self, dtype: DType, landing: SmemTile, major: Major, n: int) -> WgmmaOperandPlan | None:
        """How wgmma reads a converted tile, whose rows are those of the stage."""
        width, rows = landing.extents
        vectors = MAX_VECTOR_BYTES // dtype.bytes * WARPGROUP_THREADS * self.warpgroups
        for swizzle in SWIZZLES:
            panel = PATTERNS[swizzle].span_bytes // dtype.bytes
            if width % panel == 0 and width * rows % vectors == 0:
                shared = SmemTile((width, rows), panel, dtype.bytes, swizzle)
                answer = wgmma.plan(WgmmaOperand(OperandRole.B, dtype, shared, major, n, "f32"))
                if isinstance(answer, Legal) and shared.shared_tile is not None:
                    return answer.fields
        return None

    def thread_copied(self, value: SSAValue, role: OperandRole, n: int) -> ThreadCopiedOperand | None:
        """The operand copied by threads, if wgmma reads the resulting layout; cp.async is preferred to loads and
        stores."""
        for load, extents, swizzle, major in self.layouts(value, role):
            for remedy in thread_copies(tile_access(load, extents, (swizzle,), self.known), self.known):
                copies = remedy.threads
                if copies is None or copies.shared.shared_tile is None:
                    continue
                answer = wgmma.plan(WgmmaOperand(role, element(load.result), copies.shared, major, n, "f32"))
                if isinstance(answer, Legal):
                    return ThreadCopiedOperand(load, answer.fields, remedy)
        return None

    def gathered(self, value: SSAValue, role: OperandRole, n: int) -> ThreadCopiedOperand | None:
        """The operand copied row by row from where loaded integers say, by cp.async, if wgmma reads where it lands."""
        source, perm = source_of(value)
        gather = source.owner
        if not self.copies or not isinstance(gather, tile.Gather):
            return None
        rows = gathered_rows(gather)
        if rows is None:
            return None
        major = Major.MN if rows.axis == perm[1 if role is OperandRole.A else 0] else Major.K
        for swizzle in SWIZZLES:
            for remedy, shared in self.row_copies(rows, swizzle):
                answer = wgmma.plan(WgmmaOperand(role, element(gather.result), shared, major, n, "f32"))
                if isinstance(answer, Legal):
                    return ThreadCopiedOperand(gather, answer.fields, remedy, rows)
        return None

    def row_copies(self, rows: GatheredRows, swizzle: Swizzle) -> Iterator[tuple[Remedy, SmemTile]]:
        """How cp.async copies rows at loaded indices, and their layout in shared memory."""
        if self.facts.of(tensor_name(rows.gather)).unit_axis != rows.columns:
            return
        extents = [c.size if isinstance(c, Span) else None for c in rows.coords]
        extents[rows.dimension] = rows.span.size
        for remedy in thread_copies(tile_access(rows.gather, extents, (swizzle,), self.known), self.known):
            copies = remedy.threads
            if copies is not None and copies.method is CopyMethod.CP_ASYNC and copies.shared.shared_tile is not None:
                yield remedy, copies.shared

    def layouts(
        self, value: SSAValue, role: OperandRole
    ) -> Iterator[tuple[tile.Load, tuple[int | None, ...], Swizzle, Major]]:
        """The ways in which a loaded operand could land, with the axis along which its memory runs."""
        source, perm = source_of(value)
        load = source.owner
        if not self.copies or not isinstance(load, tile.Load):
            return
        coords = coords_of(load)
        axes = [d for d, c in enumerate(coords) if isinstance(c, Span)]
        k_axis = axes[perm[1 if role is OperandRole.A else 0]]
        unit = self.facts.of(tensor_name(load)).unit_axis
        inner = unit if unit in axes else axes[-1]  # of memory that runs along neither, as `thread_copies` has it
        major = Major.K if inner == k_axis else Major.MN
        extents = tuple(c.size if isinstance(c, Span) else None for c in coords)
        yield from ((load, extents, swizzle, major) for swizzle in SWIZZLES)

    @cached_property
    def known(self) -> Facts:
        """The facts of the class, for the rules."""
        return legal_facts(self.kernel, self.facts)

    def ways(self, op: tile.Dot, role: OperandRole, n: int) -> tuple[TmaOperand, ...]:
        """The tensor maps that could copy an operand, of which no element outside of its domain along k may take part
        in the product, whatever memory holds there, NaN too: maps that end with the domain, or others of a right
        operand, which consumers can clear (``tails``)."""
        value, axis = (op.a, 1) if role is OperandRole.A else (op.b, 0)
        load = source_of(value)[0].owner
        if not isinstance(load, tile.Load | tile.Gather) or ends_with_tensor(value, axis):
            return tuple(self.candidates(value, role, n))
        operands = [operand for product in self.products for operand in (product.a, product.b)]
        alone = sum(source_of(operand)[0].owner is load for operand in operands) == 1  # else one map serves them all
        clipped: tuple[TmaOperand, ...] = ()
        if alone and isinstance(load, tile.Load):
            of_tensor = [d for d, c in enumerate(coords_of(load)) if isinstance(c, Span)]
            along = of_tensor[source_of(value)[1][axis]]
            end = self.loaded_end(load, along)
            clipped = () if end is None else tuple(self.candidates(value, role, n, (along, end)))
        left = source_of(op.a)[0].owner
        computed = not (isinstance(left, tile.Load) or (isinstance(left, tile.Gather) and paged_tile(left)))
        if clipped or role is OperandRole.A or not computed:
            return clipped
        return tuple(self.candidates(value, role, n))

    def staged(self, value: SSAValue, role: OperandRole, n: int) -> StagedOperand:
        """The operand written to shared memory from registers, K-major, padded to whole instructions."""
        dtype = element(value)
        shape = tile.tile_type(value).shape
        mn, k = (shape[0], shape[1]) if role is OperandRole.A else (shape[1], shape[0])
        step = ROWS * self.warpgroups if role is OperandRole.A else COLUMNS
        deep = INSTRUCTION_K_BITS // dtype.bits
        mn, k = -(-mn // step) * step, -(-k // deep) * deep
        spans = ((s, PATTERNS[s].span_bytes // dtype.bytes) for s in SWIZZLES)
        swizzle, panel = next((s, p) for s, p in spans if k % p == 0)
        shared = SmemTile((k, mn), panel, dtype.bytes, swizzle)
        answer = wgmma.plan(WgmmaOperand(role, dtype, shared, Major.K, n, "f32"))
        assert isinstance(answer, Legal), answer
        return StagedOperand(value, answer.fields, transposed=role is OperandRole.B)


def tensor_map(
    access: tile.Load | tile.Gather | tile.Store,
    extents: Sequence[int | None],
    swizzle: Swizzle,
    known: Facts,
    *,
    padded: bool = False,
) -> TensorMapPlan | None:
    """A legal tensor map for a box of ``extents`` (None: an index) of the accessed tensor; only sizes are left open.
    ``padded``: its last panel may reach beyond the box."""
    asked = replace(tile_access(access, extents, (swizzle,), known), padded=padded)
    if any(known.bounds.get(str(stride), (1, None))[0] is None for stride in asked.strides):
        return None  # broadcast or flipped: no stride of a map is zero or negative
    answer = _planned(asked, known)
    if not isinstance(answer, Legal) or any(not isinstance(c, Sym) for c in answer.fields.coordinates):
        return None
    return answer.fields


_planned = lru_cache(maxsize=1024)(tma.plan)
"""The candidate schedules of a kernel ask for the same boxes again."""


def about_strides(predicate: Expr) -> bool:
    """Whether a predicate depends on strides or addresses, not on extents alone."""
    return any("." in symbol for symbol in predicate.symbols)


def map_axes(plan: TensorMapPlan) -> tuple[int, ...]:
    """The tensor axis of each dimension of a map without folded dimensions; of a ragged one, of all but the last
    two."""
    if plan.ragged_axis is None:
        return tuple(index_axis(c) for c in plan.coordinates if isinstance(c, Sym))
    return tuple(index_axis(c) if isinstance(c, Sym) else plan.ragged_axis for c in plan.coordinates[:-2])


def encoded_strides(plan: TensorMapPlan) -> list[Expr]:
    """The strides that a launch encodes, in bytes. Every map wants multiples of 16, and the stride of an axis with one
    element may be anything; that of a ragged axis takes part in all of its three dimensions."""
    strides = [maximum(s // 16 * 16, 16) for s in plan.strides]
    if plan.ragged_axis is not None:
        rows = map_axes(plan).index(plan.ragged_axis) - 1
        strides[-2:] = strides[rows], plan.strides[rows] + plan.strides[-1] - strides[rows]
    return strides


def reaches_edge(access: tile.Load | tile.Gather | tile.Store, axis: int) -> bool:
    """Whether the domain of the ``axis``-th range ends with the tensor, or the tile never exceeds it: TMA clips it
    correctly."""
    spans = [(d, c) for d, c in enumerate(coords_followed(access)) if isinstance(c, Span)]
    dim, span = spans[axis]
    extent = tile.tensor_type(access.tensor).dims.data[dim].expr
    return span.stop == extent or simplify(span.origin + span.size <= span.stop, {}) == TRUE


def ends_with_tensor(value: SSAValue, axis: int) -> bool:
    """Whether the domain of an axis of a loaded operand ends with its tensor: TMA fills zeros beyond it."""
    source, perm = source_of(value)
    load = source.owner
    if isinstance(load, tile.Gather):
        pages = paged_tile(load)
        return pages is not None and pages.axis != perm[axis] and reaches_edge(load, 0)
    assert isinstance(load, tile.Load)
    return reaches_edge(load, perm[axis])


def conversion_of(dot: tile.Dot) -> tile.Cast | None:
    """The cast of a loaded tile that is a product's right operand, if neither has another use."""
    cast = source_of(dot.b)[0].owner
    if not isinstance(cast, tile.Cast) or not _only_user(cast, dot):
        return None
    load = source_of(cast.x)[0].owner
    return cast if isinstance(load, tile.Load | tile.Gather) and _only_user(load, cast) else None


def is_conversion(op: Operation) -> bool:
    """Whether an op is such a cast."""
    uses = list(op.results[0].uses) if isinstance(op, tile.Cast) else []
    while len(uses) == 1 and isinstance(uses[0].operation, tile.Transpose):
        uses = list(uses[0].operation.results[0].uses)
    user = uses[0].operation if len(uses) == 1 else None
    return isinstance(user, tile.Dot) and conversion_of(user) is op


def _only_user(op: tile.Load | tile.Gather | tile.Cast, user: Operation) -> bool:
    """Nothing but ``user`` reads an op's result, perhaps transposed, once."""
    uses = list(op.results[0].uses)
    while len(uses) == 1 and isinstance(uses[0].operation, tile.Transpose):
        uses = list(uses[0].operation.results[0].uses)
    return len(uses) == 1 and uses[0].operation is user


def _axes_of(coords: Sequence[Coord]) -> tuple[int | None, ...]:
    """The tile's axis along each dimension of a load."""
    axes = iter(range(len(coords)))
    return tuple(next(axes) if isinstance(c, Span) else None for c in coords)


def accumulation(dot: tile.Dot) -> tile.FragmentWrite | None:
    """The write of ``f += dot`` that tensor cores can perform in place: nothing between the product and it changes a
    fragment."""
    if dot.promoted is not None:
        return None
    uses = [u.operation for u in dot.result.uses]
    if len(uses) != 1 or not isinstance(uses[0], tile.Binary) or uses[0].fn.data.value != "add":
        return None
    add = uses[0]
    after = [u.operation for u in add.results[0].uses]
    other = add.b if add.a == dot.result else add.a
    if (
        len(after) != 1
        or not isinstance(after[0], tile.FragmentWrite)
        or not isinstance(other.owner, tile.FragmentRead)
    ):
        return None
    write, read = after[0], other.owner
    if read.frag != write.frag or write.parent_block() is not dot.parent_block() or len(list(other.uses)) != 1:
        return None
    block = dot.parent_block()
    assert block is not None
    between = _between(min((dot, read), key=block.get_operation_index), write)
    return None if any(isinstance(op, tile.FragmentWrite | tile.StreamLoop) for op in between) else write


def _between(first: Operation, last: Operation) -> list[Operation]:
    found: list[Operation] = []
    op = first.next_op
    while op is not None and op is not last:
        found.append(op)
        op = op.next_op
    return found


def instruction_columns(columns: int) -> int:
    """The columns of one instruction: the largest legal number that divides ``columns``, a multiple of 8."""
    return next(n for n in range(min(columns, MAX_COLUMNS), 0, -COLUMNS) if columns % n == 0)


def index_value(node: Expr, coords: Sequence[object]) -> Expr:
    """A map's coordinate with the access' first indices in place of ``$index0, $index1, ...``."""
    places = {index_symbol(d).name: c.origin if isinstance(c, Span) else c for d, c in enumerate(coords)}
    return node.substitute(places)  # pyright: ignore[reportArgumentType]
