"""Decode over caches, contiguous and in pages, agrees with float64 in the simulator, whatever tables hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.example_cases import load

pytestmark = pytest.mark.sample(1)

paged = load("paged_attention")
BF16 = ml_dtypes.bfloat16
LEAST = -(2**31)


@dataclass
class Cache:
    """Keys and values of sequences, with NaN in every element that no sequence has; ``held`` are those of each."""

    lengths: np.ndarray
    pages: np.ndarray | None
    k: np.ndarray
    v: np.ndarray
    held: list[tuple[np.ndarray, np.ndarray]]


def cache_of(
    rng: np.random.Generator,
    lengths: list[int],
    page: int | None,
    *,
    extent: int = 192,
    heads: int = 2,
    width: int = 128,
    dtype: type = BF16,
) -> Cache:
    """A cache of ``extent`` keys a sequence, its pages dealt at random and table entries behind the last leading far
    outside."""
    count, unit = len(lengths), page or extent
    table = rng.permutation(count * -(-extent // unit) + 3)[: count * -(-extent // unit)].reshape(count, -1)
    pools = [np.full((table.size + 3, unit, heads, width), np.nan, dtype) for _ in range(2)]
    held: list[tuple[np.ndarray, np.ndarray]] = []
    entries = np.full(table.shape, LEAST, np.int32)
    for b, length in enumerate(lengths):
        own = tuple(rng.standard_normal((min(max(length, 0), extent), heads, width)).astype(dtype) for _ in range(2))
        for pool, rows in zip(pools, own, strict=True):
            for i in range(-(-len(rows) // unit)):
                entries[b, i] = table[b, i]
                pool[table[b, i], : len(rows[i * unit :])] = rows[i * unit : (i + 1) * unit]
        held.append((own[0], own[1]))
    if page is None:
        pools = [pool[table[:, 0]] for pool in pools]
    return Cache(np.array(lengths, np.int32), None if page is None else entries, pools[0], pools[1], held)


def attend(cache: Cache, q: np.ndarray, page: int | None, *, chunk: int = 1, **keywords: int) -> np.ndarray:
    """Parts and their merge, in the simulator."""
    (b, s, g, r, width), extent = q.shape, cache.k.shape[1]
    if cache.pages is not None:
        extent *= cache.pages.shape[1]
    count = -(-extent // (chunk * keywords.get("bk", 64)))
    o, lse = np.full((count, b, s, g, r, width), np.nan, np.float32), np.full((count, b, s, g, r), np.nan, np.float32)
    y = np.full((b * s * g * r, width), np.nan, q.dtype)
    decode = paged.decode(width, s, page)
    decode(cache.lengths, cache.pages, q, cache.k, cache.v, o, lse, scale=width**-0.5, chunk=chunk, **keywords)
    paged.merge(o.reshape(count, -1, width), lse.reshape(count, -1), y)
    return y.reshape(q.shape)


def exact(cache: Cache, q: np.ndarray, window: int | None = None) -> np.ndarray:
    """The same in float64."""
    result = np.zeros(q.shape)
    tokens = q.shape[1]
    for b, (k, v) in enumerate((k.astype(np.float64), v.astype(np.float64)) for k, v in cache.held):
        for s in range(tokens):
            stop = len(k) - tokens + 1 + s
            start = 0 if window is None else max(0, stop - window)
            if stop <= start:
                continue
            x = np.einsum("grd,tgd->grt", q[b, s].astype(np.float64), k[start:stop]) * q.shape[-1] ** -0.5
            p = np.exp(x - x.max(-1, keepdims=True))
            result[b, s] = np.einsum("grt,tgd->grd", p / p.sum(-1, keepdims=True), v[start:stop])
    return result


def queries(rng: np.random.Generator, *shape: int, dtype: type = BF16) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def agrees(y: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(y.astype(np.float64) - expected).max() < 0.03


@pytest.mark.parametrize("page", [None, 1, 8, 16, 64, 128])
def test_lengths_end_anywhere(page: int | None) -> None:
    """Also before the first key, at the ends of pages and of the cache."""
    rng = np.random.default_rng(1)
    cache, q = cache_of(rng, [0, 1, 64, 130, 192, -5], page), queries(rng, 6, 1, 2, 4, 128)
    agrees(attend(cache, q, page), exact(cache, q))


@pytest.mark.parametrize("page", [None, 16])
def test_several_tokens_see_what_is_before_them(page: int | None) -> None:
    rng = np.random.default_rng(2)
    cache, q = cache_of(rng, [4, 100, 192], page), queries(rng, 3, 4, 2, 4, 128)
    agrees(attend(cache, q, page), exact(cache, q))


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_window_slides(tokens: int) -> None:
    rng = np.random.default_rng(3)
    cache, q = cache_of(rng, [0, 3, 70, 192], 16), queries(rng, 4, tokens, 2, 4, 128)
    agrees(attend(cache, q, 16, window=40), exact(cache, q, 40))


@pytest.mark.parametrize(("width", "dtype"), [(64, np.float16), (256, BF16)])
def test_heads_of_other_widths(width: int, dtype: type) -> None:
    rng = np.random.default_rng(4)
    cache = cache_of(rng, [150, 33], 32, width=width, dtype=dtype)
    q = queries(rng, 2, 1, 2, 8, width, dtype=dtype)
    agrees(attend(cache, q, 32), exact(cache, q))


def test_heads_may_lie_before_tokens() -> None:
    """Strides are arguments: a cache of [pages, heads, tokens, width]."""
    rng = np.random.default_rng(5)
    cache, q = cache_of(rng, [150, 33], 32), queries(rng, 2, 1, 2, 4, 128)
    cache.k, cache.v = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (cache.k, cache.v))
    agrees(attend(cache, q, 32), exact(cache, q))


def test_entries_that_lead_outside_are_pages_of_zeros() -> None:
    rng = np.random.default_rng(6)
    cache, q = cache_of(rng, [100, 100, 100, 100], 16), queries(rng, 4, 1, 2, 4, 128)
    assert cache.pages is not None
    for b, entry in enumerate((-1, len(cache.k), LEAST, 2**31 - 1)):
        cache.pages[b, 2] = entry
        for rows in cache.held[b]:
            rows[32:48] = 0
    agrees(attend(cache, q, 16), exact(cache, q))


def test_sequences_may_share_pages() -> None:
    """Others', and their own twice."""
    rng = np.random.default_rng(7)
    cache, q = cache_of(rng, [100, 100], 16), queries(rng, 2, 1, 2, 4, 128)
    assert cache.pages is not None
    cache.pages[1, :3] = cache.pages[0, [0, 1, 1]]
    for mine, theirs in zip(*cache.held, strict=True):
        theirs[:16], theirs[16:32], theirs[32:48] = mine[:16], mine[16:32], mine[16:32]
    agrees(attend(cache, q, 16), exact(cache, q))


