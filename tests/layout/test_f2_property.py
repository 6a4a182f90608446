"""F2Layout on random bases: every result satisfies its definition, judged by tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.attempts import attempt
from tilewright.diag import TilewrightError
from tilewright.layout import gf2_vectors
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library.f2_algebra import divide_left, divide_right, reshape_ins, reshape_outs


@st.composite
def layouts(draw: st.DrawFn, ins: tuple[str, ...] = ("a", "b"), outs: tuple[str, ...] = ("x", "y")) -> F2Layout:
    sizes = {name: draw(st.integers(0, 3)) for name in outs}
    bases = {
        name: [tuple(draw(st.integers(0, (1 << sizes[o]) - 1)) for o in outs) for _ in range(draw(st.integers(0, 3)))]
        for name in ins
    }
    return F2Layout.of(bases, {o: 1 << n for o, n in sizes.items()})


def image(layout: F2Layout) -> list[int]:
    """Packed outputs by input, from the bases alone."""
    found = [0]
    shift = {name: sum(b for _, b in layout.outs[:i]) for i, (name, _) in enumerate(layout.outs)}
    for _, images in layout.bases:
        for basis in images:
            word = 0
            for (name, _), value in zip(layout.outs, basis, strict=True):
                word += value << shift[name]
            found += [x ^ word for x in found]
    return found


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_application_and_measures(a: F2Layout) -> None:
    found = image(a)
    assert [a(i) for i in range(len(found))] == found
    assert 1 << a.rank == len(set(found))
    assert a.is_injective == (len(set(found)) == len(found))
    assert a.is_surjective == (len(set(found)) == 1 << a.out_bits)
    kernel = {0}
    for vector in a.kernel:
        kernel |= {x ^ vector for x in kernel}
    assert kernel == {i for i, x in enumerate(found) if x == 0}
    free = a.free_variable_masks()
    mask = free["a"] | free["b"] << a.in_axis_bits("a")
    kept = [x for i, x in enumerate(found) if not i & mask]
    assert sorted(kept) == sorted(set(found))
    point = a.apply(a=(1 << a.in_axis_bits("a")) - 1, b=0)
    assert point["x"] + (point["y"] << a.out_axis_bits("x")) == found[(1 << a.in_axis_bits("a")) - 1]


@settings(max_examples=200, deadline=None)
@given(layouts(), layouts(("x", "y"), ("u", "v")))
def test_composition(a: F2Layout, b: F2Layout) -> None:
    composed, code = attempt(lambda: a.compose(b))
    fits = all(n <= b.in_axis_bits(name) for name, n in a.outs)
    assert (code == "") == fits
    if composed is not None:
        for i, x in enumerate(image(a)):
            at = dict(zip(("x", "y"), a.unpack(x), strict=True))
            assert composed.unpack(image(composed)[i]) == tuple(b.apply(**at).values())


@settings(max_examples=200, deadline=None)
@given(layouts(), layouts(("b", "c"), ("y", "z")))
def test_products_and_divisions(a: F2Layout, b: F2Layout) -> None:
    whole = a * b
    for i in range(0, 1 << a.in_bits, 3):
        for j in range(0, 1 << b.in_bits, 2):
            ai, aj = i & ((1 << a.in_axis_bits("a")) - 1), i >> a.in_axis_bits("a")
            bj, bc = j & ((1 << b.in_axis_bits("b")) - 1), j >> b.in_axis_bits("b")
            left, right = a.apply(a=ai, b=aj), b.apply(b=bj, c=bc)
            at = whole.apply(a=ai, b=aj + (bj << a.in_axis_bits("b")), c=bc)
            assert at == {"x": left["x"], "y": left["y"] + (right["y"] << a.out_axis_bits("y")), "z": right["z"]}
    for found, build in ((divide_left(whole, a), lambda q: a * q), (divide_right(whole, b), lambda q: q * b)):
        assert found is not None
        again = build(found)
        assert again.transpose_ins(whole.in_names).transpose_outs(whole.out_names) == whole


@settings(max_examples=200, deadline=None)
@given(layouts(), layouts())
def test_a_quotient_that_does_not_exist_is_none(a: F2Layout, b: F2Layout) -> None:
    quotient = divide_left(a, b)
    if quotient is not None:
        assert (b * quotient).transpose_ins(a.in_names).transpose_outs(a.out_names) == a


@settings(max_examples=200, deadline=None)
@given(layouts(), layouts(("c", "d")))
def test_invert_and_compose(a: F2Layout, b: F2Layout) -> None:
    if any(n > b.out_axis_bits(name) for name, n in a.outs):
        assert attempt(lambda: a.invert_and_compose(b))[1] == "LAY002"
        return
    reached = {b.unpack(x) for x in image(b)}
    moves, code = attempt(lambda: a.invert_and_compose(b))
    assert (code == "") == all(a.unpack(x) in reached for x in image(a))
    if moves is not None:
        for i, x in enumerate(image(a)):
            assert b.unpack(b(moves(i))) == a.unpack(x)


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_inverses(a: F2Layout) -> None:
    pseudo, code = attempt(a.pseudo_invert)
    assert (code == "") == a.is_surjective
    if pseudo is not None:
        assert [a(pseudo(y)) for y in range(1 << a.out_bits)] == list(range(1 << a.out_bits))
    inverse, code = attempt(a.invert)
    assert (code == "") == a.is_bijective
    if inverse is not None:
        assert [inverse(a(i)) for i in range(1 << a.in_bits)] == list(range(1 << a.in_bits))


@settings(max_examples=100, deadline=None)
@given(layouts())
def test_reshaping_keeps_the_map(a: F2Layout) -> None:
    assert reshape_ins(a.flatten_ins(), {n: 1 << b for n, b in a.ins}) == a
    assert reshape_outs(a.flatten_outs(), {n: 1 << b for n, b in a.outs}) == a
    turned = a.transpose_outs(("y", "x")).transpose_ins(("b", "a"))
    assert turned.transpose_ins(("a", "b")).transpose_outs(("x", "y")) == a
    assert turned.apply(a=0, b=0) == {"y": 0, "x": 0}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=8), st.integers(0, 255))
def test_solving(columns: list[int], target: int) -> None:
    span = {0: 0}
    for i, c in enumerate(columns):
        span |= {x ^ c: how | 1 << i for x, how in span.items() if x ^ c not in span}
    solved = gf2_vectors.solve(columns, [target])
    if target in span:
        assert not isinstance(solved, int)
        assert gf2_vectors.apply(columns, solved[0]) == target
    else:
        assert solved == target


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: F2Layout.identity(24, "a", "x"), "LAY003"),
        (lambda: F2Layout.identity(0, "a", "x"), "LAY001"),
        (lambda: F2Layout.identity(2.0, "a", "x"), "LAY001"),  # type: ignore[arg-type]
        (lambda: F2Layout.of({"a": [[1, 0]]}, {"x": 2}), "LAY002"),
        (lambda: F2Layout.of({"a": [[2]]}, {"x": 2}), "LAY005"),
        (lambda: F2Layout((("a", 2),), (("x", 1),), (1,)), "LAY002"),
        (lambda: F2Layout((("a", 1),), (("x", 1),), (2,)), "LAY002"),
        (lambda: F2Layout((("a", 0), ("a", 0)), (), ()), "LAY002"),
        (lambda: F2Layout.identity(4, "a", "x").apply(b=0), "LAY002"),
        (lambda: F2Layout.identity(4, "a", "x").apply(a=4), "LAY005"),
        (lambda: F2Layout.identity(4, "a", "x").in_axis_bits("b"), "LAY002"),
        (lambda: reshape_outs(F2Layout.identity(4, "a", "x"), {"y": 2}), "LAY002"),
        (lambda: F2Layout.identity(4, "a", "x").transpose_ins(("b",)), "LAY002"),
        (lambda: F2Layout.zeros(2, "a", "x").invert(), "LAY008"),
    ],
)
def test_bad_input_is_refused_with_help(build: object, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        build()  # type: ignore[operator]
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, bool(diagnostic.help)) == (code, True)
