"""Which tile a launch gets: whole waves, clusters where rows straddle lines, narrow tiles where there are few rows."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportArgumentType=false, reportMissingParameterType=false

from __future__ import annotations

import pytest

import tilewright as tw
from examples import attention
from examples import matmul as example
from support import products as p
from tilewright.base.expr import SharedTexts
from tilewright.compiler.program import traced
from tilewright.hw.target import SM80, SM90A
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.schedule.hopper.extents import product_variants
from tilewright.schedule.hopper.product_variant import ProductVariant

pytestmark = pytest.mark.sample(1)


@tw.kernel
def activated(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    bias: tw.Tensor["N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=128,
    bn=128,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    x = acc + bias[n][None, :].to(tw.f32)
    c[m, n] = x * (0.5 * (1 + tw.erf(x * 0.7071067811865476)))


@tw.kernel
def added(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], r: tw.Tensor["M", "N"], c: tw.Tensor["M", "N"], *, bm=128, bn=128
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc + r[m, n].to(tw.f32)


ALIGNED = p.request(example.matmul).facts
UNALIGNED = CallFacts(tuple((name, TensorFacts(1, 2)) for name in "abc"))


def variants(facts: CallFacts = ALIGNED, kernel: tw.Kernel = example.matmul, autos: tuple[str, ...] = ("bm", "bn")):
    return product_variants(autos, lambda extents: traced(p.request(kernel, **extents)), SM90A, facts)


def picked(found: list[ProductVariant], m: int, n: int, k: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Tile, cluster and ping-pong warpgroups of the first variant that applies."""
    sizes = {"M": m, "N": n, "K": k, "a.stride0": k, "b.stride0": k, "c.stride0": n}
    variant = next(v for v in found if v.predicate.evaluate(sizes))
    first = variant.candidates[0] if variant.candidates else None
    tile = (variant.choices[0]["bm"], variant.choices[0]["bn"])
    return tile, first.cluster if first else (1, 1), first.ping_pong if first else 1


@pytest.mark.parametrize(
    ("size", "tile", "cluster", "ping_pong"),
    [
        ((4096, 4096, 4096), (128, 256), (1, 1), 1),  # 4 waves of 256, 5 of 208
        ((8192, 8192, 8192), (128, 192), (1, 1), 2),  # 21 waves of 192, 16 of 256
        ((2048, 5120, 5120), (128, 160), (1, 1), 2),  # H200: 146 us, in 256 x 160 145
        ((1000, 2880, 2880), (128, 192), (1, 1), 1),  # one wave of 192: no second tile for ping-pong
        ((5000, 5000, 5000), (128, 224), (2, 1), 1),  # rows of 10,000 bytes straddle lines
        ((300, 5000, 5000), (128, 128), (1, 4), 1),  # too few rows of tiles for pairs of rows
        ((1984, 4240, 2824), (128, 192), (2, 1), 2),  # 3 waves
        ((4152, 280, 3960), (128, 128), (4, 1), 1),  # one wave, rows straddle lines
        ((2184, 1536, 5296), (128, 224), (1, 1), 1),  # rows begin with sectors inside of lines
        ((4416, 128, 1280), (64, 128), (1, 1), 1),  # parts would save less than they cost
        ((64, 4096, 4096), (64, 64), (1, 2), 1),  # in two parts, which a cluster adds
        ((64, 8192, 8192), (64, 64), (1, 1), 1),
        ((512, 512, 512), (64, 64), (1, 1), 1),  # 9 wide tiles for 132 CTAs
        ((1024, 1024, 1032), (64, 128), (1, 1), 1),  # one wave of 128 tiles, two of 64 x 64
        ((512, 4096, 4096), (64, 256), (1, 1), 1),  # 27.2 us, in 128 x 128 27.7
        ((16, 8192, 8192), (16, 64), (1, 1), 1),
        ((2048, 2048, 2048), (128, 256), (1, 1), 1),
        ((384, 6848, 9728), (128, 160), (1, 1), 1),  # 129 tiles, of 192 columns 108, of 128 two waves
        ((1408, 7872, 3072), (128, 224), (1, 1), 1),  # three waves, as of 256 and of 208; of 192 four
        ((512, 3072, 10240), (128, 192), (1, 2), 1),  # 64 tiles in two parts
        ((832, 576, 4352), (64, 64), (1, 1), 1),  # H200: 14.6 us, in two parts of 128 x 64 18.0
        ((1472, 896, 3520), (128, 96), (1, 1), 1),  # 22.3 us, in two parts of 128 x 192 23.8
        ((96, 2808, 7912), (128, 128), (1, 4), 1),  # in four parts: 27.1 us, in two of 64 x 96 31.7
        ((1728, 128, 11264), (64, 128), (1, 4), 1),  # in four parts: 23.0 us, in two of 64 x 64 25.3
        ((5184, 160, 9064), (128, 192), (1, 2), 1),  # in two parts: 55.8 us, by clusters of 2 x 2 58.6
        ((4960, 264, 1296), (128, 96), (1, 1), 1),  # 13.9 us, in 128 x 128 17.9
        ((2048, 640, 6080), (128, 96), (1, 1), 1),  # 36.1 us, in two parts of 128 x 192 42.6
    ],
)
def test_tiles_fill_their_waves(
    size: tuple[int, int, int], tile: tuple[int, int], cluster: tuple[int, int], ping_pong: int
) -> None:
    assert picked(variants(), *size) == (tile, cluster, ping_pong)


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 5120, 5120), (1000, 2880, 2880)])
def test_the_first_variant_is_the_cheapest(size: tuple[int, int, int]) -> None:
    """Of those that this launch may take; ping-pong needs two tiles for a CTA."""
    m, n, k = size
    sizes = {"M": m, "N": n, "K": k, "a.stride0": k, "b.stride0": k, "c.stride0": n}
    found = variants()
    first = next(v for v in found if v.predicate.evaluate(sizes))
    alone = [v for v in found if v.time is not None and v.applies.evaluate(sizes) and not v.rewritten]
    assert first.time is not None
    assert first.time.evaluate(sizes) <= min(v.time.evaluate(sizes) for v in alone if v.time is not None)