def test_lengths_beyond_the_table_end_with_it() -> None:
    rng = np.random.default_rng(8)
    cache, q = cache_of(rng, [192, 192], 16), queries(rng, 2, 1, 2, 4, 128)
    cache.lengths[:] = 2**31 - 1, 193
    agrees(attend(cache, q, 16), exact(cache, q))


def test_tables_of_64_bits() -> None:
    """What leads outside by more than 32 bits is outside."""
    rng = np.random.default_rng(9)
    cache, q = cache_of(rng, [100], 16), queries(rng, 1, 1, 2, 4, 128)
    assert cache.pages is not None
    cache.pages = cache.pages.astype(np.int64)
    cache.pages[0, 1] += 2**32
    for rows in cache.held[0]:
        rows[16:32] = 0
    agrees(attend(cache, q, 16), exact(cache, q))


@pytest.mark.parametrize("seed", range(6))
def test_random_cases(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    page = int(rng.choice([16, 32, 64]))
    lengths = [int(n) for n in rng.integers(0, 192, rng.integers(1, 5), endpoint=True)]
    tokens = int(rng.choice([1, 2, 4, 8]))
    cache = cache_of(rng, [max(n, tokens) for n in lengths], page)
    q = queries(rng, len(lengths), tokens, 2, int(rng.integers(1, 5)), 128)
    step, chunk = int(rng.choice([64, 128])), int(rng.integers(1, 4))
    agrees(attend(cache, q, page, bk=step, chunk=chunk), exact(cache, q))


@pytest.mark.parametrize("page", [8, 16, 64, 128])
def test_pages_are_brought_by_tensor_copies(page: int) -> None:
    types = {"lengths": tw.i32, "pages": tw.i32, **dict.fromkeys("qkv", tw.bf16), "o": tw.f32, "lse": tw.f32}
    (kernel,) = paged.decode(128, page=page).compile(dtypes=types).kernels
    text = kernel.transport_ir
    boxes = max(1, 64 // page)
    loads = [line for line in text.splitlines() if "transport.load_coordinate" in line]
    assert len(loads) == 4 * boxes  # keys and values, in whole steps and the rest
    assert all("$k0*64" in line and "< min(" in line for line in loads)  # no entry behind the last key is read
    assert 'note = "tile.gather"' not in "".join(line for line in text.splitlines() if '"transport.load"' in line)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_slots_of_great_pages_do_not_wrap(dtype: Any) -> None:
    lengths = np.array([14, 0, 2**31 - 2], np.int32)
    pages = np.array([[3, 2**27 - 1], [2**27, 1], [2, 2]], np.int32)
    slot = np.zeros((3, 4), dtype)
    paged.slots(16)(lengths, pages, slot)
    great = 2**31 + np.arange(4)
    expected = [[62, 63, 2**31 - 16, 2**31 - 15], great if dtype == np.int64 else np.full(4, -1), [-1] * 4]
    np.testing.assert_array_equal(slot, np.array(expected))


def test_slots_are_where_new_tokens_go() -> None:
    pages = np.array([[3, 1, -1], [0, 2, 5], [4, LEAST, 1]], np.int32)
    lengths, slot = np.array([14, 30, 0], np.int32), np.full((3, 20), 7, np.int32)
    paged.slots(16)(lengths, pages, slot)
    for b, i in np.ndindex(*slot.shape):
        page, place = divmod(int(lengths[b]) + i, 16)
        known = page < 3 and pages[b, page] >= 0
        assert slot[b, i] == (pages[b, page] * 16 + place if known else -1)


def test_keys_are_appended_with_their_rotation() -> None:
    """To their slots alone: -1 and others that lead outside are skipped."""
    rng, width = np.random.default_rng(10), 64
    slots = np.array([5, -1, 33, -1, 0, 64, LEAST, 17, 2**31 - 1], np.int32)
    key, value = (queries(rng, len(slots), 2, width) for _ in range(2))
    angles = rng.standard_normal((len(slots), width // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    k, v = (queries(rng, 4, 16, 2, width) for _ in range(2))
    expected_k, expected_v = k.astype(np.float64), v.astype(np.float64)
    for i, slot in enumerate(slots):
        if 0 <= slot < 64:
            first, second = np.split(key[i].astype(np.float64), 2, axis=-1)
            at = slot // 16, slot % 16
            turned = first * cos[i] - second * sin[i], second * cos[i] + first * sin[i]
            expected_k[at], expected_v[at] = np.concatenate(turned, axis=-1), value[i]
    paged.append(width, 16)(slots, key, value, k, v, cos, sin)
    assert np.abs(k.astype(np.float64) - expected_k).max() < 0.03
    assert (v.astype(np.float64) == expected_v).all()


@pytest.mark.slow
@pytest.mark.parametrize("page", [16, 64])
def test_prefill_of_chunks(page: int) -> None:
    """Some of a sequence's tokens, all of them, one and none; rows of no sequence are zeros."""
    rng = np.random.default_rng(11)
    cache, offsets = cache_of(rng, [192, 30, 64, 9], page), np.array([0, 150, 180, 181, 181], np.int32)
    q, o = queries(rng, 190, 4, 128), np.full((190, 4, 128), 7, BF16)
    paged.prefill(128, page)(offsets, cache.lengths, cache.pages, q, cache.k, cache.v, o, scale=128**-0.5, group=2)
    for b in range(4):
        for row in range(offsets[b], offsets[b + 1]):
            seen = cache.lengths[b] - offsets[b + 1] + row + 1
            k, v = (np.repeat(x[:seen].astype(np.float64), 2, axis=1) for x in cache.held[b])
            x = np.einsum("hd,thd->ht", q[row].astype(np.float64), k) * 128**-0.5
            p = np.exp(x - x.max(-1, keepdims=True))
            exact = np.einsum("ht,thd->hd", p / p.sum(-1, keepdims=True), v)
            assert np.abs(o[row].astype(np.float64) - exact).max() < 0.03
    assert (o[181:] == 0).all()


def test_states_of_no_keys_merge_to_zeros() -> None:
    o, lse = np.zeros((3, 5, 64), np.float32), np.full((3, 5), -np.inf, np.float32)
    o[1, 2], lse[1, 2] = 2, -7.0
    y = np.full((5, 64), np.nan, np.float32)
    paged.merge(o, lse, y)
    assert (y[2] == 2).all()
    assert (np.delete(y, 2, 0) == 0).all()


@pytest.mark.parametrize("page", [16, 64])
def test_prefill_is_compiled(page: int) -> None:
    """Behind a gate and software-pipelined: what its counters reach is asked of launches. Spilled registers outside
    of the steps are no reason to pipeline nothing: without it 8,704 keys took a tenth longer."""
    types = {"offsets": tw.i32, "lengths": tw.i32, "pages": tw.i32, **dict.fromkeys("qkvo", tw.bf16)}
    artifact = paged.prefill(128, page).compile(dtypes=types, group=4)
    kernel = artifact.kernels[-1]
    assert "software-pipelined streams" in str(artifact.plan)
    assert "given up" not in str(artifact.plan)
    assert "transport.load_coordinate" in kernel.transport_ir
