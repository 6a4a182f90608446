"""Words that are put together from fields of data, and the bits that a word can have."""

from __future__ import annotations

import itertools
from math import gcd
from typing import TypeAlias

import numpy as np

from tilewright.validate.polynomials import (
    Coefficient,
    Field,
    Monomial,
    Poly,
)
from tilewright.validate.term_store import TermStore

BITWISE = ("and", "or", "xor")
"""Kinds of atoms of which a piece is the same of pieces."""


_Piece: TypeAlias = tuple[int, int, "int | None", int]
"""Position, bits, atom, constant."""


def sliced(terms: TermStore, a: Poly, low: int, count: int) -> Poly | None:
    """The bits of a word put together from disjoint fields of data; None for any other word."""
    pieces: list[_Piece] = []
    for monomial, c in a.terms:
        if not isinstance(c, int):
            return None
        if monomial == ():
            c &= (1 << a.width) - 1
            base = (c & -c).bit_length() - 1
            pieces.append((base, c.bit_length() - base, None, c >> base))
            continue
        if len(monomial) != 1 or not terms.atoms[monomial[0]].bits:
            return None
        c = c & ((1 << a.width) - 1) if a.width else c
        if c <= 0 or c & (c - 1):
            return None
        pieces.append((c.bit_length() - 1, terms.atoms[monomial[0]].bits, monomial[0], 0))
    if _overlap(pieces):
        pieces = [trimmed for piece in pieces for trimmed in _trimmed(terms, *piece)]
        if _overlap(pieces):
            return None
    total: dict[Monomial, int] = {}
    others = terms.const(0, 0)
    for position, bits, atom, constant in pieces:
        first, last = max(position, low), min(position + bits, low + count)
        if first >= last:
            continue
        if atom is None:
            total[()] = ((constant >> (first - position)) & ((1 << (last - first)) - 1)) << (first - low)
        elif terms.atoms[atom].kind in BITWISE and last - first < bits:
            piece = terms.piece_of_joined(atom, first - position, last - first)
            others = terms.add(others, terms.scale(piece, 1 << (first - low)))
        else:
            part = terms.field_atom(atom, first - position, last - first)
            total[part.id,] = total.get((part.id,), 0) + (1 << (first - low))  # bits may be in the word twice
    found = terms.make(0, terms.joined(0, dict[Monomial, Coefficient](total)) if len(total) > 1 else total)
    return terms.add(found, others)


def _overlap(pieces: list[_Piece]) -> bool:
    """Two pieces have a bit in common; sorts them."""
    pieces.sort(key=lambda piece: piece[0])
    return any(p + n > q for (p, n, _, _), (q, _, _, _) in itertools.pairwise(pieces))


def _trimmed(terms: TermStore, position: int, bits: int, atom: int | None, constant: int) -> list[_Piece]:
    """A piece from the first to the last bit that it may have, if any."""
    mask = None if atom is None else terms.masks.get(atom)
    if mask is None or atom is None:
        return [(position, bits, atom, constant)]
    if mask == 0:
        return []
    first, end = (mask & -mask).bit_length() - 1, mask.bit_length()
    return [(position + first, end - first, terms.field_atom(atom, first, end - first).id, 0)]


def without_upper(terms: TermStore, a: Poly) -> Poly:
    """x - 2**k * x[k:] is x[:k], over the integers, of all data in a sum."""
    total = dict(a.terms)
    for monomial, c in a.terms:
        for place, i in enumerate(monomial):
            field = terms.atoms[i].args[0] if terms.atoms[i].kind == "field" else None
            if not isinstance(field, Field) or field.low + field.count != terms.atoms[field.base].bits:
                continue
            rest = monomial[:place] + monomial[place + 1 :]
            whole = tuple(sorted((*rest, field.base)))
            factor = total.get(whole)
            if isinstance(c, int) and isinstance(factor, int) and c == -factor << field.low and monomial in total:
                del total[monomial], total[whole]
                low = tuple(sorted((*rest, terms.field_atom(field.base, 0, field.low).id)))
                return without_upper(terms, terms.add(terms.make(0, total), terms.make(0, {low: factor})))
    return a


def may_be_set(terms: TermStore, a: Poly) -> int:
    """Bits of a word that can be set."""
    own, rest = _fixed(a)
    if not rest:
        return own
    apart = _of_pieces(terms, a.width, rest)
    others = _even(terms, terms.interned(a.width, dict(rest))) if apart is None else apart
    if not own & others:
        return own | others
    unit = others & -others  # below it the word has the bits of what depends on the thread alone: nothing is carried
    return own & (unit - 1) | _even(terms, a) & -unit


def is_of_pieces(terms: TermStore, a: Poly) -> bool:
    """Whether a word is concatenated from fields of data and per-thread constants."""
    return _of_pieces(terms, a.width, [(m, c) for m, c in a.terms if m != ()]) is not None


def lies_apart(terms: TermStore, a: Poly) -> bool:
    """The word is put together so, and no bit is in two of these."""
    own, rest = _fixed(a)
    bits = _of_pieces(terms, a.width, rest)
    return bits is not None and not own & bits


def _fixed(a: Poly) -> tuple[int, list[tuple[Monomial, Coefficient]]]:
    """The bits of what depends on the thread alone, of all threads, and the other terms."""
    whole = (1 << a.width) - 1
    fixed = dict(a.terms).get((), 0)
    own = (fixed & whole) if isinstance(fixed, int) else int(np.bitwise_or.reduce(fixed.values)) & whole
    return own, [(m, c) for m, c in a.terms if m != ()]


def _of_pieces(terms: TermStore, width: int, rest: list[tuple[Monomial, Coefficient]]) -> int | None:
    """The bits of words that lie beside one another; None of other sums."""
    total = 0
    for monomial, c in rest:
        if len(monomial) != 1 or not isinstance(c, int) or not terms.atoms[monomial[0]].bits:
            return None
        factor = c & ((1 << width) - 1)
        known = terms.masks.get(monomial[0], (1 << terms.atoms[monomial[0]].bits) - 1)
        bits = (known * factor) & ((1 << width) - 1)
        if (factor & (factor - 1) and known != 1) or total & bits:
            return None
        total |= bits
    return total


def _even(terms: TermStore, a: Poly) -> int:
    """Every term is a multiple of a power of two, and so is the sum; it has no bits above its range."""
    common = 0
    for _, c in a.terms:
        common = gcd(common, c if isinstance(c, int) else int(np.gcd.reduce(c.values)))
    low, high = terms.interval(a)
    known = low is not None and high is not None and low >= 0
    top = (1 << high.bit_length()) - 1 if known and high is not None else (1 << a.width) - 1
    return top & -(common & -common) & ((1 << a.width) - 1)
