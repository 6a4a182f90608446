"""Domains and piecewise layouts against listed points; cuts, groups, bands, covers; refusals."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from support.attempts import attempt
from support.timing import quickest
from tilewright.base.expr import Expr, all_of, any_of, maximum, minimum, sym
from tilewright.layout.library.affine import AffineLayout
from tilewright.layout.library.domain import CoreTails, Domain, exact_cover
from tilewright.layout.library.piecewise import Piece, PiecewiseLayout

row, col, K, M, N = map(sym, "ijKMN")


def box(**extents: Expr | int | tuple[Expr | int, Expr | int]) -> Domain:
    return Domain.box(extents)


def test_core_and_tails_of_a_symbolic_box_are_exact_and_quick() -> None:
    cuts: list[CoreTails] = []

    def cut_exactly() -> None:
        cuts.append(box(i=M, j=N, k=K).core_tails((128, 128, 64), align=(1, 8, 8)))
        assert cuts[-1].cover().is_exact

    assert quickest(cut_exactly, 0.020) < 0.020  # 3 ms on an idle core
    cut = cuts[-1]
    assert exact_cover(cut.pieces, box(i=M, j=N, k=K)).is_exact
    assert [str(b) for _, b in cut.core.bounds or ()] == ["(M // 128)*128", "(N // 128)*128", "(K // 64)*64"]
    assert (len(cut.tails), len(cut.rests)) == (3, 2)


@pytest.mark.parametrize(("m", "n"), [(0, 5), (1, 1), (8, 12), (13, 7), (16, 24), (23, 3)])
def test_cuts_by_points(m: int, n: int) -> None:
    cut = box(i=M, j=(3, N)).core_tails((8, 6), align=(4, 2))
    listed = [list(p.points(M=m, N=n)) for p in cut.pieces]
    assert sorted(x for piece in listed for x in piece) == list(product(range(m), range(3, n)))
    whole = {
        (i, j) for i, j in product(range(m), range(3, n)) if (i | 7) < m and j // 6 * 6 >= 3 and j // 6 * 6 + 6 <= n
    }
    assert set(listed[0]) == whole
    for piece in cut.tails:
        assert len(list(piece.points(M=m, N=n))) % 2 == 0


def test_cuts_of_any_start_and_of_any_shape() -> None:
    start, stop = sym("a"), sym("b")
    line = box(i=(start, stop))
    assert exact_cover(line.core_tails((8,), align=(4,)).pieces, line).is_exact
    assert line.core_tails((8,), align=(4,)).cover().is_exact
    lost = line.core_tails((8,), align=(4,))
    lost = replace(lost, lines=tuple((whole, parts[1:]) for whole, parts in lost.lines))
    assert lost.cover().gap is not None
    shape = Domain.of(("i", "j"), all_of([row >= 0, col >= 0, row + col < M]))
    cut = shape.core_tails((4, 4), align=(2, 1))
    assert exact_cover(cut.pieces, shape).is_exact
    tiles = {(i, j) for i, j in product(range(20), repeat=2) if i // 4 * 4 + j // 4 * 4 + 6 < 20}
    assert set(cut.core.points(M=20)) == tiles
    plain = Domain.of(("i", "j"), box(i=M, j=N).constraint)
    assert plain.whole((16, 8)).equal(box(i=M, j=N).whole((16, 8)))
    moved = plain.whole((16, 8), (sym("s"), 3))
    assert moved.equal(Domain.of(("i", "j"), box(i=M, j=N).whole((16, 8), (sym("s"), 3)).constraint))


def test_covers_tell_where_they_fail() -> None:
    whole = box(i=8)
    assert exact_cover([box(i=5), box(i=(5, 8))], whole).is_exact
    gap = exact_cover([box(i=4), box(i=(5, 8))], whole)
    assert (gap.overlap, gap.gap, gap.outside) == (None, "[4]", None)
    overlap = exact_cover([box(i=5), box(i=(4, 8))], whole)
    assert (overlap.overlap, overlap.gap) == ("[4]", None)
    assert exact_cover([box(i=5), box(i=(5, 9))], whole).outside == "[8]"


def test_groups_have_cores_and_tails_of_their_own() -> None:
    ends = [sym("e0"), sym("e1"), M]
    rows = box(i=M, j=64).assume(all_of([sym("e0") >= 0, sym("e0") <= sym("e1"), sym("e1") <= M]))
    groups = box(i=M, j=64).groups("i", ends)
    assert exact_cover([g.intersect(rows) for g in groups], rows).is_exact
    second = groups[1].core_tails((32, 64), origin=(sym("e0"), 0))
    points = list(second.core.points(M=200, e0=10, e1=140))
    assert (min(points)[0], max(points)[0]) == (10, 137)
    assert attempt(lambda: box(i=M).groups("i", []))[1] == "LAY021"
    assert attempt(lambda: box(i=M).groups("j", [M]))[1] == "LAY002"


def test_diagonals() -> None:
    tile = (64, 32)
    bands = box(i=256, j=160).bands(col <= row, tile)
    full, diagonal, edge = (set(d.points()) for d in (bands.full, bands.diagonal, bands.edge))
    assert full | diagonal | edge == {(i, j) for i, j in product(range(256), range(160)) if j <= i}
    assert not edge
    assert full == {(i, j) for i, j in product(range(256), range(160)) if j // 32 * 32 + 31 <= i // 64 * 64}
    assert set(box(i=100, j=64).bands(col <= row, tile).edge.points()) == {
        (i, j) for i, j in product(range(64, 100), range(64)) if j <= i
    }


def test_set_operations_agree_with_sets() -> None:
    rng = random.Random(5)
    for _ in range(40):
        a, b = (_random_domain(rng) for _ in range(2))
        pa, pb = set(a.points()), set(b.points())
        assert set(a.union(b).points()) == pa | pb
        assert set(a.intersect(b).points()) == pa & pb
        assert set(a.minus(b).points()) == pa - pb
        assert (a.is_empty, a.subset(b), a.equal(b), a.disjoint(b)) == (not pa, pa <= pb, pa == pb, not pa & pb)


def _random_domain(rng: random.Random) -> Domain:
    limits = [row >= rng.randint(0, 4), row < rng.randint(3, 9), col >= rng.randint(0, 4), col < rng.randint(3, 9)]
    more = rng.choice(
        [
            row + 2 * col < rng.randint(3, 20),
            (row % rng.randint(2, 4)).eq(1),
            any_of([row < 3, col > 5]),
            minimum(row, col) < rng.randint(1, 6),
            (row // 2).ne(col // 3),
            maximum(row, col) >= rng.randint(1, 6),
        ]
    )
    return Domain.of(("i", "j"), all_of([*limits, more]))


def ragged() -> PiecewiseLayout:
    core = M // 8 * 8
    return PiecewiseLayout.of(
        ("i",), ("o",), [(all_of([row >= 0, row < core]), [2 * row]), (all_of([core <= row, row < M]), [row + 100])]
    )


def test_values_and_questions() -> None:
    layout = ragged()
    assert [layout(i, M=11) for i in range(11)] == [(2 * i,) if i < 8 else (i + 100,) for i in range(11)]
    assert attempt(lambda: layout(11, M=11))[1] == "LAY005"
    assert attempt(lambda: layout(1, 2, M=11))[1] == "LAY002"
    assert layout.domain.assume(M >= 0).equal(box(i=M).assume(M >= 0))
    assert not layout.is_injective  # 2 * 104 == 108 + 100 for M large
    assert layout.restrict(box(i=64)).is_injective
    assert layout.image().assume(M >= 0).subset(Domain.of(("o",), sym("o") >= 0))
    assert layout.covers(Domain.of(("o",), all_of([sym("o") >= 0, sym("o") < 2]))) is not None
    assert layout.subset(layout) is None
    assert layout.subset(layout.restrict(box(i=4))) is not None


def test_composition() -> None:
    flip = PiecewiseLayout.from_affine(AffineLayout.strided(12, -1, "i", "o", start=11))
    twice = flip.compose(flip)
    assert [twice(x) for x in range(12)] == [(x,) for x in range(12)]
    halves = PiecewiseLayout.of(("p",), ("q",), [(all_of([sym("p") >= 0, sym("p") < 6]), [sym("p") * 3])])
    cut = flip.compose(halves)
    assert list(cut.domain.points()) == [(i,) for i in range(6, 12)]
    assert cut(8) == (9,)
    wrapped = PiecewiseLayout.from_affine(AffineLayout.strided(7, 3, "i", "o", modulus=7), box(i=(2, 5)))
    assert [wrapped(i) for i in (2, 3, 4)] == [(6,), (2,), (5,)]
    assert wrapped.is_injective
    assert (
        attempt(
            lambda: flip.compose(
                PiecewiseLayout.from_affine(AffineLayout.of({"a": 2, "b": 2}, {"c": None}, {"a": [1], "b": [2]}))
            )
        )[1]
        == "LAY002"
    )


def test_bad_input() -> None:
    assert attempt(lambda: Domain.of(("i",), row < M * N))[1] == "LAY023"
    assert attempt(lambda: Domain.of(("i",), row < M * 3))[1] == ""
    assert attempt(lambda: Domain.of(("i",), (row ^ col) < 3))[1] == "LAY023"
    assert attempt(lambda: Domain.of(("i",), row // M < 3))[1] == "LAY023"
    assert attempt(lambda: list(Domain.of(("i",), row >= 0).points()))[1] == "LAY022"
    assert attempt(lambda: list(box(i=M).points()))[1] == "LAY022"
    assert attempt(lambda: list(box(i=M).points(M=3)))[1] == ""
    assert attempt(lambda: box(i=8).union(box(j=8)))[1] == "LAY002"
    assert attempt(lambda: box(i=8).whole((4, 4)))[1] == "LAY002"
    assert attempt(lambda: box(i=8).whole((0,)))[1] == "LAY001"
    assert attempt(lambda: box(i=8).core_tails((8,), align=(3,)))[1] == "LAY002"
    assert attempt(lambda: Domain.of(("i", "i"), row < 3))[1] == "LAY002"
    empty, one = Domain.of(("i",), all_of([row >= 4, row < 4])), Domain.of(("i",), all_of([row >= 4, row < 5]))
    assert attempt(lambda: PiecewiseLayout(("i",), ("o",), (Piece(empty, (row,)),)))[1] == "LAY021"
    assert attempt(lambda: PiecewiseLayout(("i",), ("o",), (Piece(one, (row,)),)))[1] == ""
    assert attempt(lambda: PiecewiseLayout(("i",), ("o",), ()))[1] == "LAY021"
    assert attempt(lambda: PiecewiseLayout(("i",), ("o", "p"), (Piece(one, (row,)),)))[1] == "LAY002"
    apart = [Piece(box(i=5), (row,)), Piece(box(i=(5, 8)), (row,))]
    assert attempt(lambda: PiecewiseLayout(("i",), ("o",), tuple(apart)))[1] == ""
    apart[1] = Piece(box(i=(4, 8)), (row,))
    assert attempt(lambda: PiecewiseLayout(("i",), ("o",), tuple(apart)))[1] == "LAY024"
