"""Words that depend on the rank of a CTA in its cluster alone, compared number by number.

NVRTC writes the ranks of peers anew, ``(rank + 1) % 2`` as ``rank % 2 ^ 1``, and there are few ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilewright.validate.polynomials import Field, Poly
from tilewright.validate.terms import Terms

RANKS = 16
"""CTAs that a cluster has at most."""

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "shl.s": lambda x, count: x << min(count, 64),
    "shl.u": lambda x, count: x << min(count, 64),
}
"""Of numbers that are not negative."""


def equal_for_all_ranks(terms: Terms, p: Poly, q: Poly) -> bool:
    """Whether both words depend on the rank only and are equal for every rank; False for other words."""
    for rank in range(RANKS):
        x, y = _word(terms, p, rank), _word(terms, q, rank)
        if x is None or x != y:
            return False
    return True


def _word(terms: Terms, p: Poly, rank: int) -> int | None:
    """A polynomial's number, of its width; of none over the integers."""
    total = 0
    for monomial, c in p.terms:
        numbers = [_number(terms, i, rank) for i in monomial]
        if None in numbers or not isinstance(c, int):
            return None
        total += c * prod(n for n in numbers if n is not None)
    return total % (1 << p.width) if p.width else total


def _number(terms: Terms, i: int, rank: int) -> int | None:
    """The value of an atom for a rank; None for other atoms."""
    atom = terms.atoms[i]
    if atom.kind == "cta_rank":
        return rank
    if atom.kind == "field" and isinstance(field := atom.args[0], Field):
        word = _number(terms, field.base, rank)
        return None if word is None else (word >> field.low) % (1 << field.count)
    if atom.kind not in _FUNCTIONS and atom.kind != "fdiv":
        return None
    numbers = [_word(terms, arg, rank) if isinstance(arg, Poly) else arg for arg in atom.args]
    x, y = numbers
    if not isinstance(x, int) or not isinstance(y, int):
        return None
    if atom.kind == "fdiv":
        return x // y
    found = _FUNCTIONS[atom.kind](x, y) if x >= 0 and y >= 0 else None
    return found if found is None or not atom.bits else found % (1 << atom.bits)