@pytest.mark.parametrize("kernel", [example.matmul, p.gated])
def test_predicates_of_a_family_are_short(kernel: tw.Kernel) -> None:
    """Written out each names the prices of all tiles, 20,000 characters."""
    predicates = [variant.predicate for variant in variants(p.request(kernel).facts, kernel)]
    texts = SharedTexts(predicates)
    assert max(len(texts.text(each)) for each in predicates) < 700
    assert sum(map(len, texts.parts)) < 20_000


@pytest.mark.parametrize(("kernel", "whole"), [(p.nn, True), (example.matmul, False)])
def test_row_major_columns_are_copied_in_whole_panels(kernel: tw.Kernel, whole: bool) -> None:
    """A B of 5248 x 5696 x 1536 takes 158 us in turns of 128 x 208, 128 in 128 x 192 (H200)."""
    (_, columns), *_ = picked(variants(p.request(kernel).facts, kernel), 5248, 5696, 1536)
    assert (columns % 64 == 0) is whole


@pytest.mark.parametrize(
    ("kernel", "size", "tile", "ping_pong"),
    [
        (activated, (3000, 3072, 768), (192, 128), 1),  # 36.3 us, 128 x 192 by ping-pong 42.8
        (activated, (16384, 1024, 256), (128, 256), 1),  # 42.2 us, 128 x 208 by ping-pong 71.7
        (activated, (4096, 14336, 4096), (128, 192), 2),  # 64 steps hide it: 634 us, 128 x 224 666
        (added, (4096, 4096, 4096), (128, 256), 1),  # 193 us, 128 x 192 by ping-pong 200
        (added, (4096, 14336, 4096), (128, 160), 2),  # 631 us; beside 208 columns no registers are left
    ],
)
def test_epilogues_take_time(
    kernel: tw.Kernel, size: tuple[int, int, int], tile: tuple[int, int], ping_pong: int
) -> None:
    """Microseconds: H200. Without one all but the last but one are computed by ping-pong."""
    assert picked(variants(p.request(kernel).facts, kernel), *size) == (tile, (1, 1), ping_pong)


def test_few_tiles_store_by_rows_where_extents_ask_for_it() -> None:
    found = variants()
    both = [v for v in found if not v.whole_stores]
    assert {tuple(v.choices[0].values()) for v in both if not (v.rewritten or v.candidates)} == {
        (64, 64),
        (128, 128),
        (128, 256),
    }
    assert found[-1] == both[-1]
    for n in (100, 104, 4096, 4100):
        sizes = {"M": 200, "N": n, "K": 4096, "a.stride0": 4096, "b.stride0": 4096, "c.stride0": 4104}
        first = next(v for v in found if v.predicate.evaluate(sizes))
        assert first.whole_stores is (n % 8 == 0)
    assert not any(v.whole_stores for v in variants(UNALIGNED))


