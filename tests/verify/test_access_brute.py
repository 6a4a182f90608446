"""Verdicts of the access proofs against enumeration of every program, thread and register at small extents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.base.expr import TRUE, Const, Expr, all_of, any_of, ceildiv, minimum, negate, sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.protocol.access import (
    AccessKind,
    AccessMap,
    IndexRole,
    KernelAccesses,
    LaunchParameter,
    LoopIndex,
    StoreDomain,
)
from tilewright.verify.access import AccessFault, prove_cover, prove_guards

TID, R = sym("$tid"), sym("$r")
SMALL = range(1, 12)


def _ranges(scope: tuple[LoopIndex, ...], known: dict[str, int]):
    """All assignments of the indices, by nested loops over their ranges."""
    if not scope:
        yield known
        return
    first, *rest = scope
    for value in range(*(e.evaluate(known) for e in (first.begin, first.end, first.step))):
        yield from _ranges(tuple(rest), {**known, first.name: value})


def _elements(scope: tuple[LoopIndex, ...], predicate: Expr, coords: tuple[Expr, ...], known: dict[str, int]):
    for point in _ranges(scope, known):
        if predicate.evaluate(point):
            yield tuple(c.evaluate(point) for c in coords)


def _faults(kernel: KernelAccesses, domain: StoreDomain, known: dict[str, int]) -> set[AccessFault]:
    """What is wrong at one choice of extents."""
    found: set[AccessFault] = set()
    written: Counter[tuple[int, ...]] = Counter()
    for access in kernel.accesses:
        written.update(_elements(access.indices, access.predicate, access.coords, known))
    extents = [d.evaluate(known) for d in kernel.accesses[0].dims]
    promised = set(_elements(domain.indices, domain.guard, domain.coords, known))
    if any(not all(0 <= x < e for x, e in zip(element, extents, strict=True)) for element in written):
        found.add(AccessFault.OUTSIDE)
    if any(count > 1 for count in written.values()):
        found.add(AccessFault.TWICE)
    if promised - written.keys():
        found.add(AccessFault.MISSED)
    if written.keys() - promised:
        found.add(AccessFault.STRAY)
    return found


def _judge(kernel: KernelAccesses, domain: StoreDomain) -> None:
    """Proved means no fault at any small extent; Refuted means that fault at the witness' extents."""
    names = [p.name for p in kernel.parameters]
    everywhere = set[AccessFault]()
    for values in product(SMALL, repeat=len(names)):
        everywhere |= _faults(kernel, domain, dict(zip(names, values, strict=True)))
    guards, (cover,) = prove_guards(kernel), prove_cover(kernel, [domain])
    if AccessFault.OUTSIDE in everywhere:
        assert any(isinstance(g, Refuted) for g in guards)
    if everywhere - {AccessFault.OUTSIDE}:
        assert isinstance(cover, Refuted)
    for answer in (*guards, cover):
        assert not isinstance(answer, Unknown), answer
        if isinstance(answer, Refuted):
            witness = answer.witness
            known = {**dict.fromkeys(names, 1), **dict(witness.parameters)}
            if prod(known.values()) < 400:
                assert witness.fault in _faults(kernel, domain, known)


