"""Tile accesses lowered to tensor maps: dims, strides, box, swizzle, coordinates, bytes, and the conditions to check at
launch.

No solver is needed: the dense axis becomes dimension 0, the other tile axes follow, dropped axes come last with a box
of one; axes whose strides nest are merged when there are more than five. Every field is an expression over the tensor's
symbols, and every rule of the table is decided on these expressions: what follows from the facts is proved here, what
concerns sizes only becomes the plan's guard, what fails is the core of the refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product
from math import gcd, prod

from tilewright.base.dtypes import DType
from tilewright.base.expr import FALSE, TRUE, Const, Expr, all_of, expr
from tilewright.base.verdict import Illegal, Legal, Legality, Violation
from tilewright.hw.target import SM90A, Target
from tilewright.hw.tensormap import (
    INNER_BOX_ALIGN_BYTES,
    MAX_BOX_EXTENT,
    MAX_RANK,
    MAX_SMEM_TILE_BYTES,
    PATTERNS,
    DataType,
    Direction,
    Interleave,
    L2Promotion,
    OobFill,
    Swizzle,
)
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.symbolic import ResidualRule, decide_rules
from tilewright.legal.tma_preconditions import inner_bytes, no_dense_axis, smem_bytes, too_many_dimensions

DATA_TYPES: dict[str, DataType] = {
    "f32": DataType.FLOAT32,
    "tf32": DataType.TFLOAT32,
    "f16": DataType.FLOAT16,
    "bf16": DataType.BFLOAT16,
    "e4m3": DataType.UINT8,
    "e5m2": DataType.UINT8,
    "i8": DataType.UINT8,
    "i16": DataType.UINT16,
    "i32": DataType.INT32,
    "i64": DataType.INT64,
    "u8": DataType.UINT8,
    "u16": DataType.UINT16,
    "u32": DataType.UINT32,
    "bool": DataType.UINT8,
}
"""Data type of the map for each dtype, by name; types without a CUtensorMapDataType are copied as bytes."""


class CompletionMechanism(Enum):
    """How the completion of a copy is observed (PTX ISA 9.1, 9.7.9.25.4.1): loads by transaction bytes on an mbarrier,
    stores and reductions by bulk groups of the issuing thread."""

    MBARRIER = "mbarrier"
    BULK_GROUP = "bulk_group"


@dataclass(frozen=True)
class TileAccess:
    """A tile of a tensor, as the program asks for it.

    ``shape`` and ``strides`` are in elements, ``address`` in bytes, all expressions or ints; ``tile`` has an extent for
    each axis, None where the program takes one index and the axis disappears. ``swizzles`` are the admissible ones,
    best first; empty means any. ``panel_bytes`` pins the width of a shared-memory panel (16 for the core-matrix columns
    of an unswizzled wgmma operand); 0 leaves it to the swizzle. ``first_multiples`` says what the first index along
    each axis is a multiple of (0: it is 0); empty where tiles begin at multiples of their extents. ``padded`` lets the
    last swizzled panel of a load reach beyond the tile: its copy brings more columns, which lie in no element's place.
    """

    dtype: DType
    shape: tuple[Expr | int, ...]
    strides: tuple[Expr | int, ...]
    address: Expr | int
    tile: tuple[int | None, ...]
    direction: Direction = Direction.LOAD
    swizzles: tuple[Swizzle, ...] = ()
    panel_bytes: int = 0
    oob_fill: OobFill = OobFill.NONE
    name: str = "tensor"
    first_multiples: tuple[int, ...] = ()
    padded: bool = False

    def __post_init__(self) -> None:
        assert len(self.shape) == len(self.strides) == len(self.tile), self
        assert len(self.first_multiples) in (0, len(self.shape)), self

    def first_multiple(self, axis: int) -> int:
        """A known divisor of the first index along ``axis``; 0 if the tile begins at index 0."""
        if self.first_multiples:
            return self.first_multiples[axis]
        extent, tile = expr(self.shape[axis]).constant, self.tile[axis] or 1
        return 0 if extent is not None and extent <= tile else tile


@dataclass(frozen=True)
class Box:
    """One copy of a tile: ``start`` is added to the tile's first coordinate, per descriptor dimension; the bytes land
    at ``shared_offset_bytes`` of the tile."""

    start: tuple[int, ...]
    shared_offset_bytes: int


@dataclass(frozen=True)
class TensorMapPlan:
    """A tensor map and the copies of one tile through it.

    Dimensions are innermost first. ``dims`` (elements) and ``strides`` (bytes, ``rank - 1`` entries) are expressions
    over the tensor's symbols, evaluated at launch and passed to ``cuTensorMapEncodeTiled`` with ``address``.
    ``coordinates`` give the tile's first coordinate in each dimension over ``$index0, $index1, ...``, the first index
    of the tile (or the index taken) along each tensor axis. ``tile_axes`` names the tensor axis of every kept
    descriptor dimension, in the order of ``shared.extents``. ``guard`` must hold at launch. The tile's first
    coordinate in dimension 0 must be a multiple of ``first_multiple`` (0: it must be 0), since copies must begin at
    16-byte units. ``ragged_axis`` is the tensor axis along which the last two dimensions let copies end
    (``legal.ragged``).
    """

    data_type: DataType
    address: Expr
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: Swizzle
    coordinates: tuple[Expr, ...]
    tile_axes: tuple[int, ...]
    boxes: tuple[Box, ...]
    shared: SmemTile
    direction: Direction
    first_multiple: int
    guard: Expr = TRUE
    interleave: Interleave = Interleave.NONE
    l2_promotion: L2Promotion = L2Promotion.L2_128B
    oob_fill: OobFill = OobFill.NONE
    ragged_axis: int | None = None

    @property
    def rank(self) -> int:
        """Descriptor dimensions."""
        return len(self.dims)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Always 1: a stride between elements is part of ``strides``."""
        return (1,) * self.rank

    @property
    def box_bytes(self) -> int:
        """Bytes one copy moves; out-of-bounds elements count."""
        return prod(self.box) * self.shared.element_bytes

    @property
    def tx_bytes(self) -> int:
        """Bytes all copies of the tile complete on their barrier."""
        return self.box_bytes * len(self.boxes)

    @property
    def completion(self) -> CompletionMechanism:
        """How completion of the copies is observed."""
        return CompletionMechanism.MBARRIER if self.direction is Direction.LOAD else CompletionMechanism.BULK_GROUP


