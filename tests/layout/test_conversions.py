"""Conversions between the kinds, equality with its proof, inclusion: against tables."""

from __future__ import annotations

import random
from itertools import product

import pytest

from support.affine_oracle import random_case
from support.attempts import attempt
from tilewright.base.expr import all_of, sym
from tilewright.layout.cute import CuteLayout
from tilewright.layout.equality import Equal, ProofKind
from tilewright.layout.equality import cute_of as core_cute_of
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library import fragments
from tilewright.layout.library.affine import AffineLayout
from tilewright.layout.library.conversions import (
    Counterexample,
    Layout,
    affine_of,
    cute_of,
    equal,
    f2_of,
    piecewise_of,
    register_of,
    subset,
    table,
)
from tilewright.layout.library.piecewise import PiecewiseLayout
from tilewright.layout.library.swizzle_algebra import swizzled
from tilewright.layout.register import RegisterLayout
from tilewright.layout.swizzle import CuteSwizzle

FORMS: list[Layout] = [
    CuteLayout((6, (2, 4)), (8, (1, 2))),
    F2Layout.of({"register": [(1, 0), (0, 4)], "lane": [(2, 0), (0, 1), (0, 2)]}, {"dim0": 4, "dim1": 8}),
    fragments.wgmma_accumulator(64, 24),
    fragments.mma_accumulator(16, 24),
    AffineLayout.of({"i": (2, 3), "j": 5}, {"o": 7}, {"i": [3, -1], "j": [2]}, [4]),
]


@pytest.mark.parametrize("layout", FORMS, ids=[type(x).__name__ for x in FORMS])
def test_affine_forms_hold_the_same_values(layout: Layout) -> None:
    form = affine_of(layout)
    assert list(form.table()) == list(table(layout))
    assert equal(layout, form) == Equal(ProofKind.SMITH)
    assert list(table(piecewise_of(layout))) == list(table(layout))
    assert isinstance(equal(form, piecewise_of(layout)), Equal)


def test_there_and_back() -> None:
    cute, f2, acc = FORMS[0], FORMS[1], FORMS[2]
    assert cute_of(affine_of(cute)) == cute
    assert f2_of(affine_of(f2)) == f2
    assert register_of(affine_of(acc)) == acc
    simple = AffineLayout.of({"i": 6, "j": 5}, {"o": None}, {"i": [5], "j": [1]})
    assert affine_of(piecewise_of(simple)) == simple
    wrapped = AffineLayout.strided(6, 5, "i", "o", modulus=6)
    assert affine_of(piecewise_of(wrapped)).canonical() == wrapped
    calm = AffineLayout.strided(4, 3, "i", "o", modulus=16)
    assert cute_of(calm) == CuteLayout(4, 3)


def test_partial_conversions_say_why() -> None:
    swizzle = swizzled(CuteSwizzle(3, 3, 3), CuteLayout((8, 64), (64, 1)))
    assert attempt(lambda: affine_of(swizzle))[1] == "LAY010"
    assert attempt(lambda: affine_of(F2Layout.of({"i": [(1,), (3,)]}, {"o": 4})))[1] == "LAY010"
    back = AffineLayout.strided(4, -1, "i", "o", start=3)
    for convert in (cute_of, f2_of):
        assert attempt(lambda c=convert: c(back))[1] == "LAY010"
        assert attempt(lambda c=convert: c(AffineLayout.strided(6, 5, "i", "o", modulus=6)))[1] == "LAY010"
    assert attempt(lambda: f2_of(AffineLayout.strided(6, 1, "i", "o")))[1] == "LAY010"
    assert attempt(lambda: f2_of(AffineLayout.of({"i": 4, "j": 2}, {"o": None}, {"i": [1], "j": [2]})))[1] == "LAY010"
    assert attempt(lambda: f2_of(AffineLayout.of({"i": 4, "j": 2}, {"o": None}, {"i": [1], "j": [4]})))[1] == ""
    assert attempt(lambda: register_of(back))[1] == "LAY010"
    m = sym("M")
    ragged = PiecewiseLayout.of(("i",), ("o",), [(all_of([sym("i") >= 0, sym("i") < m]), [sym("i")])])
    assert attempt(lambda: affine_of(ragged))[1] == "LAY010"


