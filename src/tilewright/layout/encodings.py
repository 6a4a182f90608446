"""Distributed layouts of whole tiles as F2 layouts: who holds what, for warps, CTAs and shapes that are powers of two.

An instruction's tile is extended over the tensor in a fixed order: tiles of one warp, then warps, then repeats of the
whole; each dimension by itself. A tile larger than the tensor is cut: the bits beyond it hold copies (zero bases).
Conventions (bit order, which copies are kept) are those of Triton's linear layouts, so that tables can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tilewright.diag import fail
from tilewright.hw import fragments as facts
from tilewright.layout.checks import log2_size
from tilewright.layout.f2 import F2Layout

Shape: TypeAlias = Sequence[int]


class Encoding(Protocol):
    """Something that says where a tensor of a given shape lives."""

    def layout(self, shape: Shape) -> F2Layout:
        """The F2 layout onto dim0, dim1, ... of ``shape``."""
        ...


@dataclass(frozen=True)
class Cluster:
    """How CTAs of a cluster share a tensor: ``ctas`` per dimension, of which ``split`` hold different parts; ``order``
    lists the dimensions, fastest CTA bits first. Empty: one CTA."""

    ctas: tuple[int, ...] = ()
    split: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def parts(self, shape: Shape) -> list[int]:
        """Into how many parts each dimension is cut."""
        return [min(self.split[d], shape[d]) if self.split else 1 for d in range(len(shape))]


@dataclass
class _Builder:
    """Columns being collected: each new bit of a dimension is worth its extent so far."""

    shape: Shape
    extents: list[int] = field(default_factory=list[int])
    bases: dict[str, list[tuple[int, ...]]] = field(default_factory=dict[str, list[tuple[int, ...]]])

    def __post_init__(self) -> None:
        for dim, size in enumerate(self.shape):
            log2_size(size, f"extent of dim{dim}")
        self.extents = [1] * len(self.shape)

    def axis(self, *names: str) -> None:
        """Declare input axes in order."""
        for name in names:
            self.bases.setdefault(name, [])

    def add(self, axis: str, dim: int, size: int) -> None:
        """``size`` coordinates of ``axis`` run along ``dim``, above what is there; cut at the shape."""
        for _ in range(log2_size(size, f"share of {axis}")):
            worth = self.extents[dim]
            basis = [0] * len(self.shape)
            basis[dim] = worth if worth < self.shape[dim] else 0
            self.bases[axis].append(tuple(basis))
            self.extents[dim] *= 2

    def copies(self, axis: str, size: int) -> None:
        """``size`` coordinates of ``axis`` hold the same."""
        self.bases[axis] += [(0,) * len(self.shape)] * log2_size(size, f"share of {axis}")

    def fragment(self, bases: dict[str, facts.Bases], dims: Sequence[int], extents: Sequence[int]) -> None:
        """An instruction's tile, its dimensions renamed to ``dims``."""
        for axis, rows in bases.items():
            for row in rows:
                basis = [0] * len(self.shape)
                for dim, worth in zip(dims, row, strict=True):
                    basis[dim] = worth if worth < self.shape[dim] else 0
                self.bases[axis].append(tuple(basis))
        for dim, size in zip(dims, extents, strict=True):
            self.extents[dim] *= size

    def fill(self, axis: str, dims: Sequence[int]) -> None:
        """``axis`` runs over what is left of each dimension, in order."""
        for dim in dims:
            if self.extents[dim] < self.shape[dim]:
                self.add(axis, dim, self.shape[dim] // self.extents[dim])

    def result(self, cluster: Cluster, shape: Shape) -> F2Layout:
        """The layout over the whole tensor of ``shape``, CTAs above what one CTA holds."""
        self.shape = shape
        self.extents = [s // p for s, p in zip(shape, cluster.parts(shape), strict=True)]
        self.axis("block")
        for dim in cluster.order:
            self.add("block", dim, cluster.split[dim])
            self.copies("block", cluster.ctas[dim] // cluster.split[dim])
        return F2Layout.of(self.bases, {f"dim{d}": s for d, s in enumerate(shape)})


def _threads(shape: Shape, cluster: Cluster) -> _Builder:
    builder = _Builder([s // p for s, p in zip(shape, cluster.parts(shape), strict=True)])
    builder.axis("register", "lane", "warp")
    return builder


def _fast_last(rank: int) -> list[int]:
    return list(reversed(range(rank)))


# -- register encodings ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocked:
    """Vectors per thread, dealt to lanes, then to warps, then repeated; ``order`` lists dimensions, fastest first."""

    per_thread: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]
    cluster: Cluster = Cluster()

    def layout(self, shape: Shape) -> F2Layout:
        """register, lane, warp, block onto the tensor."""
        builder = _threads(shape, self.cluster)
        for axis, shares in (("register", self.per_thread), ("lane", self.lanes), ("warp", self.warps)):
            for dim in self.order:
                builder.add(axis, dim, shares[dim])
        builder.fill("register", self.order)
        return builder.result(self.cluster, shape)

    def operand(self, shape: Shape, index: int) -> F2Layout:
        """Operand ``index`` of a dot computed by FMA: every thread holds all of k, threads along k hold copies."""
        k = len(shape) - 1 - index
        builder = _threads(shape, self.cluster)
        for dim in self.order:
            builder.add("register", dim, builder.shape[dim] if dim == k else self.per_thread[dim])
        for axis, shares in (("lane", self.lanes), ("warp", self.warps)):
            for dim in self.order:
                if dim == k:
                    builder.copies(axis, shares[dim])
                else:
                    builder.add(axis, dim, shares[dim])
        builder.fill("register", self.order)
        return builder.result(self.cluster, shape)


@dataclass(frozen=True)
class Mma:
    """Tensor-core tiles of NVIDIA: version 2 (mma.sync m16n8) and 3 (wgmma); ``instruction`` ends in (m, n[, k])."""

    version: int
    instruction: tuple[int, ...]
    warps: tuple[int, ...]
    cluster: Cluster = Cluster()

    def _warps(self, builder: _Builder, copies_along: int | None) -> None:
        # mma.sync deals warps along the last dimension first, wgmma's warps run down the rows
        order = range(len(self.warps)) if self.version == 3 else _fast_last(len(self.warps))
        for dim in order:
            if dim == copies_along:
                builder.copies("warp", self.warps[dim])
            else:
                builder.add("warp", dim, self.warps[dim])

    def layout(self, shape: Shape) -> F2Layout:
        """The accumulator: register, lane, warp, block onto the tensor."""
        rank = len(shape)
        builder = _threads(shape, self.cluster)
        n = self.instruction[1] if self.version == 3 else self.instruction[-1]
        self._tile(builder, rank - 1, rank - 2, 2, n, 16)
        self._warps(builder, None)
        builder.fill("register", _fast_last(rank))
        return builder.result(self.cluster, shape)

    def operand(self, shape: Shape, index: int, k_width: int) -> F2Layout:
        """Register operand ``index`` of a dot: ``k_width`` consecutive elements along k per lane."""
        rank = len(shape)
        k, other = (rank - 1, rank - 2) if index == 0 else (rank - 2, rank - 1)
        builder = _threads(shape, self.cluster)
        self._tile(builder, k, other, k_width, 8 * k_width, 16 if index == 0 else 8)
        self._warps(builder, k)
        builder.fill("register", [k, other, *_fast_last(rank - 2)])
        return builder.result(self.cluster, shape)

    @staticmethod
    def _tile(builder: _Builder, fast: int, slow: int, width: int, fast_size: int, slow_size: int) -> None:
        """Quads of lanes along ``fast``, eight of them along ``slow`` (PTX ISA, mma fragments)."""
        builder.add("register", fast, width)
        builder.add("lane", fast, 4)
        builder.add("lane", slow, 8)
        builder.add("register", slow, slow_size // 8)
        builder.add("register", fast, fast_size // (4 * width))


@dataclass(frozen=True)
class Mfma:
    """AMD matrix-core tiles, waves of 64 lanes. ``tiles`` is the tiles per wave and dimension (empty: one)."""

    instruction: tuple[int, ...]
    warps: tuple[int, ...]
    transposed: bool = False
    tiles: tuple[int, ...] = ()
    element_bits: int = 32
    cluster: Cluster = Cluster()

    def layout(self, shape: Shape) -> F2Layout:
        """The accumulator: register, lane, warp, block onto the tensor."""
        table = facts.MFMA_ACCUMULATOR_64 if self.element_bits == 64 else facts.MFMA_ACCUMULATOR
        m, n = self.instruction[:2]
        fragment = _amd_fragment(table.get((m, n)), (m, n))
        return _amd_accumulator(fragment, shape, self.warps, self.tiles, self.transposed, self.cluster)

    def operand(self, shape: Shape, index: int, k_width: int) -> F2Layout:
        """Operand ``index`` of a dot."""
        lanes = self.instruction[index]
        return _amd_operand(shape, self.warps, self.tiles, index, k_width, lanes, 64 // lanes, self.cluster)


@dataclass(frozen=True)
class Wmma:
    """AMD WMMA tiles of 16 x 16, waves of 32 lanes. ``version`` 1: gfx11, 2: gfx12, 3: gfx1250."""

    version: int
    warps: tuple[int, ...]
    transposed: bool = False
    cluster: Cluster = Cluster()

    def layout(self, shape: Shape) -> F2Layout:
        """The accumulator: register, lane, warp, block onto the tensor."""
        fragment = _amd_fragment(facts.WMMA_ACCUMULATOR.get(self.version), self.version)
        return _amd_accumulator(fragment, shape, self.warps, (), self.transposed, self.cluster)

    def operand(self, shape: Shape, index: int, k_width: int) -> F2Layout:
        """Operand ``index`` of a dot; gfx11 holds it twice, once per half wave."""
        groups = 1 if self.version == 1 else 2
        return _amd_operand(shape, self.warps, (), index, k_width, 16, groups, self.cluster, copies=2 // groups)


def _amd_fragment(fragment: facts.Fragment | None, what: object) -> facts.Fragment:
    if fragment is None:
        fail(
            "LAY014",
            found=f"matrix instruction {what}",
            required=f"MFMA {sorted(facts.MFMA_ACCUMULATOR)} or WMMA version {sorted(facts.WMMA_ACCUMULATOR)}",
            source="AMD MI300 and RDNA ISA documents",
            help="choose an instruction of the table",
        )
    return fragment


def _amd_accumulator(
    fragment: facts.Fragment,
    shape: Shape,
    warps: Shape,
    tiles: Shape,
    transposed: bool,
    cluster: Cluster,
) -> F2Layout:
    rank = len(shape)
    builder = _threads(shape, cluster)
    m, n = (rank - 1, rank - 2) if transposed else (rank - 2, rank - 1)
    builder.fragment({"register": fragment.register, "lane": fragment.lane}, (m, n), fragment.shape)
    for dim in _fast_last(rank):
        builder.add("register", dim, tiles[dim] if tiles else 1)
        builder.add("warp", dim, warps[dim])
        builder.fill("register", [dim])
    return builder.result(cluster, shape)


def _amd_operand(
    shape: Shape,
    warps: Shape,
    tiles: Shape,
    index: int,
    k_width: int,
    lanes: int,
    groups: int,
    cluster: Cluster,
    copies: int = 1,
) -> F2Layout:
    """``k_width`` elements along k per lane, ``lanes`` lanes along the other dimension, ``groups`` of them along k."""
    rank = len(shape)
    k, other = (rank - 1, rank - 2) if index == 0 else (rank - 2, rank - 1)
    builder = _threads(shape, cluster)
    builder.add("register", k, k_width)
    builder.add("lane", other, lanes)
    builder.add("lane", k, groups)
    builder.copies("lane", copies)
    builder.fill("register", [k])
    builder.add("register", other, tiles[other] if tiles else 1)
    for dim in _fast_last(rank):
        if dim == k:
            builder.copies("warp", warps[dim])
        else:
            builder.add("warp", dim, warps[dim])
    builder.fill("register", [other, *_fast_last(rank - 2)])
    return builder.result(cluster, shape)


@dataclass(frozen=True)
class Operand:
    """Operand ``index`` of a dot whose result is laid out as ``parent``."""

    parent: Blocked | Mma | Mfma | Wmma
    index: int
    k_width: int = 0

    def layout(self, shape: Shape) -> F2Layout:
        """register, lane, warp, block onto the tensor."""
        if isinstance(self.parent, Blocked):
            return self.parent.operand(shape, self.index)
        return self.parent.operand(shape, self.index, self.k_width)


@dataclass(frozen=True)
class Sliced:
    """``parent`` with dimension ``dim`` reduced away; registers that only held copies are dropped."""

    parent: Encoding
    dim: int

    def layout(self, shape: Shape) -> F2Layout:
        """register, lane, warp, block onto the tensor without ``dim``."""
        whole = self.parent.layout([*shape[: self.dim], 1, *shape[self.dim :]])
        kept = [n for d, n in enumerate(whole.out_names) if d != self.dim]
        flat = whole.sublayout(whole.in_names, kept).rename(outs={n: f"dim{d}" for d, n in enumerate(kept)})
        registers = tuple(c for c in flat.axis_columns("register") if c)
        ins = tuple((n, len(registers) if n == "register" else b) for n, b in flat.ins)
        rest = tuple(c for n in flat.in_names if n != "register" for c in flat.axis_columns(n))
        return F2Layout(ins, flat.outs, registers + rest)


# -- memory encodings -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SwizzledShared:
    """Rows of the fastest dimension; vectors of ``vector`` elements are xored with the row's phase, ``row //
    per_phase % max_phase``. With ``rotating`` (AMD) the phase is also xored with the number of its repetition."""

    vector: int
    per_phase: int
    max_phase: int
    order: tuple[int, ...]
    rotating: bool = False
    cluster: Cluster = Cluster()

    def layout(self, shape: Shape) -> F2Layout:
        """offset, block onto the tensor."""
        builder = _Builder([s // p for s, p in zip(shape, self.cluster.parts(shape), strict=True)])
        builder.axis("offset")
        builder.fill("offset", self.order)
        if len(shape) > 1:
            fast, slow = self.order[:2]
            columns = builder.shape[fast]
            for i, basis in enumerate(builder.bases["offset"]):
                if row := basis[slow]:
                    swizzled = list(basis)
                    swizzled[fast] = self.vector * self._phase(row) % columns
                    builder.bases["offset"][i] = tuple(swizzled)
        return builder.result(self.cluster, shape)

    def _phase(self, row: int) -> int:
        phase = row // self.per_phase % self.max_phase
        if self.rotating:
            phase ^= row // self.per_phase // self.max_phase % self.max_phase
        return phase


@dataclass(frozen=True)
class TmaShared:
    """What TMA writes with a 32, 64 or 128 byte swizzle (0: none): boxes as wide as the swizzle, one after the other.

    ``transposed``: the first dimension is the contiguous one.
    """

    swizzle_bytes: int
    element_bits: int
    transposed: bool = False
    cluster: Cluster = Cluster()

    def layout(self, shape: Shape) -> F2Layout:
        """offset, block onto the tensor."""
        rank = len(shape)
        builder = _Builder([s // p for s, p in zip(shape, self.cluster.parts(shape), strict=True)])
        builder.axis("offset")
        # dimensions, fastest first: the contiguous one, then the others from the last to the first
        order = [0, *reversed(range(1, rank))] if self.transposed else _fast_last(rank)
        box = [min(s, 256) for s in builder.shape]
        if self.swizzle_bytes:
            box[order[0]] = min(box[order[0]], self.swizzle_bytes * 8 // self.element_bits)
        for dim in order:
            builder.add("offset", dim, box[dim])
        self._swizzle(builder, order[0], box[order[0]])
        builder.fill("offset", range(rank))
        return builder.result(self.cluster, shape)

    def _swizzle(self, builder: _Builder, fast: int, width: int) -> None:
        """Row bits (by address: bits 7, 8, 9) move 16-byte vectors (bits 4, 5, 6)."""
        if not self.swizzle_bytes:
            return
        vector = 128 // self.element_bits
        if width * self.element_bits != self.swizzle_bytes * 8:
            fail(
                "LAY012",
                found=f"rows of {width * self.element_bits // 8} B",
                required=f"rows of at least {self.swizzle_bytes} B",
                source="PTX ISA 9.1, 5.5.7",
                help="use a narrower swizzle or a wider tile",
            )
        line = 1024 // self.element_bits  # elements of 128 bytes, where address bit 7 starts
        first = line.bit_length() - 1
        columns = builder.bases["offset"]
        for i in range((self.swizzle_bytes // 16).bit_length() - 1):
            if first + i >= len(columns):
                fail(
                    "LAY012",
                    found=f"{len(columns)} offset bits",
                    required=f"at least {first + i + 1}",
                    source="PTX ISA 9.1, 5.5.7",
                    help="a swizzled tile needs a whole period",
                )
            basis = list(columns[first + i])
            basis[fast] ^= vector << i
            columns[first + i] = tuple(basis)


@dataclass(frozen=True)
class TensorMemory:
    """Blackwell's TMEM: ``row`` (128 lanes) and ``column``, for accumulator blocks of 64 or 128 rows.

    Blocks of 64 rows use lanes 0-15 of each quarter; the next block, along rows first, uses lanes 16-31.
    """

    block_m: int
    block_n: int

    def layout(self, shape: Shape) -> F2Layout:
        """row, col, block onto the tensor."""
        builder = _Builder(shape)
        builder.axis("row", "col")
        if self.block_m == 64:
            builder.add("row", 0, 16)
            builder.extents[0] = 64
            builder.extents[1] = self.block_n
            if shape[0] > 64:
                builder.add("row", 0, 2)
            elif shape[1] > self.block_n:
                builder.add("row", 1, 2)
            else:
                builder.copies("row", 2)
            builder.bases["row"] += [(16, 0), (32, 0)]
            above = builder.extents[1]
            builder.extents[1] = 1
            builder.add("col", 1, self.block_n)
            builder.extents[1] = above
        else:
            builder.add("row", 0, self.block_m)
            builder.add("col", 1, self.block_n)
        builder.fill("col", range(len(shape)))
        return builder.result(Cluster(), shape)
