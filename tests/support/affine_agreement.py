"""The comparisons of affine layouts with enumeration, counted; run small by the tests and in full by a tool."""

from __future__ import annotations

import random
from itertools import product
from math import gcd, prod

from support.affine_oracle import Case, random_case, rewritten, run_holds
from support.attempts import attempt
from tilewright.layout.library.affine import AffineLayout
from tilewright.layout.library.affine_algebra import invert, right_inverse
from tilewright.layout.library.affine_queries import (
    alignment,
    contiguity,
    image,
    is_injective,
    is_surjective,
    preimage,
    vector_width,
)
from tilewright.layout.library.lattice import LatticeEquations


def check_questions(case: Case) -> str:
    """Every question against the table; how the right inverse came out: ``found``, ``none``, ``not affine``."""
    layout, table = case.layout, case.table()
    taken = set(table.values())
    assert all(layout(*x) == y for x, y in table.items())
    assert is_injective(layout) == (len(taken) == len(table))
    _check_existence(layout, case, taken)
    for i, axis in enumerate(layout.in_names):
        for j, out in enumerate(layout.out_names):
            widest = max(1 << k for k in range(8) if run_holds(case, i, j, 1 << k, aligned=True))
            assert vector_width(layout, axis, out) == widest
            longest = max(n for n in range(1, case.shape[i] + 1) if run_holds(case, i, j, n, aligned=False))
            assert contiguity(layout, axis, out) == longest
    for j, out in enumerate(layout.out_names):
        assert alignment(layout, out) == gcd(*(y[j] for y in taken))
    found = image(layout)
    lattice = LatticeEquations(found.basis, (None,) * len(found.base))
    for y in taken:
        assert lattice.solve([v - b for v, b in zip(y, found.base, strict=True)]) is not None
        assert all(a <= v <= b for a, v, b in zip(found.low, y, found.high, strict=True))
    return _check_inverse(layout, case, taken)


def _check_existence(layout: AffineLayout, case: Case, taken: set[tuple[int, ...]]) -> None:
    """A preimage exists exactly for the values of the table, and maps to them."""
    if None not in case.moduli:
        sizes = [m or 1 for m in case.moduli]
        assert is_surjective(layout) == (len(taken) == prod(sizes))
        asked = list(product(*map(range, sizes)))
    else:
        low = min(v for y in taken for v in y)
        near = [tuple(v + d for v in y) for y in list(taken)[:8] for d in (-1, 1)]
        asked = [*taken, *near, (low - 1,) * len(case.moduli)]
    for y in asked:
        x = preimage(layout, *y)
        assert (x is not None) == (y in taken)
        assert x is None or case.value(x) == y


def _check_inverse(layout: AffineLayout, case: Case, taken: set[tuple[int, ...]]) -> str:
    """A right inverse is one on every value; there is none unless every value from 0 is taken."""
    sizes = [max(y[j] for y in taken) + 1 if m is None else m for j, m in enumerate(case.moduli)]
    full = taken == set(product(*map(range, sizes)))
    inverse, code = attempt(lambda: right_inverse(layout))
    if code:
        assert code == "LAY008"
        return "not affine" if full else "none"
    assert full
    for y in product(*map(range, sizes)):
        x = tuple(v for v in inverse(*y) if isinstance(v, int))
        assert case.value(x) == y
    if len(taken) == prod(case.shape):
        assert invert(layout) == inverse
    return "found"


def cyclic_inverse_exists(extent: int, step: int, modulus: int) -> bool:
    """By trial of every affine map over Z_extent: does one invert x -> step * x mod modulus from the right?"""
    return any(
        all(((c * y + d) % extent) * step % modulus == y for y in range(modulus))
        for c in range(extent)
        for d in range(extent)
    )


def check_pair(rng: random.Random, case: Case) -> bool:
    """Canonical forms: idempotent, the same map, equal for another spelling, different for another map."""
    layout = case.layout
    form = layout.canonical()
    assert form.canonical() == form
    assert all(form(*x) == y for x, y in case.table().items())
    other = rewritten(rng, case)
    assert other.table() == case.table(), "the oracle rewrites exactly"
    assert other.layout.canonical() == form
    changed = random_case(rng)
    if changed.shape == case.shape and changed.moduli == case.moduli:
        assert (changed.layout.canonical() == form) == (changed.table() == case.table())
    nudged = Case(case.axes, tuple(b + 1 for b in case.base), case.moduli)
    assert (nudged.layout.canonical() == form) == (nudged.table() == case.table())
    return other.axes != case.axes or other.base != case.base
