"""Distributions cover a tile exactly once, whatever its extents."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.expr import Const
from tilewright.layout.register import RegisterLayout
from tilewright.schedule.distribute import Distribution, spread
from tilewright.schedule.staging import Staging

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


@settings(max_examples=20)
@given(MOVES)
def test_a_staged_tile_arrives(move: tuple[tuple[int, int], int, int, str]) -> None:
    """Written by one distribution, read by another: the same element, inside the buffer, vectors whole and aligned."""
    (rows, columns), v0, v1, name = move
    dtype = DTYPES[name]
    sizes = {0: rows, 1: columns}
    old = spread(sizes, {1: min(v0, 16 // dtype.bytes)}, [frozenset(sizes)], [1, 0], 64)
    new = spread(sizes, {0: min(v1, 16 // dtype.bytes)}, [frozenset(sizes)], [0, 1], 64)
    staging = Staging.plan(old, new, (0, 1), (0, 1), dtype)
    shared: dict[int, tuple[int, ...]] = {}
    for thread in range(64):
        if staging.before.owner_predicate(thread).evaluate({}):
            for register in range(staging.before.registers):
                at = staging.before.coordinate(thread, register)
                offset = _offset(staging, at)
                assert 0 <= offset < staging.elements
                assert shared.setdefault(offset, at) == at
                vectors(staging, offset, register)
    for thread in range(64):
        for register in range(staging.after.registers):
            at = staging.after.coordinate(thread, register)
            if all(p < n for p, n in zip(at, (rows, columns), strict=True)):
                assert shared[_offset(staging, at)] == at


def vectors(staging: Staging, offset: int, register: int) -> None:
    if register % staging.vector == 0:
        assert offset % staging.vector == 0


def _offset(staging: Staging, at: tuple[int, ...]) -> int:
    return int(staging.offset([_const(p) for p in at]).evaluate({}))


def _ways(accesses: list[tuple[int, int]]) -> int:
    """Passes that shared memory needs for (byte address, bytes) of a warp: 32 banks of 4 bytes, 128 bytes at a time."""
    size = max(1, accesses[0][1])
    lanes = max(1, min(32, 128 // max(4, size)))
    worst = 0
    for start in range(0, len(accesses), lanes):
        words: dict[int, set[int]] = {}
        for address, length in accesses[start : start + lanes]:
            for word in range(address // 4, (address + length + 3) // 4):
                words.setdefault(word % 32, set()).add(word)
        worst = max(worst, *(len(w) for w in words.values()))
    return worst


def conflicts(staging: Staging, dtype: DType, layout: RegisterLayout) -> int:
    worst = 0
    for register in range(0, layout.registers, staging.vector):
        warp = [_offset(staging, layout.coordinate(lane, register)) * dtype.bytes for lane in range(32)]
        worst = max(worst, _ways([(a, staging.vector * dtype.bytes) for a in warp]))
    return worst


def test_transposes_of_whole_tiles_meet_in_no_bank() -> None:
    for name, rows, columns in (("bf16", 128, 128), ("f32", 64, 64), ("f16", 64, 128)):
        dtype = DTYPES[name]
        vector = 16 // dtype.bytes
        sizes = {0: rows, 1: columns}
        threads = rows * columns // 64
        old = spread(sizes, {0: vector, 1: vector}, [frozenset(sizes)], [1, 0], threads)
        new = spread(sizes, {0: vector, 1: vector}, [frozenset(sizes)], [0, 1], threads)
        staging = Staging.plan(old, new, (0, 1), (0, 1), dtype)
        assert staging.vector == vector
        assert conflicts(staging, dtype, staging.before) == 1, name
        assert conflicts(staging, dtype, staging.after) == 1, name