def test_proof_kinds() -> None:
    bits, rows = F2Layout.identity(8, "i", "o"), CuteLayout((2, 4), (1, 2))
    assert equal(bits, rows) == Equal(ProofKind.F2)
    assert equal(bits, AffineLayout.identity(8, "i", "o")) == Equal(ProofKind.SMITH)
    swizzle = swizzled(CuteSwizzle(1, 0, 2), CuteLayout(8, 1))
    xored = PiecewiseLayout.of(
        ("i",),
        ("o",),
        [
            (all_of([sym("i") >= 0, sym("i") < 4]), [sym("i")]),
            (all_of([sym("i") >= 4, sym("i") < 8]), [sym("i") + 1 - 2 * (sym("i") % 2)]),
        ],
    )
    assert equal(swizzle, xored) == Equal(ProofKind.ENUMERATED)  # no bits in isl
    assert list(table(swizzle)) == list(table(xored))
    assert subset(swizzle, xored) is None
    acc = fragments.mma_accumulator(16, 8)
    assert equal(acc, acc.atom) == Equal(ProofKind.SMITH)
    twisted = F2Layout.of({"i": [(1,), (3,)]}, {"o": 4})
    assert equal(twisted, AffineLayout.of({"i": (2, 2)}, {"o": 4}, {"i": [1, 3]})) == Counterexample(3, (2,), (0,))
    assert equal(twisted, AffineLayout.of({"i": (2, 2)}, {"o": 2}, {"i": [1, 1]})) == Counterexample(2, (3,), (1,))
    m = sym("M")
    a, b = (AffineLayout.of({"i": m, "j": 4}, {"o": None}, {"i": [s], "j": [1]}) for s in (4, 5))
    assert equal(a, a) == Equal(ProofKind.ISL)
    assert isinstance(equal(a, b), Counterexample)


def test_equality_agrees_with_tables() -> None:
    rng = random.Random(30)
    same = 0
    for _ in range(400):
        case = random_case(rng, 60)
        a, b = case.layout, random_case(rng, 60).layout
        if rng.random() < 0.7:
            m = rng.choice((None, 5, 7, 8, 12, 60))
            b = a.modulo(dict.fromkeys(a.out_names, m)) if rng.random() < 0.5 else a.canonical()
        found = equal(a, b)
        left, right = list(a.table()), list(b.table())
        assert isinstance(found, Equal) == (left == right)
        same += left == right
        if isinstance(found, Counterexample) and found.place != -1:
            assert isinstance(found.place, int)
            assert left[found.place] == found.left != found.right == right[found.place]
    assert 100 < same < 350


def test_inclusion() -> None:
    whole, part = AffineLayout.strided(12, 5, "i", "o"), AffineLayout.strided(7, 5, "i", "o")
    assert subset(part, whole) is None
    assert isinstance(subset(whole, part), Counterexample)
    assert isinstance(subset(AffineLayout.strided(7, 4, "i", "o"), whole), Counterexample)
    sw = swizzled(CuteSwizzle(1, 0, 2), CuteLayout(8, 1))
    assert subset(sw, sw) is None
    assert subset(sw, CuteLayout(8, 1)) == Counterexample(4, (5,), (4,))
    assert isinstance(subset(sw, CuteLayout(4, 1)), Counterexample)
    assert (
        attempt(lambda: equal(AffineLayout.strided(1 << 23, 1, "i", "o"), F2Layout.of({"i": [(3,)] * 23}, {"o": 4})))[1]
        == "LAY010"
    )


def in_all_kinds(columns: list[int]) -> list[Layout]:
    """One map of 7 bits as every kind that can hold it."""
    bits = F2Layout((("i", len(columns)),), (("o", 7),), tuple(columns))
    found: list[Layout] = [bits]
    for convert in (affine_of, piecewise_of, core_cute_of):
        form, _ = attempt(lambda c=convert: c(bits))
        found += [form] if form is not None else []
    if len(columns) == 7:
        atom = F2Layout((("register", 2), ("lane", 5), ("warp", 0)), (("dim0", 7),), tuple(columns))
        form, _ = attempt(lambda: RegisterLayout((128,), atom))
        found += [form] if form is not None else []
    return found


def test_equality_and_inclusion_between_all_kinds() -> None:
    """Every pair of kinds, equal or changed in one place, answered as the tables say."""
    rng = random.Random(5)
    seen: set[tuple[type, type, bool]] = set()
    for turn in range(10):
        columns = rng.sample([1, 2, 4, 8, 16, 32, 64], 4 if turn % 3 else 7)
        other = list(columns)
        if rng.random() < 0.3:
            columns[0] |= columns[1]
            other = list(columns)
        if rng.random() < 0.5:
            i, j = rng.sample(range(len(other)), 2)
            other[i], other[j] = other[j], other[i]
        for a, b in product(in_all_kinds(columns), in_all_kinds(other)):
            left, right = list(table(a)), list(table(b))
            found = equal(a, b)
            assert isinstance(found, Equal) == (left == right)
            assert (subset(a, b) is None) == (left == right)
            if isinstance(found, Counterexample) and isinstance(found.place, int):
                assert left[found.place] == found.left != found.right == right[found.place]
            seen.add((type(a), type(b), left == right))
    kinds = {k for a, b, _ in seen for k in (a, b)}
    assert {F2Layout, AffineLayout, PiecewiseLayout, RegisterLayout, CuteLayout} <= kinds
    assert len(seen) >= 40
    two = PiecewiseLayout.from_affine(AffineLayout.of({"i": 2, "j": 4}, {"o": None}, {"i": [4], "j": [1]}))
    one = PiecewiseLayout.from_affine(AffineLayout.strided(8, 1, "i", "o"))
    assert attempt(lambda: two.subset(one))[1] == "LAY002"
