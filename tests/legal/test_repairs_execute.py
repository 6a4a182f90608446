"""Every repair applied: its maps are legal by the judge of single requests, and what lands is the tile asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from support.copy_engine import copy_tile
from tilewright.base.dtypes import bf16, e4m3, f32, i8
from tilewright.base.expr import sym
from tilewright.base.verdict import Legal
from tilewright.hw.copy_prices import CopyMethod
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.legal.facts import Facts
from tilewright.legal.reinterpret import Recast
from tilewright.legal.repair_types import Change, Remedy, Staging, ThreadCopy
from tilewright.legal.repairs import repairs_of
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import TensorMapPlan, TileAccess

BASE = 256
"""Byte of the test's memory at which tensors begin."""
STAGED = 1 << 14
SPAN_UNITS = {0: 1, 1: 2, 2: 4, 3: 8}
"""16-byte units that a swizzle exchanges (PTX ISA 9.1, 5.5.7), by CUtensorMapSwizzle."""
Values = dict[str, int]


def requests(plan: TensorMapPlan, values: Mapping[str, int]) -> list[TensorMapRequest]:
    """The map with each of its copies, as numbers."""
    origin = [int(c.evaluate(values)) for c in plan.coordinates]
    return [
        TensorMapRequest(
            plan.data_type,
            plan.rank,
            int(plan.address.evaluate(values)),
            tuple(int(d.evaluate(values)) for d in plan.dims),
            tuple(int(s.evaluate(values)) for s in plan.strides),
            plan.box,
            plan.element_strides,
            swizzle=plan.swizzle,
            l2_promotion=plan.l2_promotion,
            direction=plan.direction,
            shared_address=1024 + box.shared_offset_bytes,
            start_coordinates=tuple(o + s for o, s in zip(origin, box.start, strict=True)),
        )
        for box in plan.boxes
    ]


def legal(plan: TensorMapPlan, values: Mapping[str, int]) -> bool:
    """Whether every copy of the plan is legal, by the judge of single requests."""
    return all(isinstance(judge(request, SM90A).verdict, Legal) for request in requests(plan, values))


def load(plan: TensorMapPlan, values: Mapping[str, int], memory: np.ndarray, size: int) -> np.ndarray:
    """Shared memory after the copies of ``plan``."""
    image = np.full(plan.shared.size_bytes, 0xEE, np.uint8)
    copy_tile(memory, plan, dict(values), image, size)
    return image


def remedy_of(access: TileAccess, change: Change, facts: Facts | None = None) -> Remedy:
    found = {r.fields.change: r.fields for r in repairs_of(access, facts or Facts())}
    assert change in found, found.keys()
    return found[change]


def memory_for(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, 1 << 16, dtype=np.uint8)


def wanted(access: TileAccess, memory: np.ndarray, first: tuple[int, ...], address: int = BASE) -> np.ndarray:
    """The tile's bytes in the order of its kept axes, zero outside the tensor: the definition of a load."""
    size = access.dtype.bytes
    kept = [i for i, t in enumerate(access.tile) if t is not None]
    result = np.zeros((*(access.tile[i] or 1 for i in kept), size), np.uint8)
    for local in product(*(range(access.tile[i] or 1) for i in kept)):
        index = list(first)
        for axis, x in zip(kept, local, strict=True):
            index[axis] += x
        if all(0 <= i < int(n) for i, n in zip(index, access.shape, strict=True)):
            at = address + sum(i * int(s) for i, s in zip(index, access.strides, strict=True)) * size
            result[local] = memory[at : at + size]
    return result


