"""The hierarchy and the sub-group of a movement, against a count over all places."""

from __future__ import annotations

import random
from itertools import product

from support.attempts import attempt
from tilewright.hw.spaces import Space, ThreadGroup
from tilewright.layout.library import fragments
from tilewright.layout.library.affine import AffineLayout
from tilewright.layout.library.hierarchy import LEVELS, Hierarchy, movement
from tilewright.layout.register import RegisterLayout

GRAINS = (
    ThreadGroup.THREAD,
    ThreadGroup.WARP,
    ThreadGroup.WARPGROUP,
    ThreadGroup.CTA,
    ThreadGroup.CLUSTER,
    ThreadGroup.GRID,
)


def places(h: Hierarchy) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every place as (register, ..., cluster) with its coordinate."""
    form = h.normal
    sizes = [h.extent(level) for level in LEVELS]
    result: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for where in product(*map(range, sizes)):
        result.append((where, tuple(x for x in form(*where) if isinstance(x, int))))
    return result


def counted(source: Hierarchy, target: Hierarchy) -> ThreadGroup:
    for levels, grain in enumerate(GRAINS, 1):
        held = {(where[levels:], x) for where, x in places(source)}
        if all((where[levels:], x) in held for where, x in places(target)):
            return grain
    raise AssertionError("the source lacks elements")


def test_fragments() -> None:
    acc = fragments.wgmma_accumulator(64, 32)
    of = Hierarchy.of
    assert movement(of(acc), of(fragments.wgmma_operand_a(64, 32, 16))).group is ThreadGroup.THREAD
    assert movement(of(acc), of(fragments.wgmma_operand_a(64, 32, 8))).group is ThreadGroup.WARP
    rows = RegisterLayout.blocked((64, 32), vector=(1, 8), lanes=(8, 4), warps=(4, 1), order=(1, 0))
    other = RegisterLayout.blocked((64, 32), vector=(1, 8), lanes=(8, 4), warps=(4, 1), order=(0, 1))
    found = movement(of(acc), of(rows))
    assert (found.group, found.space) == (counted(of(acc), of(rows)), Space.SHARED)
    assert found.group is ThreadGroup.WARPGROUP
    assert movement(of(rows), of(other)).group is counted(of(rows), of(other))


def test_clusters() -> None:
    acc = fragments.wgmma_accumulator(64, 16)
    dims = {"dim0": None, "dim1": None}
    rows = AffineLayout.of({"warpgroup": 3, "cta": 2}, dims, {"warpgroup": [(64, 0)], "cta": [(192, 0)]})
    turned = AffineLayout.of({"warpgroup": 3, "cta": 2}, dims, {"warpgroup": [(128, 0)], "cta": [(64, 0)]})
    swapped = AffineLayout.of({"warpgroup": 3, "cta": 2}, dims, {"warpgroup": [(-64, 0)], "cta": [(192, 0)]}, (128, 0))
    a, b, c = (Hierarchy.of(acc, outer=x) for x in (rows, turned, swapped))
    assert movement(a, a).group is ThreadGroup.THREAD
    assert (movement(a, b).group, movement(a, b).space) == (ThreadGroup.CLUSTER, Space.DISTRIBUTED_SHARED)
    assert (movement(a, c).group, movement(a, c).space) == (ThreadGroup.CTA, Space.SHARED)
    apart = AffineLayout.of({"warpgroup": 3, "cluster": 2}, dims, {"warpgroup": [(64, 0)], "cluster": [(192, 0)]})
    far = AffineLayout.of(
        {"warpgroup": 3, "cluster": 2}, dims, {"warpgroup": [(64, 0)], "cluster": [(-192, 0)]}, (192, 0)
    )
    d, e = (Hierarchy.of(acc, outer=x) for x in (apart, far))
    assert (movement(d, e).group, movement(d, e).space) == (ThreadGroup.GRID, Space.GLOBAL)


def test_normal_forms_and_random_movements() -> None:
    rng = random.Random(8)
    seen: set[ThreadGroup] = set()
    for _ in range(60):
        a, b = _random(rng), _random(rng)
        found = movement(a, b).group
        assert found is counted(a, b)
        seen.add(found)
        assert Hierarchy(a.normal).normal == a.normal
    assert seen >= {ThreadGroup.WARP, ThreadGroup.CTA, ThreadGroup.CLUSTER}


def _random(rng: random.Random) -> Hierarchy:
    """A tile of 2 * 3 * 2 * 3 * 2 elements dealt to the levels in a random order, broadcast to the rest."""
    levels = list(LEVELS[:5])
    strides = dict[str, int]()
    extents = dict(zip(levels, (2, 3, 2, 3, 2), strict=True))
    order = levels if rng.random() < 0.2 else rng.sample(levels, rng.choice((3, 5)) if rng.random() < 0.2 else 5)
    if rng.random() < 0.5:
        i = rng.randrange(4)
        order = list(levels)
        order[i], order[i + 1] = order[i + 1], order[i]
    place = 1
    for level in order:
        strides[level] = place
        place *= extents[level]
    missing = [x for x in levels if x not in strides]
    for level in missing:
        strides[level] = place
        place *= extents[level]
    return Hierarchy(AffineLayout.of(extents, {"dim0": None}, {n: [s] for n, s in strides.items()}))


def test_bad_input() -> None:
    tile = {"dim0": None}
    assert attempt(lambda: Hierarchy(AffineLayout.of({"thread": 4}, tile, {"thread": [1]})))[1] == "LAY002"
    four, five = (Hierarchy(AffineLayout.of({"lane": n}, tile, {"lane": [1]})) for n in (4, 5))
    assert attempt(lambda: movement(four, five))[1] == "LAY017"
    assert attempt(lambda: movement(five, four))[1] == ""
    other = Hierarchy(AffineLayout.of({"lane": 4}, {"dim1": None}, {"lane": [1]}))
    assert attempt(lambda: movement(four, other))[1] == "LAY017"
