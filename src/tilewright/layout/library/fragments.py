"""Register layouts of the hardware's fragments, from the tables in ``hw.target``.

Elements are counted singly: the f16 pair that shares a 32-bit register is registers 2k and 2k+1 of the layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.diag import fail
from tilewright.hw.fragments import FragmentAtom
from tilewright.hw.target import sm_80, sm_90a, sm_100a
from tilewright.layout.checks import extent
from tilewright.layout.f2 import F2Layout
from tilewright.layout.register import RegisterLayout, Repeat


def atom(fragment: FragmentAtom, warps: Sequence[Sequence[int]] = ()) -> F2Layout:
    """The fragment as an F2 layout onto dim0, dim1, ...; ``warps`` adds bases for further warp bits."""
    outs = {f"dim{d}": size for d, size in enumerate(fragment.shape)}
    more = [tuple(basis) for basis in warps]
    for basis in more:
        for d, value in enumerate(basis):
            outs[f"dim{d}"] = max(outs[f"dim{d}"], 2 * value)
    bases = {"register": fragment.register, "lane": fragment.lane, "warp": (*fragment.warp, *more)}
    return F2Layout.of(bases, outs)


def _tiled(fragment: FragmentAtom, shape: tuple[int, ...], order: Sequence[int]) -> RegisterLayout:
    """The fragment repeated over ``shape``, repeats in ``order``, fastest first."""
    for size, step, dim in zip(shape, fragment.shape, fragment.dims, strict=True):
        if extent(size, f"extent of {dim}") % step:
            fail(
                "LAY014",
                title=f"{fragment.name} does not tile {dim}",
                found=f"{dim} = {size}",
                required=f"{dim} % {step} == 0",
                source=fragment.source,
                help=f"round {dim} up to {-(-size // step) * step}",
            )
    repeats = [Repeat(d, shape[d] // fragment.shape[d], fragment.shape[d]) for d in order]
    return RegisterLayout(shape, atom(fragment), tuple(r for r in repeats if r.count > 1))


def wgmma_accumulator(m: int, n: int, *, warpgroups: int = 1) -> RegisterLayout:
    """D of wgmma over an m x n tile held by ``warpgroups`` (a power of two), each of which holds m/warpgroups rows.

    Register = pair (n) + 2 * half (8 rows) + 4 * (n / 8) + n/2 * (64-row block): the registers of the instruction for
    block i are n/2*i .. n/2*(i+1)-1.
    """
    return _warpgroup_tile(sm_90a.WGMMA_ACCUMULATOR, m, n, warpgroups)


def wgmma_operand_a(m: int, k: int, element_bits: int, *, warpgroups: int = 1) -> RegisterLayout:
    """Register operand A of wgmma over an m x k tile: per 64-row block the k steps follow one another."""
    fragment = sm_90a.WGMMA_A.get(element_bits)
    if fragment is None:
        fail(
            "LAY014",
            title="wgmma has no register operand of this width",
            found=f"{element_bits} bits",
            required=f"one of {sorted(sm_90a.WGMMA_A)}",
            source="PTX ISA 9.1, 9.7.15.5.1.1",
            help="convert the operand to 8, 16 or 32 (tf32) bits",
        )
    return _warpgroup_tile(fragment, m, k, warpgroups)


def _warpgroup_tile(fragment: FragmentAtom, m: int, other: int, warpgroups: int) -> RegisterLayout:
    rows, step = fragment.shape
    if extent(m, "m") % (rows * warpgroups) or extent(other, fragment.dims[1]) % step:
        fail(
            "LAY014",
            title=f"{fragment.name} does not tile {m} x {other}",
            found=f"m = {m}, {fragment.dims[1]} = {other}, {warpgroups} warpgroups",
            required=f"m % {rows * warpgroups} == 0 and {fragment.dims[1]} % {step} == 0",
            source=fragment.source,
            help="round the tile up to whole instructions",
        )
    blocks = m // (rows * warpgroups)
    if warpgroups > 1 and blocks & (blocks - 1):
        fail(
            "LAY014",
            title="each warpgroup holds a number of row blocks that is not a power of two",
            found=f"{blocks} blocks of {rows} rows per warpgroup",
            required="1, 2, 4, ... blocks",
            help="describe one warpgroup's rows, and the warpgroups as an outer axis of a hierarchy.Hierarchy",
        )
    groups = [(rows * blocks << i, 0) for i in range(_bits(warpgroups, "warpgroups"))]
    repeats = [Repeat(1, other // step, step), Repeat(0, blocks, rows)]
    return RegisterLayout((m, other), atom(fragment, groups), tuple(r for r in repeats if r.count > 1))


def _bits(count: int, what: str) -> int:
    if extent(count, what) & (count - 1):
        fail(
            "LAY003",
            title=f"{what} is not a power of two",
            found=str(count),
            required="1, 2, 4, ...",
            help="describe one group's part, and the groups as outer axes of a hierarchy.Hierarchy",
        )
    return count.bit_length() - 1


def mma_accumulator(m: int, n: int) -> RegisterLayout:
    """C and D of one warp's m16n8k16 steps over m x n: n steps fastest."""
    return _tiled(sm_80.MMA_ACCUMULATOR, (m, n), (1, 0))


def mma_operand_a(m: int, k: int) -> RegisterLayout:
    """16-bit A of one warp's m16n8k16 steps over m x k: k steps fastest."""
    return _tiled(sm_80.MMA_A_16, (m, k), (1, 0))


def mma_operand_b(k: int, n: int) -> RegisterLayout:
    """16-bit B of one warp's m16n8k16 steps over k x n: k steps fastest."""
    return _tiled(sm_80.MMA_B_16, (k, n), (0, 1))


def ldmatrix(rows: int, columns: int, *, trans: bool = False) -> RegisterLayout:
    """Registers that ldmatrix fills, and stmatrix reads, over a rows x columns tile of 16-bit elements in shared.

    Matrices follow one another along the rows first; with ``trans`` each 8x8 matrix arrives transposed, so a lane holds
    two elements of one column.
    """
    return _tiled(sm_80.LDMATRIX_TRANS if trans else sm_80.LDMATRIX, (rows, columns), (0, 1))


def tcgen05(shape: str, steps: int) -> RegisterLayout:
    """Registers of tcgen05.ld/st ``shape`` with ``.x{steps}``: TMEM lane and column (32-bit cells).

    ``32x32b`` covers the four warps of a warpgroup; the 16-lane shapes one warp at one base lane; ``16x32bx2`` has the
    second access as a middle dimension.
    """
    fragment = sm_100a.TCGEN05_LDST.get(shape)
    if fragment is None:
        fail(
            "LAY014",
            title="tcgen05 has no such shape",
            found=shape,
            required=f"one of {', '.join(sm_100a.TCGEN05_LDST)}",
            source="PTX ISA 9.1, 9.7.16.8",
            help="choose a shape the instruction has",
        )
    registers = (1 << len(fragment.register)) * extent(steps, "steps")
    if steps & (steps - 1) or registers > sm_100a.TCGEN05_MAX_REGISTERS:
        fail(
            "LAY014",
            title=f"tcgen05 {shape} has no .x{steps}",
            found=f"{steps} steps, {registers} registers",
            required=f"a power of two with at most {sm_100a.TCGEN05_MAX_REGISTERS} registers",
            source="PTX ISA 9.1, 9.7.16.8",
            help="split the access",
        )
    whole = (*fragment.shape[:-1], fragment.shape[-1] * steps)
    return _tiled(fragment, whole, (len(whole) - 1,))
