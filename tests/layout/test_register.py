"""RegisterLayout against enumeration: expressions, cover, ownership, slices, reductions, vector widths."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.expr import TRUE, sym
from tilewright.diag import TilewrightError
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library.reductions import exchanges, is_owner_register, slice_map
from tilewright.layout.register import RegisterLayout, Repeat

pytestmark = pytest.mark.sample(1)

WGMMA = F2Layout.of(
    {
        "register": [[0, 1], [8, 0]],
        "lane": [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]],
        "warp": [[16, 0], [32, 0]],
    },
    {"dim0": 64, "dim1": 8},
)
WIDTHS = (8, 16, 24, 80, 128, 160, 176, 192, 208, 248, 256)


def accumulator(m: int, n: int) -> RegisterLayout:
    return RegisterLayout((m, n), WGMMA, (Repeat(1, n // 8, 8), Repeat(0, m // 64, 64)))


def places(layout: RegisterLayout) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """Coordinate -> every (thread, register) that holds it, by enumeration."""
    where: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for t in range(layout.threads):
        for r in range(layout.registers):
            where.setdefault(layout.coordinate(t, r), []).append((t, r))
    return where


@st.composite
def blocked(draw: st.DrawFn) -> RegisterLayout:
    rank = draw(st.integers(1, 3))
    order = tuple(draw(st.permutations(range(rank))))

    def deal(bits: int) -> tuple[int, ...]:
        share = [0] * rank
        for _ in range(bits):
            share[draw(st.integers(0, rank - 1))] += 1
        return tuple(1 << b for b in share)

    shape = tuple(draw(st.integers(1, 24)) for _ in range(rank))
    return RegisterLayout.blocked(
        shape, vector=deal(draw(st.integers(0, 3))), lanes=deal(5), warps=deal(draw(st.integers(0, 2))), order=order
    )


@pytest.mark.parametrize("n", WIDTHS)
def test_wgmma_accumulator_matches_the_manual(n: int) -> None:
    # PTX ISA, wgmma register fragment D: row = 16*warp + lane/4 (+8), column = 8*i + 2*(lane%4) (+1)
    layout = accumulator(64, n)
    assert layout.registers == n // 2
    for t, r in product(range(128), range(n // 2)):
        row = 16 * (t // 32) + (t % 32) // 4 + 8 * (r // 2 % 2)
        assert layout.coordinate(t, r) == (row, 8 * (r // 4) + 2 * (t % 4) + r % 2)


@settings(max_examples=60, deadline=None)
@given(blocked())
def test_expressions_agree_with_enumeration(layout: RegisterLayout) -> None:
    exprs = layout.coordinates(sym("tid"), sym("r"))
    for t in range(0, layout.threads, 7):
        fixed = layout.coordinates(sym("tid"), layout.registers - 1)
        assert tuple(e.evaluate({"tid": t}) for e in fixed) == layout.coordinate(t, layout.registers - 1)
        for r in range(layout.registers):
            assert tuple(e.evaluate({"tid": t, "r": r}) for e in exprs) == layout.coordinate(t, r)


@settings(max_examples=60, deadline=None)
@given(blocked())
def test_owners_hold_every_element_exactly_once(layout: RegisterLayout) -> None:
    owner = layout.owner_predicate(sym("tid"))
    held = Counter[tuple[int, ...]]()
    for t in range(layout.threads):
        masked = t & layout.replication.free_thread_mask == 0
        assert bool(owner.evaluate({"tid": t})) == masked
        if masked:
            held.update(layout.coordinate(t, r) for r in range(layout.registers) if is_owner_register(layout, r))
    assert held == Counter(product(*map(range, layout.shape)))


def check_slice(layout: RegisterLayout, dim: int) -> None:
    sliced, moved = layout.slice(dim), slice_map(layout, dim)
    assert sliced.shape == layout.shape[:dim] + layout.shape[dim + 1 :]
    assert sorted(set(moved)) == list(range(sliced.registers))
    for t, r in product(range(layout.threads), range(layout.registers)):
        whole = layout.coordinate(t, r)
        assert sliced.coordinate(t, moved[r]) == whole[:dim] + whole[dim + 1 :]


def check_reduction(layout: RegisterLayout, dim: int) -> None:
    """Run the reduction as the generated code would and count what every thread ends up with."""
    sliced, moved = layout.slice(dim), slice_map(layout, dim)
    held: list[list[Counter[tuple[int, ...]]]] = [
        [Counter() for _ in range(sliced.registers)] for _ in range(layout.threads)
    ]
    for t in range(layout.threads):
        for r in range(layout.registers):
            if is_owner_register(layout, r):
                held[t][moved[r]][layout.coordinate(t, r)] += 1
    for step in exchanges(layout, dim):
        held = [
            [held[t][r] + held[t ^ step.thread_mask][r ^ step.register_mask] for r in range(sliced.registers)]
            for t in range(layout.threads)
        ]
    for t, r in product(range(layout.threads), range(sliced.registers)):
        row = sliced.coordinate(t, r)
        assert held[t][r] == Counter({(*row[:dim], k, *row[dim:]): 1 for k in range(layout.shape[dim])})


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(64, 24), (128, 16), (64, 80)])
def test_slices_and_reductions_of_the_accumulator(m: int, n: int, dim: int) -> None:
    check_slice(accumulator(m, n), dim)
    check_reduction(accumulator(m, n), dim)


@settings(max_examples=40, deadline=None)
@given(blocked(), st.data())
def test_slices_and_reductions(layout: RegisterLayout, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, layout.rank - 1))
    check_slice(layout, dim)
    check_reduction(layout, dim)


def test_a_reduction_across_entangled_lanes_exchanges_registers() -> None:
    # lane 0 moves both dims, register 0 only dim0: without dim1 the partner keeps the row in its other register
    atom = F2Layout.of(
        {"register": [[1, 0]], "lane": [[1, 1], [0, 2], [0, 4], [2, 0], [4, 0]], "warp": []}, {"dim0": 8, "dim1": 8}
    )
    layout = RegisterLayout((8, 8), atom)
    assert exchanges(layout, 1)[0].register_mask == 1
    check_slice(layout, 1)
    check_reduction(layout, 1)
    check_reduction(layout.transpose((1, 0)), 0)


@settings(max_examples=60, deadline=None)
@given(blocked())
def test_vector_width_is_the_largest_that_holds(layout: RegisterLayout) -> None:
    def holds(dim: int, width: int) -> bool:
        for t, r in product(range(layout.threads), range(0, layout.registers, width)):
            first = layout.coordinate(t, r)
            if first[dim] % width:
                return False
            for k in range(width):
                want = (*first[:dim], first[dim] + k, *first[dim + 1 :])
                if r + k >= layout.registers or layout.coordinate(t, r + k) != want:
                    return False
        return True

    for dim in range(layout.rank):
        width = layout.contiguous_registers(dim)
        assert holds(dim, width)
        assert not holds(dim, 2 * width)


@pytest.mark.parametrize("n", WIDTHS)
def test_vector_width_of_the_accumulator(n: int) -> None:
    assert accumulator(64, n).contiguous_registers(1) == 2
    assert accumulator(64, n).contiguous_registers(0) == 1


def test_vector_width_runs_on_into_the_repeats() -> None:
    row = F2Layout.of({"register": [[1]], "lane": [[0]] * 5, "warp": []}, {"dim0": 2})
    assert RegisterLayout((24,), row, (Repeat(0, 12, 2),)).contiguous_registers(0) == 8
    assert RegisterLayout((6,), row, (Repeat(0, 3, 2),)).contiguous_registers(0) == 2
    assert RegisterLayout((12,), row, (Repeat(0, 2, 2), Repeat(0, 3, 4))).contiguous_registers(0) == 4


def test_replicated_dimensions_keep_one_owner() -> None:
    layout = RegisterLayout.blocked((4, 6), vector=(1, 2), lanes=(8, 4), warps=(4, 1), order=(1, 0))
    assert layout.shape == (4, 8)
    assert layout.replication.free_thread_mask == 0b1110000
    assert accumulator(64, 24).owner_predicate(sym("tid")) == TRUE


def test_expand_and_transpose_rename_dimensions() -> None:
    layout = accumulator(128, 24)
    assert layout.expand(1).coordinate(37, 5) == (layout.coordinate(37, 5)[0], 0, layout.coordinate(37, 5)[1])
    assert layout.transpose((1, 0)).coordinate(37, 5) == layout.coordinate(37, 5)[::-1]
    assert layout.transpose((1, 0)).transpose((1, 0)) == layout
    assert layout.expand(2).slice(2) == layout


def test_zero_stride_repeats_are_copies() -> None:
    layout = RegisterLayout((64, 8), WGMMA, (Repeat(0, 3, 0),))
    assert layout.registers == 12
    assert [is_owner_register(layout, r) for r in range(12)] == [True] * 4 + [False] * 8


@pytest.mark.parametrize(
    ("shape", "repeats", "code"),
    [
        ((64, 24), (Repeat(1, 3, 4),), "LAY007"),
        ((64, 32), (Repeat(1, 3, 16),), "LAY007"),
        ((64, 32), (Repeat(1, 3, 8),), "LAY007"),
        ((64, 24), (Repeat(2, 3, 8),), "LAY002"),
        ((64, 24), (Repeat(1, -3, 8),), "LAY001"),
        ((64, 0), (), "LAY001"),
        ((64,), (), "LAY002"),
    ],
)
def test_bad_modes_are_refused(shape: tuple[int, ...], repeats: tuple[Repeat, ...], code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        RegisterLayout(shape, WGMMA, repeats)
    assert caught.value.code == code
    assert caught.value.diagnostics[0].help


def test_holes_in_the_atom_are_refused() -> None:
    atom = F2Layout.of({"register": [[1, 1]], "lane": [[0, 0]] * 5, "warp": []}, {"dim0": 2, "dim1": 2})
    with pytest.raises(TilewrightError, match="LAY007"):
        RegisterLayout((2, 2), atom)


def test_blocked_refuses_wrong_shares() -> None:
    def build(**change: tuple[int, ...]) -> RegisterLayout:
        given = {"vector": (1, 4), "lanes": (4, 8), "warps": (4, 1), "order": (1, 0)} | change
        return RegisterLayout.blocked((64, 64), **given)  # type: ignore[arg-type]

    assert build().registers == 32
    for change, code in (
        ({"lanes": (4, 4)}, "LAY002"),
        ({"vector": (1, 3)}, "LAY003"),
        ({"warps": (4,)}, "LAY002"),
        ({"order": (1, 1)}, "LAY002"),
    ):
        with pytest.raises(TilewrightError) as caught:
            build(**change)
        assert caught.value.code == code


def test_places_outside_are_refused() -> None:
    with pytest.raises(TilewrightError, match="LAY005"):
        accumulator(64, 24).coordinate(128, 0)
    with pytest.raises(TilewrightError, match="LAY002"):
        accumulator(64, 24).slice(2)
    with pytest.raises(TilewrightError, match="LAY002"):
        accumulator(64, 24).transpose((0, 0))
