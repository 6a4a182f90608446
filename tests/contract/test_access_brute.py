"""Verdicts of the access proofs against enumeration of every program, thread and register at small extents."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.base.expr import TRUE, Const, Expr, all_of, ceildiv, negate, sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.contract.access import AccessFault, prove_cover, prove_guards
from tilewright.protocol.access import (
    AccessKind,
    AccessMap,
    IndexRole,
    KernelAccesses,
    LaunchParameter,
    LoopIndex,
    StoreDomain,
)

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
