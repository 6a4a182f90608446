"""Fragments against the formulas of the vendors' manuals, written out independently."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright.diag import TilewrightError
from tilewright.hw import fragments as facts
from tilewright.hw.target import sm_80, sm_90a, sm_100a
from tilewright.layout.library import fragments
from tilewright.layout.register import RegisterLayout

WIDTHS = (8, 24, 80, 128, 160, 176, 192, 208, 248, 256)


def places(layout: RegisterLayout) -> list[tuple[int, int, tuple[int, ...]]]:
    every = product(range(layout.threads), range(layout.registers))
    return [(t, r, layout.coordinate(t, r)) for t, r in every]


@pytest.mark.parametrize("n", WIDTHS)
def test_wgmma_accumulator(n: int) -> None:
    for t, r, (m, col) in places(fragments.wgmma_accumulator(64, n)):
        assert m == 16 * (t // 32) + t % 32 // 4 + 8 * ((r >> 1) & 1)
        assert col == 8 * (r >> 2) + 2 * (t % 4) + (r & 1)


def test_wgmma_accumulator_blocks_and_warpgroups() -> None:
    two = fragments.wgmma_accumulator(256, 24, warpgroups=2)
    one = fragments.wgmma_accumulator(64, 24)
    assert (two.threads, two.registers) == (256, 24)
    for group, block, t, r in product(range(2), range(2), range(128), range(12)):
        m, n = one.coordinate(t, r)
        assert two.coordinate(128 * group + t, 12 * block + r) == (128 * group + 64 * block + m, n)


@pytest.mark.parametrize(("bits", "k"), [(16, 16), (16, 48), (8, 32), (8, 96), (32, 8), (32, 24)])
def test_wgmma_operand_a(bits: int, k: int) -> None:
    per = 32 // bits  # elements of one register
    for t, e, (m, kk) in places(fragments.wgmma_operand_a(64, k, bits)):
        register, part = divmod(e % (4 * per), per)
        assert m == 16 * (t // 32) + t % 32 // 4 + 8 * (register & 1)
        assert kk == 8 * per * (e // (4 * per)) + 4 * per * (register >> 1) + per * (t % 4) + part


def test_mma_m16n8k16() -> None:
    for t, r, (m, n) in places(fragments.mma_accumulator(16, 8)):
        assert (m, n) == (t // 4 + 8 * (r >= 2), 2 * (t % 4) + r % 2)
    for t, r, (m, k) in places(fragments.mma_operand_a(16, 16)):
        assert m == t // 4 + (0 if r in (0, 1, 4, 5) else 8)
        assert k == 2 * (t % 4) + r % 2 + (8 if r >= 4 else 0)
    for t, r, (k, n) in places(fragments.mma_operand_b(16, 8)):
        assert (k, n) == (2 * (t % 4) + r % 2 + (8 if r >= 2 else 0), t // 4)


def test_ldmatrix() -> None:
    for t, r, (row, column) in places(fragments.ldmatrix(16, 16)):
        matrix, element = divmod(r, 2)
        assert (row, column) == (8 * (matrix % 2) + t // 4, 8 * (matrix // 2) + 2 * (t % 4) + element)
    for t, r, (row, column) in places(fragments.ldmatrix(8, 8, trans=True)):
        assert (row, column) == (2 * (t % 4) + r, t // 4)


def test_ldmatrix_x4_is_the_a_operand_of_mma() -> None:
    assert [c for _, _, c in places(fragments.ldmatrix(16, 16))] == [
        c for _, _, c in places(fragments.mma_operand_a(16, 16))
    ]


TCGEN05 = {
    # shape: (row, column) of thread t and register r, PTX ISA 9.1, 9.7.16.8
    "32x32b": lambda t, r: (t, r),
    "16x64b": lambda t, r: (t // 4 + 8 * (t & 1), 2 * r + (t >> 1 & 1)),
    "16x128b": lambda t, r: (t // 4 + 8 * (r & 1), 4 * (r >> 1) + t % 4),
    "16x256b": lambda t, r: (t // 4 + 8 * (r >> 1 & 1), 8 * (r >> 2) + 2 * (t % 4) + (r & 1)),
    "16x32bx2": lambda t, r: (t % 16, t // 16, r),
}


@pytest.mark.parametrize("shape", sorted(TCGEN05))
@pytest.mark.parametrize("steps", [1, 4, 32])
def test_tcgen05(shape: str, steps: int) -> None:
    for t, r, where in places(fragments.tcgen05(shape, steps)):
        assert where == TCGEN05[shape](t, r)


@pytest.mark.parametrize(
    "build",
    [
        lambda: fragments.wgmma_accumulator(64, 12),
        lambda: fragments.wgmma_accumulator(96, 16),
        lambda: fragments.wgmma_accumulator(384, 16, warpgroups=2),
        lambda: fragments.wgmma_operand_a(64, 16, 4),
        lambda: fragments.mma_operand_a(16, 24),
        lambda: fragments.ldmatrix(12, 8),
        lambda: fragments.tcgen05("32x64b", 1),
        lambda: fragments.tcgen05("32x32b", 3),
        lambda: fragments.tcgen05("16x256b", 64),
    ],
)
def test_shapes_the_hardware_lacks_are_refused(build: object) -> None:
    with pytest.raises(TilewrightError, match="LAY014") as caught:
        build()  # type: ignore[operator]
    assert caught.value.diagnostics[0].help


def test_every_fragment_fills_its_shape_once() -> None:
    table = [sm_90a.WGMMA_ACCUMULATOR, sm_80.MMA_ACCUMULATOR, sm_80.MMA_A_16, sm_80.MMA_B_16, sm_80.LDMATRIX]
    table += [*sm_90a.WGMMA_A.values(), *sm_100a.TCGEN05_LDST.values()]
    table += [*facts.MFMA_ACCUMULATOR.values(), *facts.WMMA_ACCUMULATOR.values()]
    for fragment in table:
        size = 1
        for extent in fragment.shape:
            size *= extent
        layout = fragments.atom(fragment)
        assert {layout(i) for i in range(1 << layout.in_bits)} == set(range(size)), fragment.name
        assert layout.in_bits == size.bit_length() - 1, fragment.name