@st.composite
def kernels(draw: st.DrawFn) -> tuple[KernelAccesses, StoreDomain]:
    """Digits of tid and r dealt to the dimensions, mostly as they should be, sometimes with one thing broken."""
    rank = draw(st.integers(1, 2))
    dims = [sym(n) for n in "MN"[:rank]]
    digits: list[tuple[Expr, int]] = []
    for name, extent in ((TID, draw(st.sampled_from([4, 6, 8]))), (R, draw(st.sampled_from([1, 2, 4])))):
        cut = draw(st.sampled_from([d for d in range(1, extent + 1) if extent % d == 0]))
        digits += [(name % cut, cut), (name // cut, extent // cut)]
    threads, registers = digits[0][1] * digits[1][1], digits[2][1] * digits[3][1]
    digits = [d for d in draw(st.permutations(digits)) if d[1] > 1]
    owner: Expr = TRUE
    if digits and draw(st.booleans()):  # one digit holds copies; mostly one of them stores
        copies, size = digits.pop()
        keep = draw(st.integers(0, size - 1))
        owner = draw(st.sampled_from([copies.eq(keep), copies.eq(keep), copies <= 0, copies < 2, copies.ne(0), TRUE]))
    places, reach = [Const(0) for _ in dims], [1] * rank
    for digit, size in digits:
        if draw(st.integers(0, 3)) == 0:
            digit = size - 1 - digit
        dim = draw(st.integers(0, rank - 1))
        places[dim] = places[dim] + digit * reach[dim]
        reach[dim] *= size
    tiles = [draw(st.sampled_from([r, r, max(1, r - 1)])) for r in reach]
    broken = draw(st.sampled_from(["", "", "guard", "late", "early", "extent", "overlap", "gap", "shift", "tile"]))
    victim = draw(st.integers(0, rank - 1))
    programs, coords, guards = list[LoopIndex](), list[Expr](), [owner]
    for d, (dim, place, tile, covered) in enumerate(zip(dims, places, tiles, reach, strict=True)):
        hit = d == victim
        p = sym(f"p{d}")
        count = dim // tile if hit and broken == "extent" else ceildiv(dim, tile)
        programs.append(LoopIndex(p.name, IndexRole.PROGRAM, Const(0), count))
        stride = tile + {"overlap": -1, "gap": 1}.get(broken, 0) * hit
        coord = p * stride + place + int(hit and broken == "shift")
        coords.append(coord)
        if covered > tile and not (hit and broken == "tile"):
            guards.append(place < tile)
        if not (hit and broken == "guard"):
            guards.append(coord < dim + {"late": 1, "early": -1}.get(broken, 0) * hit)
    inside = all_of(guards)
    scope = (
        *programs,
        LoopIndex("$tid", IndexRole.THREAD, Const(0), Const(threads)),
        LoopIndex("$r", IndexRole.REGISTER, Const(0), Const(registers)),
    )

    def access(op: str, conditions: tuple[Expr, ...], guard: Expr) -> AccessMap:
        return AccessMap(op, "k.py:1", "", "y", AccessKind.WRITE, tuple(dims), scope, conditions, guard, tuple(coords))

    accesses = [access("store y", (), inside)]
    if draw(st.booleans()):  # programs wholly inside without guards, the others with
        full = all_of((sym(f"p{d}") + 1) * t <= m for d, (m, t) in enumerate(zip(dims, tiles, strict=True)))
        local = all_of([owner, *(p < t for p, t, c in zip(places, tiles, reach, strict=True) if c > t)])
        accesses = [access("interior", (full,), local), access("edge", (negate(full),), inside)]
    parameters = tuple(LaunchParameter(d.name, 1) for d in dims)
    axes = tuple(LoopIndex(f"i{d}", IndexRole.AXIS, Const(0), dim) for d, dim in enumerate(dims))
    domain = StoreDomain("y", "k.py:1", axes, tuple(sym(a.name) for a in axes), TRUE)
    return KernelAccesses("k", parameters, (), tuple(accesses)), domain


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels())
def test_verdicts_agree_with_enumeration(case: tuple[KernelAccesses, StoreDomain]) -> None:
    _judge(*case)


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels())
def test_more_verdicts_agree_with_enumeration(case: tuple[KernelAccesses, StoreDomain]) -> None:
    _judge(*case)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(-1, 1))
def test_streams_with_a_tail(block: int, threads: int, registers: int, begin: int, slip: int) -> None:
    """A loop over whole blocks without guard, then one guarded step."""
    m, c = sym("M"), sym("c")
    whole = begin + (m - begin) // block * block
    place = TID * registers + R
    fixed = (
        LoopIndex("$tid", IndexRole.THREAD, Const(0), Const(threads)),
        LoopIndex("$r", IndexRole.REGISTER, Const(0), Const(registers)),
    )
    cta = LoopIndex("cta", IndexRole.PROGRAM, Const(0), Const(1))
    loop = LoopIndex("c", IndexRole.COUNTER, Const(begin), whole, Const(block))

    def access(op: str, scope: tuple[LoopIndex, ...], coord: Expr, guard: Expr) -> AccessMap:
        return AccessMap(op, "", "", "y", AccessKind.WRITE, (m,), scope, (), guard, (coord,))

    body = access("body", (cta, loop, *fixed), c + place, place < block)
    tail = access("tail", (cta, *fixed), whole + place + slip, all_of([place < block, whole + place + slip < m]))
    kernel = KernelAccesses("k", (LaunchParameter("M", max(begin, 1)),), (), (body, tail))
    domain = StoreDomain("y", "", (LoopIndex("i", IndexRole.AXIS, Const(begin), m),), (sym("i"),))
    faults = set[AccessFault]()
    for extent in range(max(begin, 1), 20):
        faults |= _faults(kernel, domain, {"M": extent})
    (cover,) = prove_cover(kernel, [domain])
    assert isinstance(cover, Refuted if faults - {AccessFault.OUTSIDE} else Proved), (faults, cover)
    outside = any(isinstance(g, Refuted) for g in prove_guards(kernel))
    assert outside == (AccessFault.OUTSIDE in faults)


# -- numbers of two digits by an extent of the launch, and elements counted backwards ----------------------------------
FEW = range(1, 6)


