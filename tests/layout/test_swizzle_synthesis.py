"""Synthesised swizzles: free of conflicts by an independent count, the least where none is, in time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from support.attempts import attempt
from support.slow import rest_slow
from support.timing import quickest
from tilewright.base.expr import sym
from tilewright.hw.tensormap import Swizzle
from tilewright.layout.banks import WaveAccess, instruction
from tilewright.layout.shared import SharedTile
from tilewright.layout.synthesis import Family, SwizzleConstraints, Synthesis, synthesise_swizzle
from tilewright.layout.xor_swizzle import PaddedRows, XorSwizzle

pytestmark = pytest.mark.sample(1)

Address = Callable[[int], int]


def wave(target: str, op: str, address: Address) -> WaveAccess:
    return WaveAccess.of(instruction(target, op), address)


def cycles(access: WaveAccess, move: Callable[[int], int]) -> int:
    """Counted apart from the library: distinct words per bank and phase."""
    total = 0
    for group in access.access.groups or ():
        words = {(move(access.addresses[t]) + b) // 4 for t in group for b in range(access.access.bytes_per_lane)}
        total += max(Counter(w % access.access.banks for w in words).values())
    return total


SM, GFX = "sm_90a", "gfx942"
SETS: dict[str, tuple[str, list[WaveAccess], SwizzleConstraints]] = {
    "wgmma: rows of 128 B by core matrices, written by rows": (
        SM,
        [wave(SM, "ldmatrix.x4", lambda t: t % 8 * 128 + t // 8 * 16), wave(SM, "st.shared.b128", lambda t: t * 16)],
        SwizzleConstraints(8192, family=Family.TMA),
    ),
    "ldmatrix: rows of 64 B": (
        SM,
        [wave(SM, "ldmatrix.x4", lambda t: t % 16 * 64 + t // 16 * 16), wave(SM, "st.shared.b128", lambda t: t * 16)],
        SwizzleConstraints(4096),
    ),
    "stmatrix out, vectors to global": (
        SM,
        [wave(SM, "stmatrix.x4", lambda t: t % 16 * 256 + t // 16 * 16), wave(SM, "ld.shared.b128", lambda t: t * 16)],
        SwizzleConstraints(16384),
    ),
    "transpose of 32 x 32 words": (
        SM,
        [wave(SM, "st.shared.b32", lambda t: t * 4), wave(SM, "ld.shared.b32", lambda t: t * 128)],
        SwizzleConstraints(4096),
    ),
    "transpose of 64 x 64 words": (
        SM,
        [wave(SM, "st.shared.b32", lambda t: t * 4), wave(SM, "ld.shared.b32", lambda t: t * 256)],
        SwizzleConstraints(16384),
    ),
    "transpose by 8-byte vectors": (
        SM,
        [
            wave(SM, "st.shared.b64", lambda t: t // 16 * 128 + t % 16 * 8),
            wave(SM, "ld.shared.b64", lambda t: t % 16 * 128 + t // 16 * 8),
        ],
        SwizzleConstraints(4096),
    ),
    "four column strides at once": (
        SM,
        [wave(SM, "ld.shared.b32", lambda t, s=s: t * s) for s in (128, 256, 512, 1024)],
        SwizzleConstraints(32768),
    ),
    "gfx942: rows of 128 B": (
        GFX,
        [
            wave(GFX, "ds_read_b128", lambda t: t % 16 * 128 + t // 16 * 16),
            wave(GFX, "ds_write_b128", lambda t: t * 16),
        ],
        SwizzleConstraints(2048),
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_free_of_conflicts_in_time(name: str) -> None:
    target, accesses, constraints = SETS[name]
    found = synthesise_swizzle(accesses, target, constraints)
    assert found.is_free
    assert found.proved
    for access in accesses:
        assert cycles(access, found.swizzle) == access.access.phases
    moved = {found.swizzle(a) for a in range(constraints.tile_bytes)}
    assert moved == set(range(constraints.tile_bytes))
    assert quickest(lambda: synthesise_swizzle(accesses, target, constraints), 0.1) < 0.1


def test_wgmma_takes_the_mode_of_the_hardware() -> None:
    target, accesses, constraints = SETS["wgmma: rows of 128 B by core matrices, written by rows"]
    found = synthesise_swizzle(accesses, target, constraints).swizzle
    assert isinstance(found, XorSwizzle)
    assert found.mode is Swizzle.B128
    tile = SharedTile.swizzled(64, 64, 2, Swizzle.B128)
    assert all(found(128 * r + 2 * c) == tile.offset(r, c) for r in range(64) for c in range(64))


def everything(low: int, line: int, sources: range) -> list[XorSwizzle]:
    """All linear swizzles from some source bits."""
    masks = [m << low for m in range(1 << (line - low))]
    return [XorSwizzle.of(zip(sources, columns, strict=True)) for columns in product(masks, repeat=len(sources))]


@pytest.mark.parametrize("seed", rest_slow(range(12), 3))
def test_the_least_is_the_least_of_all(seed: int) -> None:
    rng = random.Random(seed)
    family = everything(5, 7, range(7, 11))
    read = instruction(SM, "ld.shared.b128")
    for _ in range(4):
        accesses: list[WaveAccess] = []
        for _ in range(rng.randint(1, 3)):
            columns = [rng.randrange(0, 2048, 32) for _ in range(5)]

            def address(t: int, columns: list[int] = columns) -> int:
                return sum_xor(c for i, c in enumerate(columns) if t >> i & 1)

            accesses.append(WaveAccess.of(read, address))
        found = synthesise_swizzle(accesses, SM, SwizzleConstraints(2048, keep_bytes=32))
        least = min(sum(cycles(a, s) for a in accesses) for s in family)
        assert found.proved
        assert found.cycles == sum(cycles(a, found.swizzle) for a in accesses) == least


def sum_xor(values: object) -> int:
    total = 0
    for v in values:  # pyright: ignore[reportGeneralTypeIssues]
        total ^= v
    return total


def test_none_of_the_family_is_free() -> None:
    words, rows = wave(SM, "st.shared.b32", lambda t: t * 4), wave(SM, "ld.shared.b32", lambda t: t * 128)
    found = synthesise_swizzle([words, rows], SM, SwizzleConstraints(4096, family=Family.TMA))
    assert (found.is_free, found.proved, found.cycles, found.degree) == (False, True, 5, 4)
    mixed = [wave(SM, "st.shared.b128", lambda t: t * 16), rows]
    least = synthesise_swizzle(mixed, SM, SwizzleConstraints(4096))
    assert (least.is_free, least.proved, least.cycles, least.bound) == (False, True, 8, 8)
    assert "the least of the family" in str(least)
    assert synthesise_swizzle([words, rows], SM, SwizzleConstraints(4096, family=Family.SWIZZLE)).is_free


def test_padding() -> None:
    words, rows = wave(SM, "st.shared.b32", lambda t: t * 4), wave(SM, "ld.shared.b32", lambda t: t * 128)
    found = synthesise_swizzle([words, rows], SM, SwizzleConstraints(4096, family=Family.PADDED, row_bytes=128))
    assert found.swizzle == PaddedRows(128, 4)
    assert found.is_free
    assert found.swizzle(300) == 308


def bits(t: int, places: tuple[int, ...]) -> int:
    """Lane bit i is worth 2^places[i] bytes."""
    return sum((t >> i & 1) << p for i, p in enumerate(places))


CONSECUTIVE = tuple(tuple(range(8 * k, 8 * k + 8)) for k in range(8))
"""Eight lanes after the other: what 32 banks and 16 bytes per lane alone suggest for ds_read_b128."""
READS: dict[str, tuple[Address, int]] = {
    "16 rows of 128 B": (lambda t: t % 16 * 128 + t // 16 * 16, 2048),
    "16 rows of 64 B": (lambda t: t % 16 * 64 + t // 16 * 16, 1024),
    "32 rows of 256 B": (lambda t: t % 32 * 256 + t // 32 * 16, 8192),
    "32 rows of 64 B": (lambda t: t % 32 * 64 + t // 32 * 16, 2048),
    "16 rows of 256 B": (lambda t: t % 16 * 256 + t // 16 * 16, 4096),
    "blocks of 64 B, rows in between": (lambda t: bits(t, (4, 5, 7, 8, 6, 9)), 1024),
    "blocks of 32 B, rows in between": (lambda t: bits(t, (4, 6, 7, 8, 5, 9)), 1024),
    "pairs of rows in between": (lambda t: bits(t, (5, 6, 7, 8, 4, 9)), 1024),
}


def test_gfx942_is_not_32_banks_in_lane_order() -> None:
    """At least three tiles where the model of lanes in order rejects a swizzle that is free under the instruction's own
    groups, and three where the swizzle it proposes conflicts."""
    read = instruction(GFX, "ds_read_b128")
    naive = replace(read, groups=CONSECUTIVE)
    rejected, wrong = 0, 0
    for address, size in READS.values():
        true = WaveAccess.of(read, address)
        found = synthesise_swizzle([true], GFX, SwizzleConstraints(size))
        assert found.is_free
        assert cycles(true, found.swizzle) == 8
        rejected += cycles(WaveAccess.of(naive, address), found.swizzle) > 8
        proposed = synthesise_swizzle([WaveAccess.of(naive, address)], GFX, SwizzleConstraints(size))
        wrong += cycles(true, proposed.swizzle) > 8
    assert rejected >= 3
    assert wrong >= 3


def test_expressions_and_forms() -> None:

    swizzle = XorSwizzle(((4, 7), (5, 8), (5, 9)))
    formula = swizzle.apply(sym("a"))
    assert not isinstance(formula, int)
    assert all(formula.evaluate({"a": a}) == swizzle(a) for a in range(1024))
    assert swizzle.swizzle is None
    assert swizzle.mode is None
    assert str(swizzle) == "xor of bits 7 onto 4, 8 onto 5, 9 onto 5"
    assert str(XorSwizzle()) == "no swizzle"


def refusal(accesses: list[WaveAccess], target: str, constraints: SwizzleConstraints) -> str:
    def call() -> Synthesis:
        return synthesise_swizzle(accesses, target, constraints)

    return attempt(call)[1]


def test_refusals() -> None:
    rows = wave(SM, "ld.shared.b32", lambda t: t * 128)
    assert refusal([rows], SM, SwizzleConstraints(4096)) == ""
    assert refusal([rows], SM, SwizzleConstraints(4096 - 128)) == "LAY027"
    assert refusal([rows], GFX, SwizzleConstraints(4096)) == "LAY027"
    assert refusal([rows], SM, SwizzleConstraints(4100)) == "LAY028"
    assert refusal([rows], SM, SwizzleConstraints(4096, keep_bytes=12)) == "LAY028"
    assert refusal([], SM, SwizzleConstraints(4096)) == "LAY028"
    assert refusal([rows], SM, SwizzleConstraints(4096, family=Family.PADDED)) == "LAY028"
    wide = wave("gfx950", "ds_read_b96", lambda t: t * 12)
    assert refusal([wide], "gfx950", SwizzleConstraints(1024)) == "LAY028"
