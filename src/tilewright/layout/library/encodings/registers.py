"""Encodings of tiles in registers: register, lane, warp and CTA onto the tensor."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.diag import fail
from tilewright.hw import fragments as facts
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library.encodings.builder import (
    ONE_CTA,
    Builder,
    CtaSplit,
    Encoding,
    Shape,
    fast_last,
    of_threads,
)


@dataclass(frozen=True)
class Blocked:
    """Vectors per thread, dealt to lanes, then to warps, then repeated; ``order`` lists dimensions, fastest first."""

    per_thread: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]
    cluster: CtaSplit = ONE_CTA

    def layout(self, shape: Shape) -> F2Layout:
        """register, lane, warp, block onto the tensor."""
        builder = of_threads(shape, self.cluster)
        for axis, shares in (("register", self.per_thread), ("lane", self.lanes), ("warp", self.warps)):
            for dim in self.order:
                builder.add(axis, dim, shares[dim])
        builder.fill("register", self.order)
        return builder.result(self.cluster, shape)

    def operand(self, shape: Shape, index: int) -> F2Layout:
        """Operand ``index`` of a dot computed by FMA: every thread holds all of k, threads along k hold copies."""
        k = len(shape) - 1 - index
        builder = of_threads(shape, self.cluster)
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
    cluster: CtaSplit = ONE_CTA

    def _warps(self, builder: Builder, copies_along: int | None) -> None:
        # mma.sync deals warps along the last dimension first, wgmma's warps run down the rows
        order = range(len(self.warps)) if self.version == 3 else fast_last(len(self.warps))
        for dim in order:
            if dim == copies_along:
                builder.copies("warp", self.warps[dim])
            else:
                builder.add("warp", dim, self.warps[dim])

    def layout(self, shape: Shape) -> F2Layout:
        """The accumulator: register, lane, warp, block onto the tensor."""
        rank = len(shape)
        builder = of_threads(shape, self.cluster)
        n = self.instruction[1] if self.version == 3 else self.instruction[-1]
        self._tile(builder, rank - 1, rank - 2, 2, n, 16)
        self._warps(builder, None)
        builder.fill("register", fast_last(rank))
        return builder.result(self.cluster, shape)

    def operand(self, shape: Shape, index: int, k_width: int) -> F2Layout:
        """Register operand ``index`` of a dot: ``k_width`` consecutive elements along k per lane."""
        rank = len(shape)
        k, other = (rank - 1, rank - 2) if index == 0 else (rank - 2, rank - 1)
        builder = of_threads(shape, self.cluster)
        self._tile(builder, k, other, k_width, 8 * k_width, 16 if index == 0 else 8)
        self._warps(builder, k)
        builder.fill("register", [k, other, *fast_last(rank - 2)])
        return builder.result(self.cluster, shape)

    @staticmethod
    def _tile(builder: Builder, fast: int, slow: int, width: int, fast_size: int, slow_size: int) -> None:
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
    cluster: CtaSplit = ONE_CTA

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
    cluster: CtaSplit = ONE_CTA

    def layout(self, shape: Shape) -> F2Layout:
        """The accumulator: register, lane, warp, block onto the tensor."""
        fragment = _amd_fragment(facts.WMMA_ACCUMULATOR.get(self.version), self.version)
        return _amd_accumulator(fragment, shape, self.warps, (), self.transposed, self.cluster)

    def operand(self, shape: Shape, index: int, k_width: int) -> F2Layout:
        """Operand ``index`` of a dot; gfx11 holds it twice, once per half wave."""
        groups = 1 if self.version == 1 else 2
        return _amd_operand(shape, self.warps, (), index, k_width, 16, groups, self.cluster, copies=2 // groups)


def _amd_fragment(fragment: facts.FragmentAtom | None, what: object) -> facts.FragmentAtom:
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
    fragment: facts.FragmentAtom,
    shape: Shape,
    warps: Shape,
    tiles: Shape,
    transposed: bool,
    cluster: CtaSplit,
) -> F2Layout:
    rank = len(shape)
    builder = of_threads(shape, cluster)
    m, n = (rank - 1, rank - 2) if transposed else (rank - 2, rank - 1)
    builder.fragment({"register": fragment.register, "lane": fragment.lane}, (m, n), fragment.shape)
    for dim in fast_last(rank):
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
    cluster: CtaSplit,
    copies: int = 1,
) -> F2Layout:
    """``k_width`` elements along k per lane, ``lanes`` lanes along the other dimension, ``groups`` of them along k."""
    rank = len(shape)
    k, other = (rank - 1, rank - 2) if index == 0 else (rank - 2, rank - 1)
    builder = of_threads(shape, cluster)
    builder.add("register", k, k_width)
    builder.add("lane", other, lanes)
    builder.add("lane", k, groups)
    builder.copies("lane", copies)
    builder.fill("register", [k])
    builder.add("register", other, tiles[other] if tiles else 1)
    for dim in fast_last(rank):
        if dim == k:
            builder.copies("warp", warps[dim])
        else:
            builder.add("warp", dim, warps[dim])
    builder.fill("register", [other, *fast_last(rank - 2)])
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