@dataclass(frozen=True)
class _DescriptorDimension:
    """One descriptor dimension while it is built: ``axes`` are the tensor axes folded into it."""

    axes: tuple[int, ...]
    extent: Expr
    stride: Expr
    coordinate: Expr
    tile: int


@dataclass(frozen=True)
class Shortfall:
    """Why no direct plan exists for one choice of axes."""

    core: tuple[Violation, ...]


@dataclass(frozen=True)
class Candidates:
    """Every direct plan, best first, and separately the plans that need an unproved alignment, with that alignment."""

    plans: tuple[TensorMapPlan, ...]
    conditional: tuple[tuple[TensorMapPlan, tuple[ResidualRule, ...]], ...] = ()
    core: tuple[Violation, ...] = field(default=())


def plan(access: TileAccess, facts: Facts | None = None, target: Target = SM90A) -> Legality[TensorMapPlan]:
    """The best legal tensor map for ``access``, or the minimal reason why there is none.

    Legal means: every rule of the table follows from ``facts``, except limits on sizes, which the plan's ``guard``
    states. An alignment that is merely unknown is not legal; ``candidates`` returns such plans with their conditions.
    """
    found = candidates(access, facts, target, limit=1)
    if found.plans:
        return Legal(found.plans[0])
    return Illegal(found.core)