def test_every_launch_has_a_tile() -> None:
    found = variants()
    for m in (1, 64, 65, 129, 513, 5000):
        for n in (1, 8, 100, 5000):
            for k in (1, 64, 72):
                picked(found, m, n, k)


def test_tiles_that_copies_can_not_bring_are_not_shared() -> None:
    own = [v.candidates[0] for v in variants(UNALIGNED) if v.candidates and v.narrow is None]
    assert all(candidate.cluster == (1, 1) for candidate in own)


def test_products_side_by_side_share_the_columns_of_every_tile() -> None:
    """Two of 64 rows and 128 columns cost what one of 256 does, not of 128 (H200: 535 of 788 TFLOP/s)."""
    found = variants(p.request(p.gated).facts, p.gated)
    sizes = {"M": 4096, "N": 14336, "K": 4096, "c.stride0": 14336, **{f"{x}.stride0": 4096 for x in ("x", "v", "w")}}
    chosen = next(v for v in found if v.predicate.evaluate(sizes))
    assert (chosen.choices[0]["bm"], chosen.choices[0]["bn"]) == (128, 104)


def test_pinned_columns_and_other_kernels_have_one_variant() -> None:
    assert len(variants(autos=("bm",))) == 1
    sized = product_variants(("bm", "bn"), lambda e: traced(p.request(example.matmul, **e)), SM80, ALIGNED)
    assert len(sized) == 1


@pytest.mark.slow
def test_tall_tiles_where_programs_have_many_steps() -> None:
    """Heads of 64: 256 rows, and 192 of longer streams; of causal ones 64, whose CTAs share an SM, 256 and 192."""
    dims = {"H": 32, "G": 32}

    def rows(keys: int, *, causal: bool) -> int:
        found = product_variants(
            ("bq", "bk"),
            lambda e: traced(p.request(attention.forward(64), causal=causal, **e)),
            SM90A,
            ALIGNED,
        )
        return next(
            v for v in found if v.predicate.evaluate({**dims, "B": 16384 // keys, "S": keys, "T": keys})
        ).choices[0]["bq"]

    assert [rows(n, causal=False) for n in (512, 1024, 2048, 4096, 16384)] == [256, 256, 192, 192, 192]
    assert [rows(n, causal=True) for n in (512, 1024, 2048, 4096, 16384)] == [64, 64, 256, 256, 192]


@pytest.mark.parametrize(("width", "keys"), [(64, 64), (128, 128), (256, 64)])
def test_wide_chained_products_take_fewer_keys_a_step(width: int, keys: int) -> None:
    """So that two steps of heads of 256 are in registers at once."""
    artifact = attention.forward(width, "accurate").compile(dtypes=dict.fromkeys("qkvo", "bf16"), causal=True)
    assert any(f"bk={keys}" in note and "software-pipelined streams" in note for note in artifact.plan)


@pytest.mark.parametrize(
    ("size", "once"),
    [
        ((512, 4096, 4096), True),  # 132 SMs run 4 x 32 tiles of 128 x 128 at one time
        ((640, 4096, 4096), False),  # and not 5 x 32
        ((512, 5632, 4096), True),  # 4 x 30 of 128 x 192
        ((4096, 4096, 4096), False),
        ((384, 5632, 1032), False),  # rows begin inside of sectors
    ],
)
def test_tiles_of_one_wave_need_not_stay_in_l2(size: tuple[int, int, int], once: bool) -> None:
    m, n, k = size
    sizes = {"M": m, "N": n, "K": k, "a.stride0": k, "b.stride0": k, "c.stride0": n}
    taken = next(v for v in variants() if v.predicate.evaluate(sizes))
    assert taken.one_wave is once


@pytest.mark.parametrize(("width", "few", "resident"), [(64, 0, 3), (128, 1, 1)])
def test_short_causal_attention_has_one_way_of_its_own(width: int, few: int, resident: int) -> None:
    """Small tiles whose CTAs share an SM, or where registers hold only large ones an order by heads."""
    kernel = attention.forward(width)
    found = product_variants(("bq", "bk"), lambda e: traced(p.request(kernel, causal=True, **e)), SM90A, ALIGNED)
    tried = [candidate for variant in found for candidate in variant.candidates]
    assert sum(candidate.few_lengths for candidate in tried) == few
    assert max(candidate.resident for candidate in tried) == resident
