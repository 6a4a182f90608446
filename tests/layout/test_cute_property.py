"""CuTe operations on random layouts: every result satisfies its definition at every point, judged by enumeration."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.attempts import attempt
from support.layout_oracle import expressible, flat, swizzle, table
from tilewright.base.expr import Expr, sym
from tilewright.diag import TilewrightError
from tilewright.layout import cute
from tilewright.layout.cute import CuteLayout
from tilewright.layout.library import cute_algebra, cute_ops
from tilewright.layout.library.cute_algebra import complement, composition, left_inverse, nullspace, right_inverse
from tilewright.layout.library.swizzle_algebra import compose, right_inverse_of, swizzled
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle

EXTENTS = st.sampled_from([1, 2, 2, 3, 4, 4, 5, 6, 8])
STRIDES = st.sampled_from([0, 1, 1, 2, 3, 4, 6, 8, 12, 16, 24])


@st.composite
def nested(draw: st.DrawFn, leaves: list[tuple[int, int]]) -> CuteLayout:
    """Leaves under a random nesting of depth two."""
    groups: list[list[tuple[int, int]]] = [[]]
    for leaf in leaves:
        if groups[-1] and draw(st.booleans()):
            groups.append([])
        groups[-1].append(leaf)
    shape: list[Any] = []
    stride: list[Any] = []
    for group in groups:
        s, d = tuple(x for x, _ in group), tuple(x for _, x in group)
        shape.append(s[0] if len(s) == 1 else s)
        stride.append(d[0] if len(d) == 1 else d)
    return CuteLayout(tuple(shape), tuple(stride))


@st.composite
def any_layout(draw: st.DrawFn, modes: int = 4) -> CuteLayout:
    leaves = draw(st.lists(st.tuples(EXTENTS, STRIDES), min_size=1, max_size=modes))
    return draw(nested(leaves))


@st.composite
def compact(draw: st.DrawFn, modes: int = 3) -> CuteLayout:
    """Every offset of [0, size) once, modes in random order."""
    extents = draw(st.lists(EXTENTS, min_size=1, max_size=modes))
    order = draw(st.permutations(range(len(extents))))
    strides, current = [0] * len(extents), 1
    for i in order:
        strides[i] = current
        current *= extents[i]
    return draw(nested(list(zip(extents, strides, strict=True))))


def offsets(layout: CuteLayout) -> list[int]:
    return table(layout.shape, layout.stride)


@settings(max_examples=200, deadline=None)
@given(any_layout())
def test_a_layout_is_its_table(a: CuteLayout) -> None:
    assert a.offsets() == offsets(a) == [a(i) for i in range(len(offsets(a)))]
    assert (a.size, a.cosize) == (len(offsets(a)), max(offsets(a)) + 1)
    assert a.is_injective == (len(set(offsets(a))) == a.size)
    assert CuteLayout.parse(str(a)) == a


@settings(max_examples=200, deadline=None)
@given(any_layout())
def test_coalesce_is_equal_and_shortest(a: CuteLayout) -> None:
    short = cute.coalesce(a)
    assert offsets(short) == offsets(a) == offsets(cute.flatten(a))
    modes = list(zip(flat(short.shape), flat(short.stride), strict=True))
    assert all(s > 1 for s, _ in modes) or modes == [(1, 0)]
    assert all(s * d != e for (s, d), (_, e) in pairwise(modes))
    by_mode = cute.coalesce(a, tuple(0 for _ in a.modes))
    assert [offsets(m) for m in by_mode.modes] == [offsets(m) for m in a.modes]
    assert set(offsets(cute_ops.filter_layout(a))) == set(offsets(a))


@settings(max_examples=300, deadline=None)
@given(any_layout(), any_layout(3))
def test_composition_is_pointwise_or_refused_for_a_reason(a: CuteLayout, b: CuteLayout) -> None:
    inside = max(offsets(b)) < len(offsets(a))
    c, refused = attempt(lambda: composition(a, b))
    if c is not None:
        assert inside
        assert offsets(c) == [offsets(a)[x] for x in offsets(b)]
        assert cute.congruent(b.shape, c.shape) or len(flat(c.shape)) > len(flat(b.shape))
        return
    assert (refused == "LAY005") <= (not inside)
    if refused == "LAY004" and inside:
        assert not expressible([offsets(a)[x] for x in offsets(b)], b.shape)


@settings(max_examples=200, deadline=None)
@given(compact(), compact())
def test_composition_within_the_domain_is_complete(a: CuteLayout, b: CuteLayout) -> None:
    assume(b.cosize <= a.size)
    wanted = [offsets(a)[x] for x in offsets(b)]
    if expressible(wanted, b.shape):
        assert offsets(composition(a, b)) == wanted


@settings(max_examples=300, deadline=None)
@given(any_layout(3), st.integers(1, 200))
def test_complement(a: CuteLayout, cosize: int) -> None:
    c, refused = attempt(lambda: complement(a, cosize))
    if c is None:
        assert refused == "LAY006"
        return
    rest = offsets(c)
    assert rest == sorted(set(rest))
    distinct = sorted(set(offsets(a)))
    sums = {x + y for x in distinct for y in rest}
    assert len(sums) == len(distinct) * len(rest)
    span, whole = 1, True
    for d, s in sorted((d, s) for s, d in zip(flat(a.shape), flat(a.stride), strict=True) if s > 1 and d):
        whole, span = whole and d % span == 0, d * s
    if whole:  # gaps hold whole copies of what is below: nothing is left out
        assert sums == set(range(len(sums)))
        assert len(sums) >= cosize


@settings(max_examples=300, deadline=None)
@given(any_layout(3))
def test_inverses_and_nullspace(a: CuteLayout) -> None:
    where = offsets(a)
    assert [where[x] for x in offsets(right_inverse(a))] == list(range(len(offsets(right_inverse(a)))))
    assert sorted(offsets(nullspace(a))) == [i for i, x in enumerate(where) if x == 0]
    left, refused = attempt(lambda: left_inverse(a))
    if left is None:
        assert refused == "LAY006"
        return
    assert [left(x) for x in where] == list(range(len(where)))


@settings(max_examples=200, deadline=None)
@given(compact())
def test_right_inverse_of_a_bijection_is_whole(a: CuteLayout) -> None:
    assert right_inverse(a).size == a.size
    assert [left_inverse(a)(x) for x in offsets(a)] == list(range(len(offsets(a))))


@settings(max_examples=200, deadline=None)
@given(any_layout(3), any_layout(3))
def test_max_common_layout(a: CuteLayout, b: CuteLayout) -> None:
    common = offsets(cute_algebra.max_common_layout(a, b))
    assert cute_algebra.max_common_vector(a, b) == len(common)
    assert [offsets(a)[x] for x in common] == [offsets(b)[x] for x in common] == list(range(len(common)))


@settings(max_examples=300, deadline=None)
@given(compact(), st.lists(st.one_of(st.none(), EXTENTS, compact(2)), min_size=1, max_size=3), st.booleans())
def test_divides(a: CuteLayout, tiles: list[CuteLayout | int | None], whole: bool) -> None:
    tiler: Any = tiles[: a.rank] if not whole else (tiles[0] or 1)
    divided, refused = attempt(lambda: cute_ops.logical_divide(a, tiler))
    if divided is None:
        assert refused in ("LAY004", "LAY005", "LAY009")
        return
    assert sorted(offsets(divided)) == sorted(offsets(a))
    pairs = [(a, divided, tiler)] if whole else list(zip(a.modes, divided.modes, tiler, strict=False))
    for mode, parts, tile in pairs:
        if tile is not None:
            inner = offsets(CuteLayout(tile, 1) if isinstance(tile, int) else tile)
            assert offsets(parts[0]) == [offsets(mode)[x] for x in inner]
    zipped, tiled, plain = (f(a, tiler) for f in (cute_ops.zipped_divide, cute_ops.tiled_divide, cute_ops.flat_divide))
    assert offsets(zipped) == offsets(tiled) == offsets(plain)
    assert zipped.rank == 2


@settings(max_examples=100, deadline=None)
@given(compact(), compact())
def test_products(a: CuteLayout, b: CuteLayout) -> None:
    whole, refused = attempt(lambda: cute_ops.logical_product(a, b))
    if whole is None:
        assert refused == "LAY004"
        return
    assert offsets(whole[0]) == offsets(a)
    assert len(set(offsets(whole))) == len(offsets(a)) * len(offsets(b))
    assert offsets(whole[1]) == [len(offsets(a)) * x for x in offsets(b)]
    for build, first in ((cute_ops.blocked_product, 0), (cute_ops.raked_product, 1)):
        mixed = build(a, b)
        assert sorted(offsets(mixed)) == sorted(offsets(whole))
        for i, mode in enumerate(a.modes):
            assert offsets(mixed[i][first]) == offsets(mode)


@settings(max_examples=200, deadline=None)
@given(compact(2), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.permutations([0, 1]))
def test_tile_to_shape(block: CuteLayout, counts: tuple[int, int], order: list[int]) -> None:
    sizes = [len(offsets(m)) for m in block.modes] + [1]
    shape = (sizes[0] * counts[0], sizes[1] * counts[1])
    tiled = cute_ops.tile_to_shape(block, shape, order)
    assert [len(offsets(m)) for m in tiled.modes] == list(shape)
    assert sorted(offsets(tiled)) == list(range(shape[0] * shape[1]))
    for i, mode in enumerate(block.modes):
        assert offsets(tiled[i])[: sizes[i]] == offsets(mode)


@settings(max_examples=300, deadline=None)
@given(compact(), st.sampled_from([1, 2, 3, 4, 8]))
def test_recasts(a: CuteLayout, n: int) -> None:
    wide, refused = attempt(lambda: cute_ops.upcast(a, n))
    if wide is None:
        assert refused == "LAY016"
    else:
        # every wide element is n narrow ones, and no other
        assert sorted(offsets(wide)) == sorted({x // n for x in offsets(a)})
        assert len(offsets(wide)) * n == len(offsets(a))
    narrow, refused = attempt(lambda: cute_ops.downcast(a, n))
    if narrow is None:
        assert refused == "LAY016"
    else:
        assert sorted(offsets(narrow)) == sorted(n * x + k for x in offsets(a) for k in range(n))


def test_slices() -> None:
    layout = CuteLayout((4, (2, 3)), (6, (3, 1)))
    rest, offset = layout.slice((2, (None, 1)))
    assert (str(rest), offset) == ("((2)):((3))", 13)
    assert [offset + x for x in rest.offsets()] == [layout(2, (k, 1)) for k in range(2)]
    assert layout.slice((None, 4))[1] == layout(0, 4)


SWIZZLES = st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from([-4, -3, 3, 4]))


@settings(max_examples=200, deadline=None)
@given(SWIZZLES, st.integers(0, 4096), any_layout(3))
def test_swizzles(parameters: tuple[int, int, int], x: int, layout: CuteLayout) -> None:
    sw = CuteSwizzle(*parameters)
    assert sw(x) == swizzle(*parameters, x)
    assert sw(sw(x)) == x
    expression = sw.apply(sym("x"))
    assert not isinstance(expression, Expr) or expression.evaluate({"x": x}) == sw(x)
    assert sw(x + sw.period) == sw(x) + sw.period
    assert ComposedLayout(sw, 3, layout).offsets() == [swizzle(*parameters, 3 + o) for o in offsets(layout)]
    half = composition(layout, CuteLayout(layout.size, 1))
    composed = compose(ComposedLayout(sw, 3, layout), CuteLayout(layout.size, 1))
    assert isinstance(composed, ComposedLayout)
    assert composed.offsets() == [swizzle(*parameters, 3 + o) for o in offsets(half)]


@settings(max_examples=100, deadline=None)
@given(compact(), st.integers(0, 2), st.integers(0, 2))
def test_inverse_of_a_swizzled_layout(layout: CuteLayout, bits: int, base: int) -> None:
    sw = CuteSwizzle(bits, base, 2)
    assume(layout.size % sw.period == 0)
    tile = swizzled(sw, layout)
    inverse = right_inverse_of(tile)
    assert isinstance(inverse, ComposedLayout)
    assert tile.is_injective
    assert [tile(inverse(i)) for i in range(tile.cosize)] == list(range(tile.cosize))
    assert compose(sw, tile) == layout


def test_symbols_stay_symbols() -> None:
    layout = CuteLayout((sym("M"), 64), (sym("lda"), 1))
    assert str(layout) == "(M,64):(lda,1)"
    assert CuteLayout.parse("(M,64):(lda,1)") == layout
    offset = layout(sym("m"), 5)
    assert isinstance(offset, Expr)
    assert offset.evaluate({"m": 3, "lda": 100}) == 305
    assert str(cute.coalesce(CuteLayout((64, sym("M")), (1, 64)))) == "M*64:1"
    rows = CuteLayout((128, 64), (sym("lda"), 1))
    assert str(composition(rows, CuteLayout((8, 4), (1, 128)))) == "(8,4):(lda,1)"
    with pytest.raises(TilewrightError, match="LAY010"):
        composition(layout, CuteLayout(8, 1))


BAD: list[tuple[Any, str]] = [
    (lambda: CuteLayout((8, -1), (1, 8)), "LAY001"),
    (lambda: CuteLayout((8, 0), (1, 8)), "LAY001"),
    (lambda: CuteLayout((8, 2.0), (1, 8)), "LAY001"),  # type: ignore[arg-type]
    (lambda: CuteLayout(8, -1), "LAY001"),
    (lambda: CuteLayout((8, True), (1, 8)), "LAY001"),
    (lambda: CuteLayout((8, 8), (1,)), "LAY002"),
    (lambda: CuteLayout((8, 8), (1, 8))(64), "LAY005"),
    (lambda: CuteLayout((8, 8), (1, 8))(1, 8), "LAY005"),
    (lambda: CuteLayout((8, 8), (1, 8))(1, 2, 3), "LAY002"),
    (lambda: CuteLayout((8, 8), (1, 8))(1, None), "LAY002"),
    (lambda: CuteLayout.parse("(8,8):(8,"), "LAY013"),
    (lambda: CuteLayout.parse("(8,8)):8"), "LAY013"),
    (lambda: CuteLayout.parse(""), "LAY013"),
    (lambda: CuteLayout.parse("(8;8):1"), "LAY013"),
    (lambda: complement(CuteLayout((4, 4), (1, 2)), 64), "LAY006"),
    (lambda: left_inverse(CuteLayout((4, 4), (1, 0))), "LAY006"),
    (lambda: cute_ops.logical_divide(CuteLayout(6, 1), 4), "LAY009"),
    (lambda: cute_ops.tile_to_shape(CuteLayout((8, 8), (8, 1)), (12, 8)), "LAY009"),
    (lambda: cute_ops.shape_div(4, 6), "LAY009"),
    (lambda: cute_ops.shape_div((4, 3), 6), "LAY009"),
    (lambda: cute_ops.upcast(CuteLayout((3, 4), (1, 3)), 2), "LAY016"),
    (lambda: cute_ops.downcast(CuteLayout(4, 2), 2), "LAY016"),
    (lambda: cute_ops.recast(CuteLayout(4, 1), 16, 24), "LAY016"),
    (lambda: cute_ops.logical_divide(CuteLayout((4, 4)), (2, 2, 2)), "LAY002"),
    (lambda: cute_ops.make_ordered_layout((4, 4), (1, 0, 2)), "LAY002"),
    (lambda: cute.coalesce(CuteLayout(4), (1, 1)), "LAY002"),
    (lambda: CuteSwizzle(3, 4, 2), "LAY011"),
    (lambda: CuteSwizzle(-1, 4, 3), "LAY011"),
    (lambda: CuteSwizzle(3, 4, 3).recast(8, 48), "LAY016"),
    (lambda: swizzled(CuteSwizzle(3, 4, 3), CuteLayout((8, 64), (64, 1))), "LAY012"),
    (lambda: compose(CuteLayout((2, 2, 2), (1, 3, 8)), swizzled(CuteSwizzle(1, 0, 1), CuteLayout(8))), "LAY010"),
    (lambda: right_inverse_of(ComposedLayout(CuteSwizzle(1, 0, 1), 2, CuteLayout(8))), "LAY008"),
]


@pytest.mark.parametrize(("build", "code"), BAD)
def test_bad_input_is_refused_with_help(build: Any, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        build()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert diagnostic.found
    assert diagnostic.required
    assert diagnostic.help


def test_the_twins_of_the_bad_inputs_are_accepted() -> None:
    assert CuteLayout((8, 8), (1, 8))(63) == 63
    assert str(cute_ops.logical_divide(CuteLayout(6, 1), 3)) == "(3,2):(1,3)"
    assert str(cute_ops.upcast(CuteLayout((4, 4), (1, 4)), 2)) == "(2,4):(1,2)"
    assert CuteSwizzle(3, 4, 3).recast(8, 16) == CuteSwizzle(3, 3, 3)
    assert swizzled(CuteSwizzle(3, 4, 3), CuteLayout((8, 128), (128, 1))).is_injective
    assert cute_ops.tile_to_shape(CuteLayout((8, 8), (8, 1)), (16, 8)).size == 128


SWIZZLES = st.builds(
    lambda bits, base, extra, down: CuteSwizzle(bits, base, -(bits + extra) if down else bits + extra),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
)


def power_layout(seed: int, bits: int) -> CuteLayout:
    """Bits dealt to modes in a random order, perhaps with gaps: a layout that moves bits as bits."""
    rng = random.Random(seed)
    places = rng.sample(range(bits + 2), bits)
    if rng.random() < 0.5:
        places = list(range(bits)) if rng.random() < 0.5 else sorted(places)
    return cute.coalesce(CuteLayout((2,) * bits, tuple(1 << p for p in places)))


@settings(max_examples=100)
@given(SWIZZLES, SWIZZLES, st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_compositions_with_swizzles_are_pointwise(s: CuteSwizzle, t: CuteSwizzle, x: int, y: int) -> None:
    """Every form that ``compose`` takes: the answer agrees at every index, or it is refused with LAY010."""
    a, b = power_layout(x, 7), CuteLayout((4, 16, 2), (1, 4, 64)) if y % 2 else CuteLayout((8, 16), (16, 1))
    tables: dict[CuteLayout, list[int]] = {}

    def at(layout: Any, i: Any) -> Any:
        """From the definitions alone."""
        match layout:
            case CuteSwizzle(bits, base, shift):
                return swizzle(bits, base, shift, i)
            case CuteLayout():
                if layout not in tables:
                    tables[layout] = table(layout.shape, layout.stride)
                return tables[layout][i]
            case ComposedLayout(outer, offset, inner):
                return at(outer, offset + at(inner, i))

    operands = [a, s, ComposedLayout(s, 0, a), ComposedLayout(a, 0, s)]
    for outer in operands:
        for inner in (b, ComposedLayout(t, 0, b), ComposedLayout(t, 128, b)):
            found, code = attempt(lambda outer=outer, inner=inner: compose(outer, inner))
            if code:
                assert code in ("LAY010", "LAY005")
                continue
            assert [at(found, i) for i in range(128)] == [at(outer, at(inner, i)) for i in range(128)]


def test_a_layout_passes_below_a_swizzle() -> None:
    """Elements to bytes, and rows of a wider pitch: the swizzle of elements becomes one of bytes."""
    tile = ComposedLayout(CuteSwizzle(3, 3, 3), 0, CuteLayout((8, 64), (64, 1)))
    in_bytes = compose(CuteLayout(512, 2), tile)
    assert in_bytes == ComposedLayout(CuteSwizzle(3, 4, 3), 0, CuteLayout((8, 64), (128, 2)))
    assert compose(CuteSwizzle(3, 4, 3), in_bytes) == CuteLayout((8, 64), (128, 2))
    assert compose(CuteSwizzle(1, 3, 4), CuteSwizzle(1, 4, 4)) == CuteSwizzle(2, 3, 4)
    with pytest.raises(TilewrightError, match="LAY010"):
        compose(CuteLayout((8, 60), (60, 1)), tile)
    with pytest.raises(TilewrightError, match="LAY010"):
        compose(ComposedLayout(CuteSwizzle(1, 0, 1), 0, CuteLayout(512, 1)), tile)