def candidates(access: TileAccess, facts: Facts | None = None, target: Target = SM90A, limit: int = 4) -> Candidates:
    """Up to ``limit`` direct plans for ``access``, in the order of its swizzles."""
    known = facts or Facts()
    data_type = DATA_TYPES[access.dtype.name]
    dimensions = _dimensions(access, known)
    if isinstance(dimensions, Shortfall):
        return Candidates((), (), dimensions.core)
    plans: list[TensorMapPlan] = []
    conditional: list[tuple[TensorMapPlan, tuple[ResidualRule, ...]]] = []
    core: tuple[Violation, ...] = ()
    for swizzle, panel in _panels(access, dimensions):
        if len(plans) == limit:
            break
        draft = _draft(access, known, data_type, dimensions, swizzle, panel)
        decision = decide_rules(request_fields(draft), known, target)
        unmet = decision.unmet
        refused = tuple(u.violation for u in unmet if u.residual == FALSE)
        if not unmet:
            plans.append(replace(draft, guard=decision.guard))
        elif not refused:
            condition = all_of((decision.guard, *(u.residual for u in unmet)))
            conditional.append((replace(draft, guard=condition), unmet))
            core = core or tuple(u.violation for u in unmet)
        else:
            core = refused
    if not plans and not conditional and not core:
        core = (inner_bytes(access.dtype, access.swizzles, dimensions[0].tile),)
    return Candidates(tuple(plans), tuple(conditional[:limit]), core)


def _dimensions(access: TileAccess, facts: Facts) -> tuple[_DescriptorDimension, ...] | Shortfall:
    """Descriptor dimensions in order: the dense axis, the other tile axes from last to first, dropped axes."""
    kept: list[_DescriptorDimension] = []
    dropped: list[_DescriptorDimension] = []
    for axis, (extent, stride, tile) in enumerate(zip(access.shape, access.strides, access.tile, strict=True)):
        size, step = facts.apply(expr(extent)), facts.apply(expr(stride))
        entry = _DescriptorDimension((axis,), size, step, index_symbol(axis), 1 if tile is None else tile)
        if tile is None and (size.constant == 1 or step.constant == 0):
            continue  # one index of one element, or of elements that are all the same: nothing to address
        if tile == 1 and step.constant == 0:
            entry = _DescriptorDimension((axis,), Const(1), step, Const(0), tile)  # every index reads the same elements
        (dropped if tile is None else kept).append(entry)
    size = prod(d.tile for d in kept) * access.dtype.bytes
    if size > MAX_SMEM_TILE_BYTES:
        return Shortfall((smem_bytes(size),))
    dense = [d for d in kept if facts.decide(d.stride.eq(1))]
    inner = next((d for d in reversed(dense) if d.tile > 1), dense[-1] if dense else None)
    if inner is None:
        return Shortfall((no_dense_axis([d.stride for d in kept]),))
    others = [d for d in reversed(kept) if d is not inner]
    merged = _merge([*others, *reversed(dropped)], MAX_RANK - 1)
    if len(merged) >= MAX_RANK:
        return Shortfall((too_many_dimensions(len(merged) + 1),))
    return (inner, *merged)


def _merge(dimensions: list[_DescriptorDimension], room: int) -> list[_DescriptorDimension]:
    """Fold dimensions of box one whose strides nest, until at most ``room`` are left."""
    result = list(dimensions)
    while len(result) > room:
        pair = next(
            (
                (low, high)
                for low, high in product(result, result)
                if low is not high and low.tile == high.tile == 1 and high.stride == low.stride * low.extent
            ),
            None,
        )
        if pair is None:
            return result
        low, high = pair
        folded = _DescriptorDimension(
            low.axes + high.axes,
            low.extent * high.extent,
            low.stride,
            high.coordinate * low.extent + low.coordinate,
            1,
        )
        result[result.index(low)] = folded
        result.remove(high)
    return result