def _judge_where_decided(kernel: KernelAccesses, domain: StoreDomain) -> bool:
    """The same, where the proofs may be open; whether everything is proved."""
    names = [p.name for p in kernel.parameters]
    everywhere = set[AccessFault]()
    for values in product(FEW, repeat=len(names)):
        everywhere |= _faults(kernel, domain, dict(zip(names, values, strict=True)))
    guards, (cover,) = prove_guards(kernel), prove_cover(kernel, [domain])
    if AccessFault.OUTSIDE in everywhere:
        assert not all(isinstance(g, Proved) for g in guards)
    if everywhere - {AccessFault.OUTSIDE}:
        assert not isinstance(cover, Proved), everywhere
    for answer in (*guards, cover):
        if isinstance(answer, Refuted):
            known = {**dict.fromkeys(names, 1), **dict(answer.witness.parameters)}
            if prod(known.values()) < 400:
                assert answer.witness.fault in _faults(kernel, domain, known)
    return not everywhere and all(isinstance(a, Proved) for a in (*guards, cover))


def _two_digits(
    tile: int, falling: bool, wrong: str, bounds: tuple[str, ...], wide: bool
) -> tuple[KernelAccesses, StoreDomain]:
    """A tile of rows of ``D`` elements for each of ``H``, stored to one dimension, or to the second of two."""
    h, q, i, j, d, count = sym("h"), sym("q"), sym("i"), sym("j"), sym("D"), sym("H")
    place = q * tile + TID * (2 if wrong == "stride" else 1)
    row = count - 1 - h if falling else h
    coord = row * d + place + {"shift": 1, "back": -1}.get(wrong, 0)
    if wrong == "next row":
        coord = coord + d
    whole = (count + (1 if wrong == "row behind" else 0)) * d
    known = {
        "row": place < d + {"late": 1, "early": -1}.get(wrong, 0),
        "least": coord >= (1 if wrong == "least" else 0),
        "most": coord < whole + (1 if wrong == "one behind" else 0),
    }
    guard = all_of(known[b] for b in bounds)
    behind = wrong in ("row behind", "one behind")
    scope = (
        LoopIndex("h", IndexRole.PROGRAM, Const(0), count + (1 if behind else 0)),
        LoopIndex("q", IndexRole.PROGRAM, Const(0), ceildiv(d, tile)),
        LoopIndex("$tid", IndexRole.THREAD, Const(0), Const(tile)),
    )
    before = (Const(0),) if wide else ()
    dims = (*(Const(1) for _ in before), count * d)
    access = AccessMap("store y", "k.py:1", "", "y", AccessKind.WRITE, dims, scope, (), guard, (*before, coord))
    axes = (
        LoopIndex("i", IndexRole.AXIS, Const(0), count),
        LoopIndex("j", IndexRole.AXIS, Const(0), d - 1 if wrong == "less" else d),
    )
    promised = (count - 1 - i if falling else i) * d + j
    domain = StoreDomain("y", "k.py:1", axes, (*before, promised), promised < count * d)
    parameters = tuple(LaunchParameter(n, 1) for n in "DH")
    return KernelAccesses("k", parameters, (), (access,)), domain


WRONG = (
    "",
    "",
    "",
    "late",
    "early",
    "stride",
    "shift",
    "back",
    "next row",
    "row behind",
    "one behind",
    "least",
    "less",
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(WRONG),
    st.sets(st.sampled_from(("row", "least", "most"))),
    st.booleans(),
)
def test_numbers_of_two_digits(tile: int, falling: bool, wrong: str, bounds: set[str], wide: bool) -> None:
    _judge_where_decided(*_two_digits(tile, falling, wrong, tuple(sorted(bounds)), wide))


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_right_numbers_of_two_digits_are_proved(falling: bool, wide: bool) -> None:
    kernel, domain = _two_digits(2, falling, "", ("row",), wide)
    (cover,) = prove_cover(kernel, [domain])
    assert isinstance(cover, Proved)
    assert not _faults(kernel, domain, {"D": 5, "H": 3})


@pytest.mark.parametrize("wrong", sorted({*WRONG} - {""}))
@pytest.mark.parametrize("bounds", [("row",), ("row", "most"), ("least", "row"), ("least", "most"), ()])
@pytest.mark.parametrize("wide", [False, True])
def test_wrong_numbers_of_two_digits_are_not(wrong: str, bounds: tuple[str, ...], wide: bool) -> None:
    _judge_where_decided(*_two_digits(2, False, wrong, bounds, wide))


