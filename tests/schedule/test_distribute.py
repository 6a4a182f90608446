"""Distributions cover a tile exactly once, whatever its extents."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.conversion_machine import run
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Const
from tilewright.layout.conversion import conversion_plan
from tilewright.layout.conversion_plan import SharedPlan, VectorAccesses
from tilewright.layout.register import RegisterLayout
from tilewright.schedule.distribute import Distribution, spread

SIZES = st.lists(st.sampled_from([1, 2, 3, 7, 8, 16, 33, 64, 100]), min_size=1, max_size=3)
THREADS = st.sampled_from([32, 64, 128])


def distributions(sizes: list[int], threads: int, vectors: list[int], first: int) -> Distribution:
    classes = dict(enumerate(sizes))
    order = sorted(classes, key=lambda c: c != first % len(sizes))
    widths = {c: min(v, 1 << (classes[c].bit_length() - 1)) for c, v in zip(classes, vectors, strict=False)}
    return spread(classes, widths, [frozenset(classes)], order, threads)


def owners(layout: RegisterLayout, threads: int) -> dict[tuple[int, ...], int]:
    """How many owning threads hold each coordinate, by enumeration."""
    count: dict[tuple[int, ...], int] = {}
    for thread in range(threads):
        if not layout.owner_predicate(thread).evaluate({}):
            continue
        for register in range(layout.registers):
            at = layout.coordinate(thread, register)
            count[at] = count.get(at, 0) + 1
    return count


@settings(max_examples=40)
@given(SIZES, THREADS, st.lists(st.sampled_from([1, 2, 4, 8]), min_size=3, max_size=3), st.integers(0, 2))
def test_every_element_has_one_owner(sizes: list[int], threads: int, vectors: list[int], first: int) -> None:
    home = distributions(sizes, threads, vectors, first)
    layout = home.layout(range(len(sizes)))
    count = owners(layout, threads)
    assert set(count.values()) == {1}
    assert all(at in count for at in product(*(range(n) for n in sizes)))


@settings(max_examples=15)
@given(SIZES, THREADS, st.lists(st.sampled_from([1, 2, 4]), min_size=3, max_size=3), st.integers(0, 2))
def test_registers_of_a_slice_are_found(sizes: list[int], threads: int, vectors: list[int], first: int) -> None:
    """``register_of``: the register of the value over fewer axes holds the element that the larger one needs."""
    home = distributions(sizes, threads, vectors, first)
    outer = tuple(range(len(sizes)))
    inner = outer[1:]
    large, small = home.layout(outer), home.layout(inner) if inner else None
    if small is None:
        return
    from_ = [home.register_of(inner, outer, _const(r)).evaluate({}) for r in range(large.registers)]
    for thread in range(0, threads, 5):
        for register, source in enumerate(from_):
            assert large.coordinate(thread, register)[1:] == small.coordinate(thread, int(source))


def _const(value: int) -> Const:
    return Const(value)


MOVES = st.tuples(
    st.sampled_from([(32, 32), (64, 16), (16, 64), (64, 64), (48, 48), (8, 128)]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["f32", "bf16", "i8", "i64"]),
)


@pytest.mark.slow
@settings(max_examples=20)
@given(MOVES)
def test_a_tile_arrives_in_another_distribution(move: tuple[tuple[int, int], int, int, str]) -> None:
    """Whatever both round the tile up to: every element that one holds is where the other wants it."""
    (rows, columns), v0, v1, name = move
    size = DTYPES[name].bytes
    sizes = {0: rows, 1: columns}
    old = spread(sizes, {1: min(v0, 16 // size)}, [frozenset(sizes)], [1, 0], 64).layout((0, 1))
    new = spread(sizes, {0: min(v1, 16 // size)}, [frozenset(sizes)], [0, 1], 64).layout((0, 1))
    held: list[list[object]] = [[old.coordinate(t, r) for r in range(old.registers)] for t in range(64)]
    moved = run(conversion_plan(old, new, size, ragged=True), held, new.registers)
    for thread, register in product(range(64), range(new.registers)):
        at = new.coordinate(thread, register)
        inside = all(p < n for p, n in zip(at, old.shape, strict=True))
        assert moved[thread][register] == (at if inside else None)


def passes(addresses: list[int], size: int) -> int:
    """Passes that shared memory needs for a warp's accesses: 32 banks of 4 bytes, 128 bytes at a time."""
    lanes = max(1, min(32, 128 // max(4, size)))
    worst = 0
    for start in range(0, len(addresses), lanes):
        banks: dict[int, set[int]] = {}
        for address in addresses[start : start + lanes]:
            for word in range(address // 4, (address + size + 3) // 4):
                banks.setdefault(word % 32, set()).add(word)
        worst = max(worst, *(len(words) for words in banks.values()))
    return worst


@pytest.mark.parametrize(("name", "rows", "columns"), [("bf16", 128, 128), ("f32", 64, 64), ("f16", 64, 128)])
def test_transposes_of_whole_tiles_meet_in_no_bank(name: str, rows: int, columns: int) -> None:
    size = DTYPES[name].bytes
    sizes, vector, threads = {0: rows, 1: columns}, 16 // size, rows * columns // 64
    old = spread(sizes, {0: vector, 1: vector}, [frozenset(sizes)], [1, 0], threads).layout((0, 1))
    new = spread(sizes, {0: vector, 1: vector}, [frozenset(sizes)], [0, 1], threads).layout((0, 1))
    plan = conversion_plan(old, new, size)
    assert isinstance(plan.steps, SharedPlan)
    for side in (plan.steps.store, plan.steps.load):
        (access,) = side.accesses
        assert isinstance(access, VectorAccesses)
        assert access.width == vector
        for warp, first in product(range(threads // 32), range(0, access.registers, vector)):
            places = [{"$tid": 32 * warp + lane, "$r": first} for lane in range(32)]
            assert passes([access.offset.evaluate(p) * size for p in places], 16) == 1


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "lanes"),
    [(8, 256, 64, 8), (64, 128, 256, 4), (8, 32, 8, 1), (1, 256, 64, 64), (2, 128, 32, 16)],
)
def test_a_class_of_which_threads_hold_many_elements(rows: int, columns: int, threads: int, lanes: int) -> None:
    """Lanes that no other class uses are its own still."""
    made = spread({0: rows, 1: columns}, {1: 4}, [frozenset((0, 1))], [1, 0], threads, fat={1: 32}).by_class
    assert 1 << len(made[1].thread_bits) == min(lanes, columns // 4)
    assert 1 << len(made[0].thread_bits) == min(rows, threads // lanes)