def _panels(access: TileAccess, dimensions: tuple[_DescriptorDimension, ...]) -> Iterable[tuple[Swizzle, int]]:
    """Swizzles with the panel width, in elements, that each admits for the tile's inner extent.

    A swizzled panel is exactly one span wide, so that rows lie densely, and the tile is whole panels unless it may be
    padded; without swizzle the row is cut into the fewest equal panels of at most 256 elements.
    """
    padded = access.padded and access.direction is Direction.LOAD
    size = access.dtype.bytes
    inner = dimensions[0].tile
    wanted = access.swizzles or (Swizzle.B128, Swizzle.B64, Swizzle.B32, Swizzle.NONE)
    if not access.swizzles and all(d.tile == 1 for d in dimensions[1:]):
        wanted = (Swizzle.NONE, *wanted[:-1])  # a single row has no banks to spread
    for swizzle in wanted:
        span = PATTERNS[swizzle].span_bytes
        if span:
            whole = inner * size % span == 0 or (padded and inner * size > span)
            if whole and (not access.panel_bytes or access.panel_bytes == span):
                yield swizzle, span // size
        elif access.panel_bytes:
            if access.panel_bytes % INNER_BOX_ALIGN_BYTES == 0 and inner * size % access.panel_bytes == 0:
                yield swizzle, access.panel_bytes // size
        else:
            equal = (inner // n for n in range(-(-inner // MAX_BOX_EXTENT), inner + 1) if inner % n == 0)
            panel = next((p for p in equal if p * size % INNER_BOX_ALIGN_BYTES == 0), None)
            if panel is not None:
                yield swizzle, panel


def _draft(
    access: TileAccess,
    facts: Facts,
    data_type: DataType,
    dimensions: tuple[_DescriptorDimension, ...],
    swizzle: Swizzle,
    panel: int,
) -> TensorMapPlan:
    """The plan for one swizzle, its guard still open."""
    size = access.dtype.bytes
    kept = [d for d in dimensions if access.tile[d.axes[0]] is not None]
    shared = SmemTile(tuple(d.tile for d in kept), panel, size, swizzle)
    box, boxes = _cut(shared, len(dimensions))
    return TensorMapPlan(
        data_type,
        facts.apply(expr(access.address)),
        tuple(d.extent for d in dimensions),
        tuple(d.stride * size for d in dimensions[1:]),
        box,
        swizzle,
        tuple(d.coordinate for d in dimensions),
        tuple(d.axes[0] for d in kept),
        boxes,
        shared,
        access.direction,
        access.first_multiple(dimensions[0].axes[0]),
        oob_fill=access.oob_fill,
    )


def _cut(shared: SmemTile, rank: int) -> tuple[tuple[int, ...], tuple[Box, ...]]:
    """Box extents and the copies that fill ``shared``.

    The innermost axis is cut into panels. An axis longer than 256 is cut into equal parts; the axes outside it then
    get a box of one, or the parts of a box would not be contiguous in the panel.
    """
    box = [shared.panel]
    for extent in shared.extents[1:]:
        whole = all(b == e for b, e in zip(box[1:], shared.extents[1:], strict=False))
        box.append(_largest_part(extent) if whole else 1)
    steps = [range(0, extent, part) for extent, part in zip(shared.extents, box, strict=True)]
    boxes: list[Box] = []
    for start in product(*reversed(steps)):
        at = tuple(reversed(start))
        boxes.append(Box((*at, *(0,) * (rank - len(at))), shared.logical_offset(at)))
    boxes.sort(key=lambda b: b.shared_offset_bytes)
    return (*box, *(1,) * (rank - len(box))), tuple(boxes)


def _largest_part(extent: int) -> int:
    """The largest divisor of ``extent`` that a box admits."""
    return next(extent // parts for parts in range(1, extent + 1) if extent % parts == 0 and extent // parts <= 256)


def request_fields(draft: TensorMapPlan) -> dict[str, Expr]:
    """The plan's fields as rules name them. The tile starts at an aligned address, so the copies' own addresses are as
    aligned as the greatest common divisor of their offsets; the same holds for their coordinates in dimension 0."""
    fields: dict[str, Expr] = {
        "tensor_data_type": Const(int(draft.data_type)),
        "tensor_rank": Const(draft.rank),
        "global_address": draft.address,
        "descriptor_address": Const(0),
        "interleave": Const(int(draft.interleave)),
        "swizzle": Const(int(draft.swizzle)),
        "l2_promotion": Const(int(draft.l2_promotion)),
        "oob_fill": Const(int(draft.oob_fill)),
        "direction": Const(int(draft.direction)),
        "shared_address": Const(gcd(*(b.shared_offset_bytes for b in draft.boxes))),
    }
    for i in range(MAX_RANK):
        used = i < draft.rank
        fields[f"global_dim_{i}"] = draft.dims[i] if used else Const(1)
        fields[f"box_dim_{i}"] = Const(draft.box[i] if used else 1)
        fields[f"element_stride_{i}"] = Const(1)
        fields[f"start_coordinate_{i}"] = Const(0)
        if i:
            fields[f"global_stride_{i - 1}"] = draft.strides[i - 1] if used else Const(0)
    fields["start_coordinate_0"] = Const(gcd(draft.first_multiple, *(b.start[0] for b in draft.boxes)))
    return fields