def test_digits_are_asked_for_without_the_bounds_of_the_number() -> None:
    """Programs behind the last row store the element before it, which another has stored."""
    kernel, domain = _two_digits(3, False, "one behind", (), False)
    (access,) = kernel.accesses
    h, d, count, place = sym("h"), sym("D"), sym("H"), TID - 1
    coord = h * d + place
    scope = tuple(i for i in access.scope if getattr(i, "name", "") != "q")
    guard = all_of([any_of([place >= 0, h >= count]), place < d, coord < count * d])
    axes = (LoopIndex("i", IndexRole.AXIS, Const(0), count), LoopIndex("j", IndexRole.AXIS, Const(0), minimum(d, 2)))
    moved = replace(access, scope=scope, guard=guard, coords=(coord,))
    promised = replace(domain, indices=axes)
    assert AccessFault.TWICE in _faults(replace(kernel, accesses=(moved,)), promised, {"D": 2, "H": 2})
    _judge_where_decided(replace(kernel, accesses=(moved,)), promised)


def _by_rows(*accesses: tuple[Expr, Expr, Expr], width: Expr) -> tuple[KernelAccesses, StoreDomain]:
    """Stores to ``H`` rows, ``D`` elements apart, of ``width`` elements q: of each how many programs h it has, its
    guard, and its row."""
    q, d, count = sym("q"), sym("D"), sym("H")
    made = [
        AccessMap(
            f"store {n}", "k.py:1", "", "y", AccessKind.WRITE, (count * d,),
            (LoopIndex("h", IndexRole.PROGRAM, Const(0), rows), LoopIndex("q", IndexRole.PROGRAM, Const(0), width)),
            (), guard, (row * d + q,),
        )
        for n, (rows, guard, row) in enumerate(accesses)
    ]  # fmt: skip
    axes = (LoopIndex("i", IndexRole.AXIS, Const(0), count), LoopIndex("j", IndexRole.AXIS, Const(0), width))
    coord = sym("i") * d + sym("j")
    domain = StoreDomain("y", "k.py:1", axes, (coord,), coord < count * d)
    return KernelAccesses("k", (LaunchParameter("D", 1), LaunchParameter("H", 1)), (), tuple(made)), domain


def test_rows_that_reach_into_the_next_store_elements_twice() -> None:
    """Though (row, place in it) has each pair once."""
    h, d, count = sym("h"), sym("D"), sym("H")
    kernel, domain = _by_rows((count, h * d + sym("q") < count * d, h), width=d + 1)
    assert AccessFault.TWICE in _faults(kernel, domain, {"D": 2, "H": 3})
    _judge_where_decided(kernel, domain)


def test_the_first_row_is_one_of_those_from_0_on() -> None:
    """One store has all rows and, under its guard, none before them; another the first one again."""
    h, d, count = sym("h"), sym("D"), sym("H")
    every = (count + 1, (h - 1) * d + sym("q") >= 0, h - 1)
    kernel, domain = _by_rows(every, (Const(1), TRUE, h), width=d)
    assert _faults(kernel, domain, {"D": 2, "H": 3}) == {AccessFault.TWICE}
    _judge_where_decided(kernel, domain)


def _backwards(tile: int, slip: int, first: bool, second: bool, guarded: bool) -> tuple[KernelAccesses, StoreDomain]:
    """Two halves of a tensor, each stored forwards or backwards."""
    m, p = sym("M"), sym("p")
    place = p * tile + TID
    scope = (
        LoopIndex("p", IndexRole.PROGRAM, Const(0), ceildiv(m, tile)),
        LoopIndex("$tid", IndexRole.THREAD, Const(0), Const(tile)),
    )

    def half(op: str, begin: Expr, backwards: bool) -> AccessMap:
        coord = begin + (m - 1 - place if backwards else place) + (slip if backwards else 0)
        guard = place < m if guarded else TRUE
        return AccessMap(op, "k.py:1", "", "y", AccessKind.WRITE, (m * 2,), scope, (), guard, (coord,))

    axes = (LoopIndex("i", IndexRole.AXIS, Const(0), m * 2),)
    domain = StoreDomain("y", "k.py:1", axes, (sym("i"),), TRUE)
    accesses = (half("first half", Const(0), first), half("second half", m, second))
    return KernelAccesses("k", (LaunchParameter("M", 1),), (), accesses), domain


@pytest.mark.parametrize("slip", [-1, 0, 1])
@pytest.mark.parametrize(("first", "second"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize("guarded", [False, True])
def test_elements_counted_backwards(slip: int, first: bool, second: bool, guarded: bool) -> None:
    _judge_where_decided(*_backwards(3, slip, first, second, guarded))


@pytest.mark.parametrize("tile", [1, 4])
def test_elements_counted_backwards_are_proved(tile: int) -> None:
    m = sym("M")
    kernel, _ = _backwards(tile, 0, True, True, True)
    one = replace(kernel.accesses[0], dims=(m,))
    domain = StoreDomain("y", "", (LoopIndex("i", IndexRole.AXIS, Const(0), m),), (m - 1 - sym("i"),), TRUE)
    assert _judge_where_decided(replace(kernel, accesses=(one,)), domain)