def tile_of(image: np.ndarray, shared: SmemTile, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """The tile of ``shape`` (by axis) read out of shared memory; ``axes`` innermost first."""
    size = shared.element_bytes
    result = np.zeros((*shape, size), np.uint8)
    for local in np.ndindex(*shape):
        at = shared.offset(tuple(local[a] for a in axes))
        result[local] = image[at : at + size]
    return result


def ranks(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Tensor axes as positions among those that are kept."""
    order = sorted(axes)
    return tuple(order.index(a) for a in axes)


def check_plan(access: TileAccess, remedy: Remedy, memory: np.ndarray, first: tuple[int, ...], values: Values) -> None:
    """The plan's copies land as the tile that ``remedy.tile`` asks for."""
    assert remedy.plan is not None
    at = values | {f"$index{i}": x for i, x in enumerate(first)}
    assert legal(remedy.plan, at)
    image = load(remedy.plan, at, memory, access.dtype.bytes)
    asked = replace(access, tile=remedy.tile)
    shape = tuple(t for t in remedy.tile if t is not None)
    got = tile_of(image, remedy.plan.shared, ranks(remedy.plan.tile_axes), shape)
    address = values.get("address", BASE)
    assert np.array_equal(got, wanted(asked, memory, first, address))


def test_a_split_box() -> None:
    access = TileAccess(bf16, (40, 300), (304, 1), BASE, (16, 128), swizzles=(Swizzle.B128,))
    for first in ((0, 0), (32, 256)):
        check_plan(access, remedy_of(access, Change.SPLIT_BOX), memory_for(), first, {})


def test_another_swizzle() -> None:
    access = TileAccess(bf16, (40, 300), (304, 1), BASE, (16, 96), swizzles=(Swizzle.B128,))
    remedy = remedy_of(access, Change.SWIZZLE)
    assert remedy.plan is not None
    assert remedy.plan.swizzle is Swizzle.B64
    check_plan(access, remedy, memory_for(), (16, 96), {})


def test_a_wider_tile() -> None:
    access = TileAccess(bf16, (40, 100), (104, 1), BASE, (16, 100))
    remedy = remedy_of(access, Change.WIDEN)
    assert remedy.tile == (16, 104)
    check_plan(access, remedy, memory_for(), (32, 0), {})


@pytest.mark.parametrize(("address", "pitch", "ok"), [(256, 304, True), (264, 304, False), (256, 300, False)])
def test_a_condition_decides_when_the_plan_is_legal(address: int, pitch: int, ok: bool) -> None:
    access = TileAccess(bf16, (40, 300), (sym("pitch"), 1), sym("address"), (16, 64))
    remedy = remedy_of(access, Change.CONDITION)
    assert remedy.plan is not None
    values = {"address": address, "pitch": pitch}
    assert bool(remedy.condition.evaluate(values)) == ok == legal(remedy.plan, values | {"$index0": 0, "$index1": 0})
    if ok:
        numbers = replace(access, strides=(pitch, 1), address=address)
        check_plan(numbers, remedy, memory_for(), (16, 64), values)


def test_split_columns() -> None:
    access = TileAccess(bf16, (40, 104), (104, 1), BASE, (16, 100), Direction.STORE, first_multiples=(16, 0))
    remedy = remedy_of(access, Change.SPLIT_COLUMNS)
    assert remedy.plan is not None
    assert remedy.threads is not None
    assert legal(remedy.plan, {"$index0": 16, "$index1": 0})
    covered = [*range(remedy.plan.shared.extents[0])]
    begin = remedy.threads.first_column
    covered += range(begin, begin + remedy.threads.shared.extents[0])
    assert covered == list(range(100))


def stored(plan: TensorMapPlan, values: Mapping[str, int], memory: np.ndarray, image: np.ndarray, size: int) -> None:
    """The copies of ``plan`` write memory: whole 16 bytes of each row, at the places that loads read."""
    for request in requests(plan, values):
        columns = -(-request.global_dim[0] * size // 16) * 16 // size
        at = request.shared_address - 1024
        for number, local in enumerate(product(*(range(b) for b in reversed(request.box_dim)))):
            to = [s + x for s, x in zip(request.start_coordinates, reversed(local), strict=True)]
            if to[0] < columns and all(c < n for c, n in zip(to[1:], request.global_dim[1:], strict=True)):
                source = at + number * size
                source ^= ((source >> 7) & (SPAN_UNITS[request.swizzle] - 1)) << 4
                target = request.global_address + sum(
                    c * s for c, s in zip(to, (size, *request.global_strides), strict=True)
                )
                memory[target : target + size] = image[source : source + size]


def test_the_tail_of_each_row_by_threads() -> None:
    """Maps and threads together store every element of the tensor, and no byte beside it."""
    access = TileAccess(bf16, (37, 90), (96, 1), BASE, (16, 64), Direction.STORE, swizzles=(Swizzle.B128,))
    remedy = remedy_of(access, Change.TAIL)
    assert remedy.plan is not None
    assert remedy.tail is not None
    tail = int(str(remedy.tail))
    assert tail == 88
    rng = np.random.default_rng(1)
    before = memory_for()
    memory, expected = before.copy(), before.copy()
    for row, column in product(range(0, 37, 16), (0, 64)):
        tile = rng.integers(0, 256, (16, 64, 2), dtype=np.uint8)
        image = np.zeros(remedy.plan.shared.size_bytes, np.uint8)
        for r, c in np.ndindex(16, 64):
            at = remedy.plan.shared.offset((c, r))
            image[at : at + 2] = tile[r, c]
            target = BASE + ((row + r) * 96 + column + c) * 2
            if row + r < 37 and column + c < 90:
                expected[target : target + 2] = tile[r, c]
                if column + c >= tail:  # what the threads store
                    memory[target : target + 2] = image[at : at + 2]
        values = {"$index0": row, "$index1": column}
        assert legal(remedy.plan, values)
        stored(remedy.plan, values, memory, image, 2)
    assert np.array_equal(memory, expected)
    assert not np.array_equal(memory, before)


def test_without_the_tail_a_store_writes_beside_the_tensor() -> None:
    access = TileAccess(bf16, (37, 90), (96, 1), BASE, (16, 64), Direction.LOAD, swizzles=(Swizzle.B128,))
    whole = replace(remedy_of(access, Change.SPLIT_BOX).plan or pytest.fail("no plan"), direction=Direction.STORE)
    values = {"$index0": 0, "$index1": 64}
    assert not legal(whole, values)
    memory = memory_for()
    before = memory.copy()
    stored(whole, values, memory, np.zeros(whole.shared.size_bytes, np.uint8), 2)
    beside = BASE + 90 * 2
    assert not np.array_equal(memory[beside : beside + 12], before[beside : beside + 12])


def test_a_folded_view() -> None:
    access = TileAccess(f32, (40, 3), (3, 1), BASE, (16, 3))
    remedy = remedy_of(access, Change.RESHAPE)
    assert remedy.folds == ((0, 1),)
    assert remedy.plan is not None
    memory = memory_for()
    for row in (0, 16, 32):
        values = {"$index0": row, "$index1": 0}
        assert legal(remedy.plan, values)
        image = load(remedy.plan, values, memory, 4)
        got = tile_of(image, remedy.plan.shared, (0,), (48,)).reshape(16, 3, 4)
        assert np.array_equal(got, wanted(access, memory, (row, 0)))


def test_an_axis_too_long_for_a_map_is_split() -> None:
    access = TileAccess(i8, (1 << 33, 16), (16, 1), 1 << 20, (64, 16))
    remedy = remedy_of(access, Change.RESHAPE)
    assert remedy.folds == ((0,), (0,), (1,))
    assert remedy.plan is not None
    for row in (0, 64, (1 << 32) - 64, 1 << 32, (1 << 33) - 64):
        values = {"$index0": row, "$index1": 0}
        assert legal(remedy.plan, values)
        (request,) = requests(remedy.plan, values)
        steps = (1, *request.global_strides)
        at = sum(c * s for c, s in zip(request.start_coordinates, steps, strict=True))
        assert request.global_address + at == (1 << 20) + row * 16
        within = zip(request.start_coordinates, request.box_dim, request.global_dim, strict=True)
        assert all(first + box <= extent for first, box, extent in within)


def staged_copy(access: TileAccess, staging: Staging, memory: np.ndarray) -> np.ndarray:
    """Memory with the tensor copied to STAGED as the remedy says, nothing else of it left."""
    size = access.dtype.bytes
    result = np.zeros_like(memory)
    steps = [int(s.evaluate({})) for s in staging.strides]
    for index in np.ndindex(*(int(n) for n in access.shape)):
        source = BASE + sum(i * int(s) for i, s in zip(index, access.strides, strict=True)) * size
        target = STAGED + sum(i * s for i, s in zip(index, steps, strict=True)) * size
        result[target : target + size] = memory[source : source + size]
    return result


@pytest.mark.parametrize("strides", [(101, 1), (7, 2)])
def test_a_staged_tensor(strides: tuple[int, int]) -> None:
    access = TileAccess(bf16, (40, 101), strides, BASE, (16, 64), name="t")
    remedy = remedy_of(access, Change.PAD)
    assert remedy.staging is not None
    assert remedy.plan is not None
    memory = memory_for()
    staged = staged_copy(access, remedy.staging, memory)
    for first in ((0, 0), (32, 64)):
        values = {"t.staged": STAGED} | {f"$index{i}": x for i, x in enumerate(first)}
        assert legal(remedy.plan, values)
        got = tile_of(load(remedy.plan, values, staged, 2), remedy.plan.shared, ranks(remedy.plan.tile_axes), (16, 64))
        assert np.array_equal(got, wanted(access, memory, first))


WIDE = [
    (TileAccess(i8, (40, 1024), (1024, 1), BASE, (4, 512), swizzles=(Swizzle.NONE,)), 8, (4, 512)),
    (TileAccess(e4m3, (40, 516), (528, 1), BASE, (4, 512), swizzles=(Swizzle.NONE,)), 4, (36, 512)),
    (TileAccess(bf16, (8, 520), (520, 1), BASE, (4, 512), swizzles=(Swizzle.NONE,)), 4, (4, 0)),
]


@pytest.mark.parametrize(("access", "factor", "first"), WIDE)
def test_bytes_as_wider_words(access: TileAccess, factor: int, first: tuple[int, int]) -> None:
    remedy = remedy_of(access, Change.REINTERPRET)
    assert remedy.plan is not None
    assert remedy.words == factor
    values = {f"$index{i}": x for i, x in enumerate(first)}
    assert legal(remedy.plan, values)
    memory = memory_for()
    image = load(remedy.plan, values, memory, access.dtype.bytes * factor)
    shared = Recast(access, factor, 1).elements(remedy.plan.shared, access.dtype.bytes)
    shape = tuple(t for t in access.tile if t is not None)
    assert np.array_equal(tile_of(image, shared, (1, 0), shape), wanted(access, memory, first))


def test_words_make_too_many_elements_legal() -> None:
    access = TileAccess(i8, (1 << 33,), (1,), 0, (4096,))
    remedy = remedy_of(access, Change.REINTERPRET)
    assert remedy.plan is not None
    assert legal(remedy.plan, {"$index0": 1 << 32})
    assert [int(str(d)) for d in remedy.plan.dims] == [1 << 30]
    odd = TileAccess(i8, ((1 << 33) + 1,), (1,), 0, (4096,))
    assert Change.REINTERPRET not in {r.fields.change for r in repairs_of(odd, Facts())}


CLASSES = [
    (TileAccess(f32, (37, 33), (33, 1), BASE, (16, 16)), 4),
    (TileAccess(bf16, (37, 61), (61, 1), BASE, (16, 16)), 8),
    (TileAccess(bf16, (37, 58), (58, 1), BASE, (16, 16)), 4),
    (TileAccess(bf16, (37, 60), (60, 1), BASE + 2, (16, 16)), 2),
    (TileAccess(e4m3, (37, 48), (48, 1), BASE + 5, (8, 32)), 1),
    (TileAccess(f32, (3, 37, 33), (1224, 33, 1), BASE, (None, 16, 16)), 4),
]


@pytest.mark.parametrize(("access", "count"), CLASSES)
def test_rows_by_alignment_class(access: TileAccess, count: int) -> None:
    remedy = remedy_of(access, Change.PHASES)
    assert remedy.phases is not None
    assert len(remedy.phases.classes) == count
    memory = memory_for()
    rows, columns = (t for t in access.tile if t is not None)
    leading = (0,) * (len(access.shape) - 2)
    for row, column in product((0, 32), (0, columns)):
        got = phased_tile(remedy, (*leading, row, column), (rows, columns), memory, access.dtype.bytes)
        assert np.array_equal(got, wanted(access, memory, (*leading, row, column), int(str(access.address))))


def phased_tile(
    remedy: Remedy, first: tuple[int, ...], tile: tuple[int, int], memory: np.ndarray, size: int
) -> np.ndarray:
    """The tile of rows and columns at ``first`` of the tensor, each class loaded by its map and read at its shift."""
    assert remedy.phases is not None
    got = np.zeros((*tile, size), np.uint8)
    count = len(remedy.phases.classes)
    for j, part in enumerate(remedy.phases.classes):
        values = {f"$index{i}": x for i, x in enumerate(first)} | {f"tensor.phase{j}": int(part.address.evaluate({}))}
        assert legal(part.plan, values)
        image = load(part.plan, values, memory, size)
        shift = int(part.shift.evaluate({}))
        for r, c in np.ndindex(tile[0] // count, tile[1]):
            at = part.plan.shared.offset((c + shift, r))
            got[r * count + j, c] = image[at : at + size]
    return got


FOLDED = [
    (TileAccess(f32, (20, 3, 35), (105, 35, 1), BASE, (8, 3, 35)), Change.PHASES),
    (TileAccess(bf16, (20, 4, 26), (105, 26, 1), BASE, (8, 4, 26)), Change.PAD),
    (TileAccess(bf16, (20, 4, 6), (32, 6, 1), BASE, (8, 4, 6)), Change.CP_ASYNC),
    (TileAccess(bf16, (20, 4, 6), (32, 6, 1), BASE, (8, 4, 6), swizzles=(Swizzle.B128,)), Change.SWIZZLE),
    (TileAccess(bf16, (20, 3, 4), (16, 4, 1), BASE, (8, 3, 4)), Change.WIDEN),
]


@pytest.mark.parametrize(("access", "change"), FOLDED, ids=lambda x: x.name if isinstance(x, Change) else "")
def test_changes_of_a_folded_view(access: TileAccess, change: Change) -> None:
    """The last two axes are one to the repair; the tile is that of the tensor."""
    remedy, memory, size = remedy_of(access, change), memory_for(), access.dtype.bytes
    assert remedy.folds == ((0,), (1, 2))
    (_, middle, inner), (rows, *_) = access.shape, access.tile
    columns = int(middle) * int(inner)
    assert rows is not None
    for row in (0, 8, 16):
        values = {"$index0": row, "$index1": 0, "$index2": 0}
        if remedy.phases is not None:
            got = phased_tile(remedy, (row, 0, 0), (rows, columns), memory, size)
        elif remedy.threads is not None:
            got = threads_tile(remedy.threads, row * int(access.strides[0]), int(access.strides[0]), rows, memory)
            got[max(0, int(access.shape[0]) - row) :] = 0
        else:
            assert remedy.plan is not None
            view = replace(access, shape=(20, columns), strides=(access.strides[0], 1), tile=(rows, columns))
            source = memory if remedy.staging is None else staged_copy(view, remedy.staging, memory)
            values["tensor.staged"] = STAGED
            assert legal(remedy.plan, values)
            image = load(remedy.plan, values, source, size)
            got = tile_of(image, remedy.plan.shared, ranks(remedy.plan.tile_axes), (rows, columns))
        assert np.array_equal(got.reshape(rows, middle, inner, size), wanted(access, memory, (row, 0, 0)))


def threads_tile(copies: ThreadCopy, first: int, pitch: int, rows: int, memory: np.ndarray) -> np.ndarray:
    """``rows`` rows from element ``first`` on, copied by whole vectors, each aligned at both ends."""
    size, vector = copies.shared.element_bytes, copies.vector_bytes
    columns = copies.shared.extents[0]
    image = np.zeros(copies.shared.size_bytes, np.uint8)
    for row, byte in product(range(rows), range(0, columns * size, vector)):
        source, target = BASE + (first + row * pitch) * size + byte, copies.shared.offset((byte // size, row))
        assert source % vector == target % vector == 0
        image[target : target + vector] = memory[source : source + vector]
    return tile_of(image, copies.shared, ranks(copies.tile_axes), (rows, columns))


def test_classes_of_rows_for_any_pitch() -> None:
    access = TileAccess(f32, (sym("M"), sym("K")), (sym("K"), 1), sym("p"), (16, 16))
    facts = Facts(divisors={"p": 4})
    remedy = remedy_of(access, Change.PHASES, facts)
    assert remedy.phases is not None
    memory = memory_for()
    for extents, address in (((20, 33), BASE + 4), ((18, 30), BASE), ((17, 19), BASE + 12)):
        numbers = replace(access, shape=extents, strides=(extents[1], 1), address=address)
        got = np.zeros((16, 16, 4), np.uint8)
        for j, part in enumerate(remedy.phases.classes):
            values = {"M": extents[0], "K": extents[1], "p": address, "$index0": 0, "$index1": 16}
            values |= {f"tensor.phase{j}": int(part.address.evaluate(values))}
            assert part.plan.guard.evaluate(values)
            assert legal(part.plan, values)
            image = load(part.plan, values, memory, 4)
            for r, c in np.ndindex(4, 16):
                at = part.plan.shared.offset((c + int(part.shift.evaluate(values)), r))
                got[4 * r + j, c] = image[at : at + 4]
        assert np.array_equal(got, wanted(numbers, memory, (0, 16), address))


def test_stores_and_operands_are_not_split_into_classes() -> None:
    store = TileAccess(bf16, (64, 61), (61, 1), BASE, (16, 16), Direction.STORE)
    operand = TileAccess(bf16, (64, 61), (61, 1), BASE, (16, 64), swizzles=(Swizzle.B128,))
    for access in (store, operand):
        assert Change.PHASES not in {r.fields.change for r in repairs_of(access, Facts())}


@pytest.mark.parametrize("change", [Change.CP_ASYNC, Change.LOADS])
@pytest.mark.parametrize("pitch", [102, 104, 108])
def test_threads_copy_whole_vectors(change: Change, pitch: int) -> None:
    """Every vector is aligned at both ends, stays in its row, and lands where the tile has its elements."""
    access = TileAccess(bf16, (40, 100), (pitch, 1), BASE, (16, 64), swizzles=(Swizzle.B128,))
    threads = remedy_of(replace(access, address=BASE + 4), change).threads
    assert threads is not None
    vector = threads.vector_bytes
    assert change is Change.LOADS or (threads.method is CopyMethod.CP_ASYNC and vector in (4, 8, 16))
    memory = memory_for()
    image = np.zeros(threads.shared.size_bytes, np.uint8)
    for row, byte in product(range(16), range(0, 128, vector)):
        source = BASE + 4 + row * pitch * 2 + byte
        target = threads.shared.offset((byte // 2, row))
        assert source % vector == target % vector == 0
        image[target : target + vector] = memory[source : source + vector]
    asked = wanted(replace(access, shape=(40, 128)), memory, (0, 0), BASE + 4)
    assert np.array_equal(tile_of(image, threads.shared, (1, 0), (16, 64)), asked)
