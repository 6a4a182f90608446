"""Values that depend on conditions, and the operations of both sides on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import TypeAlias, TypeVar, overload

import numpy as np

from tilewright.validate.cases import Cases, Condition
from tilewright.validate.constants import SIGN
from tilewright.validate.float_orders import FloatOrders
from tilewright.validate.polynomials import Field, Poly, Table
from tilewright.validate.terms import Terms

ANYTHING = "anything"
"""The kind of atom of a value that the IR leaves open: any value equals it."""

MOST_PARTS = 48
"""Cases beyond which a value becomes an atom of its own. So does one whose case depends on data: each case would need
tests of its own where it is compared."""


FEW_PARTS = 4
"""Cases of a value up to which two of them are taken for the lesser or the greater of both."""


class Choice:
    """One of several values: conditions are disjoint; where none holds the value is undefined. Interned."""

    __slots__ = ("id", "parts")

    def __init__(self, id: int, parts: tuple[tuple[Condition, Poly], ...]):
        self.id, self.parts = id, parts

    @property
    def width(self) -> int:
        """Bits of the value."""
        return self.parts[0][1].width

    def __str__(self) -> str:
        return f"choice#{self.id}"


Value: TypeAlias = Poly | Choice
T = TypeVar("T")


class Values:
    """Makes values over ``terms`` under ``cases``."""

    def __init__(self, terms: Terms, cases: Cases):
        self.terms, self.cases = terms, cases
        self.orders = FloatOrders(terms, cases)
        self.ends: dict[str, tuple[Value, ...]] = {}
        """By loop, what its iterations are counted by."""
        self.once: set[str] = set()
        """Loops that make no second iteration, whatever the arguments."""
        self.extended: set[Poly] = set()
        """Words that the IR extends to 64 bits with their sign."""
        self._among: dict[tuple[Value, int], Value] = {}
        self._within: dict[tuple[Choice, Condition], Value] = {}
        self._anywhere: dict[tuple[tuple[Condition, Poly], ...], Condition] = {}
        self.where: Condition = cases.true
        """Of the case that is being computed: what an operation needs is needed there only."""
        self._choices: dict[tuple[tuple[Condition, Poly], ...], Choice] = {}

    def threads_counted(self, number: int) -> tuple[str, Value]:
        """What the event of the n-th barrier that counts threads is called, and the word that it gives all of them."""
        atom = self.terms.atom("counted", number, low=0, high=self.terms.threads)
        return f"bar.red.popc {number}", self.terms.resize(self.terms.of(0, atom), 32)

    def parts(self, value: Value) -> tuple[tuple[Condition, Poly], ...]:
        """The cases of a value."""
        return ((self.cases.true, value),) if isinstance(value, Poly) else value.parts

    def unfolded(self, value: Value) -> Value:
        """A value that is a word of its own because its case depends on data, by cases again."""
        found = self._choice(value) if isinstance(value, Poly) else None
        return value if found is None or found.width != value.width else found

    def _choice(self, x: Poly) -> Choice | None:
        """What became this word, an atom of its own; None of other words."""
        atom = self.terms.single(x)
        if atom is None or atom.kind != "choice":
            return None
        (found,) = atom.args
        assert isinstance(found, Choice)
        return found

    def choose(self, parts: Sequence[tuple[Condition, Value]]) -> Value:
        """The value that each condition gives, where it holds; conditions are disjoint."""
        cases = self.cases
        kept: dict[Poly, Condition] = {}
        for condition, value in parts:
            if condition == 0:
                continue
            if isinstance(value, Poly):
                kept[value] = cases.either(kept[value], condition) if value in kept else condition
                continue
            for inner, poly in self.parts(value):
                holds = cases.both(condition, inner)
                if holds != 0:
                    kept[poly] = cases.either(kept[poly], holds) if poly in kept else holds
        if len(kept) == 1:
            return next(iter(kept))
        if not kept:
            return self.undefined(32, "nowhere")
        listed = tuple((c, p) for p, c in sorted(kept.items(), key=lambda item: item[0].id))
        shorter = self._by_bit(listed) or self._by_order(listed)
        if shorter is not None:
            return shorter
        found = self._choices.get(listed)
        if found is None:
            found = self._choices[listed] = Choice(len(self._choices), listed)
        if len(listed) > MOST_PARTS or any(cases.tests_data(c) for c, _ in listed):
            word = self.terms.data(found.width, self._bits(found), "choice", found)
            return self.terms.masked(word, self.may_be_set(found)) if found.width else word
        return found

    def _by_order(self, parts: tuple[tuple[Condition, Poly], ...]) -> Value | None:
        """Of an f32 x and a number c: ``x > c ? x : c`` is max.f32 and ``x < c ? x : c`` min.f32 (c where x is NaN),
        but for the zero that this would take instead of the other one; with ``>=`` and ``<=`` of other numbers."""
        terms, cases = self.terms, self.cases
        tested = [(some, x) for some, x in parts if x.width == 32 and cases.tests_data(some)]
        for (some, x), (others, c) in permutations(tested, 2) if len(parts) <= FEW_PARTS else ():
            number, compare = terms.number(c), self.orders.compare
            if number is None or terms.number(x) is not None or compare("num", c, c) == 0:
                continue
            rank = self.orders.rank(x)
            if rank not in cases.quantities_of(some):
                continue
            here = cases.whatever(some, rank)
            strict = [("max.f32", "gt"), ("min.f32", "lt")]
            if number in (0, SIGN, -SIGN):  # of two zeros the greater, or the lesser
                tests = strict[:1] if number == 0 else strict[1:]
            else:
                tests = [*strict, ("max.f32", "ge"), ("min.f32", "le")]
            for extreme, name in tests:
                test = compare(name, x, c)
                if cases.both(here, test) == some and cases.implies(cases.without(here, test), others):
                    left = [(cases.without(condition, here), p) for condition, p in parts]
                    return self.choose([(here, self.apply(32, extreme, *in_order(x, c))), *left])
        return None

    def _by_bit(self, parts: tuple[tuple[Condition, Poly], ...]) -> Poly | None:
        """Of 0 and 1, which the uppermost bit of a word of data tells apart, the sum that this bit gives; each may be
        written with the bit itself."""
        node = parts[0][0]
        if len(parts) != 2 or isinstance(node, int) or set(node.children) != {0, self.cases.true}:
            return None
        word, terms = self.cases.quantities[node.quantity], self.terms
        atom = terms.single(word)
        if (
            atom is None
            or not atom.bits
            or node.cuts != (1 << (atom.bits - 1),)
            or parts[1][0] != self.cases.negate(node)
        ):
            return None
        clear, set_ = (p for _, p in (parts if node.children[1] == 0 else reversed(parts)))
        bit = terms.field(word, atom.bits - 1, 1, clear.width)
        alone = terms.single(bit)
        if any(m not in ((), alone and (alone.id,)) for p in (clear, set_) for m, _ in p.terms):
            return None
        zero = terms.make(clear.width, {m: c for m, c in clear.terms if m == ()})
        one = terms.sum(clear.width, (terms.make(clear.width, {(): c}) for _, c in set_.terms))
        if {terms.number(zero), terms.number(one)} != {0, 1}:
            return None
        return terms.add(zero, terms.mul(terms.sub(one, zero), bit))

    def may_be_set(self, value: Value) -> int:
        """Bits that a word can have in some case, of those that are not left open: there it may be any word, so 0."""
        total = 0
        for _, p in self.parts(value):
            total |= 0 if self.is_open(p) else self.terms.may_be_set(p)
        return total

    def _bits(self, value: Choice) -> int:
        """Bits beyond which every case of a value is 0."""
        bits = 1
        for low, high in (self.terms.interval(p) for _, p in value.parts):
            if low is None or high is None or low < 0 or not value.width:
                return value.width
            bits = max(bits, high.bit_length())
        return min(bits, value.width)

    def select(self, condition: Condition, then: Value, otherwise: Value) -> Value:
        """``then`` where the condition holds, else ``otherwise``."""
        if then is otherwise or condition == self.cases.true:
            return then
        if condition == 0:
            return otherwise
        if isinstance(condition, int) and isinstance(then, Poly) and isinstance(otherwise, Poly):
            x, y = self.terms.per_thread(then), self.terms.per_thread(otherwise)
            if x is not None and y is not None:
                return self.terms.table(then.width, np.where(self.cases.mask(condition), x, y))
        return self.choose([(condition, then), (self.cases.negate(condition), otherwise)])

    def undefined(self, width: int, name: str) -> Poly:
        """What nothing wrote to the register ``name``: of two registers it is not the same."""
        return self.terms.data(width, width, "undefined", name)

    @overload
    def lift(self, function: Callable[[Poly], Value], a: Value, /) -> Value: ...
    @overload
    def lift(self, function: Callable[[Poly, Poly], Value], a: Value, b: Value, /) -> Value: ...
    def lift(self, function: Callable[..., Value], *args: Value) -> Value:
        """A function of polynomials on values, case by case."""
        if Choice not in map(type, args):
            return function(*args)
        return self.choose(
            [(condition, self._in(condition, function, chosen)) for condition, chosen in self.together(args)]
        )

    @overload
    def test(self, function: Callable[[Poly], Condition], a: Value, /) -> Condition: ...
    @overload
    def test(self, function: Callable[[Poly, Poly], Condition], a: Value, b: Value, /) -> Condition: ...
    def test(self, function: Callable[..., Condition], *args: Value) -> Condition:
        """A condition on polynomials, for values."""
        if Choice not in map(type, args):
            return function(*args)
        total: Condition = 0
        for condition, chosen in self.together(args):
            total = self.cases.either(total, self.cases.both(condition, self._in(condition, function, chosen)))
        return total

    def _in(self, condition: Condition, function: Callable[..., T], args: Sequence[Poly]) -> T:
        outer = self.where
        self.where = self.cases.both(outer, condition)
        result = function(*args)
        self.where = outer
        return result

    def together(self, args: Sequence[Value]) -> list[tuple[Condition, list[Poly]]]:
        """The cases of several values at once, without those that can't be."""
        rows: list[tuple[Condition, list[Poly]]] = [(self.cases.true, [])]
        for arg in args:
            rows = [
                (both, [*chosen, poly])
                for condition, chosen in rows
                for inner, poly in self.parts(arg)
                if (both := self.cases.both(condition, inner)) != 0
            ]
        return rows

    def restrict(self, value: Value, care: Condition) -> Value:
        """The value without the cases that can't be where ``care`` holds: the same there, open elsewhere."""
        if isinstance(value, Poly):
            return value
        inside = [(c, p) for c, p in value.parts if self.cases.both(c, care) != 0]
        return value if len(inside) in (0, len(value.parts)) else self.choose(inside)

    def within(self, value: Value, holds: Condition) -> Value:
        """``restrict`` of a value that has a case everywhere where ``holds``; another value as it is."""
        if isinstance(value, Poly) or holds == self.cases.true:
            return value
        key = (value, holds)
        found = self._within.get(key)
        if found is None:
            written = self.cases.implies(holds, self.anywhere(value.parts))
            found = self._within[key] = self.restrict(value, holds) if written else value
        return found

    def anywhere(self, parts: tuple[tuple[Condition, Poly], ...]) -> Condition:
        """The condition that a value has any of its cases: elsewhere nothing has written it."""
        found = self._anywhere.get(parts)
        if found is None:
            found = self._anywhere[parts] = self.cases.any(condition for condition, _ in parts)
        return found

    def among(self, value: Value, threads: int) -> Value:
        """The value where only some threads matter: the others have what the first of these has."""
        if threads == self.cases.true or threads == 0:
            return value
        key = (value, threads)
        found = self._among.get(key)
        if found is None:
            if isinstance(value, Poly):
                found = self._projected(value, threads)
            else:
                found = self.choose([(c, self._projected(p, threads)) for c, p in value.parts])
            self._among[key] = found
        return found

    def _projected(self, p: Poly, threads: int) -> Poly:
        if not any(isinstance(c, Table) for _, c in p.terms):
            return p
        return self.terms.make(p.width, {m: self.cases.among(c, threads) for m, c in p.terms})

    def shuffled(self, mode: str, word: Value, lane: Value, bounds: Value, mask: Value) -> Poly | None:
        """What whole warps exchange of values that depend on the thread alone; None of others."""
        numbers = self.terms.per_thread(word) if isinstance(word, Poly) else None
        at = self.terms.per_thread(lane) if isinstance(lane, Poly) else None
        whole = self.number(bounds) == 31 and self.number(mask) == -1
        if numbers is None or at is None or not whole or mode not in ("idx", "bfly"):
            return None
        own = np.arange(self.terms.threads)
        source = at & 31 if mode == "idx" else (own ^ at) & 31
        return self.terms.table(32, numbers[own // 32 * 32 + source])

    # -- arithmetic -----------------------------------------------------------------------------------------------
    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        if a.__class__ is Poly and b.__class__ is Poly:
            return self.terms.add(a, b)  # pyright: ignore[reportArgumentType]
        return self.lift(self.terms.add, a, b)

    def sub(self, a: Value, b: Value) -> Value:
        """a - b."""
        if a.__class__ is Poly and b.__class__ is Poly:
            return self.terms.sub(a, b)  # pyright: ignore[reportArgumentType]
        return self.lift(self.terms.sub, a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """a * b."""
        if a.__class__ is Poly and b.__class__ is Poly:
            return self.terms.mul(a, b)  # pyright: ignore[reportArgumentType]
        return self.lift(self.terms.mul, a, b)

    def scale(self, a: Value, factor: int) -> Value:
        """a times a constant."""
        return self.lift(lambda x: self.terms.scale(x, factor), a)

    def resize(self, a: Value, width: int) -> Value:
        """Modulo another power of two."""
        if isinstance(a, Poly):
            return self.terms.resize(a, width)
        return self.lift(lambda x: self.terms.resize(x, width), a)

    def field(self, a: Value, low: int, count: int, width: int) -> Value:
        """Some bits of a word."""
        return self.lift(lambda x: self.each_number(lambda p: self.terms.field(p, low, count, width), x), a)

    def each_number(self, function: Callable[[Poly], Poly], x: Poly) -> Poly:
        """A function of a word; of one of several numbers, such as all ones or none, number by number where the result
        is a word, too."""
        numbers = self.numbers(x)
        found = self.choose([(c, function(p)) for c, p in numbers]) if numbers else None
        return found if isinstance(found, Poly) else function(x)

    def by_numbers(self, function: Callable[[Poly], Poly], a: Value) -> Value:
        """A function of polynomials on a value; of what is one of several numbers, number by number."""

        def each(x: Poly) -> Value:
            return self.choose([(c, function(p)) for c, p in self.numbers(x)] or [(self.cases.true, function(x))])

        return each(a) if isinstance(a, Poly) else self.choose([(c, each(p)) for c, p in a.parts])

    def numbers(self, x: Poly) -> tuple[tuple[Condition, Poly], ...]:
        """The cases of what is one of several numbers and became an atom of its own; else none."""
        chosen = self._choice(x)
        if chosen is None:
            return self._bits_of_numbers(x)
        if any(self.terms.number(p) is None for _, p in chosen.parts):
            return ()
        width, unsigned = x.width, self.terms.unsigned
        return tuple((c, p if p.width == width else self.terms.resize(unsigned(p), width)) for c, p in chosen.parts)

    def _bits_of_numbers(self, x: Poly) -> tuple[tuple[Condition, Poly], ...]:
        """The cases of some bits of what is one of several numbers; none of another word."""
        atom = self.terms.single(x)
        field = atom.args[0] if atom is not None and atom.kind == "field" else None
        if not isinstance(field, Field):
            return ()
        base = self.terms.atoms[field.base]
        numbers = self.numbers(self.terms.of(base.bits, base)) if base.kind == "choice" else ()
        return tuple((c, self.terms.field(p, field.low, field.count, x.width)) for c, p in numbers)

    def few_parts(self, x: Poly, most: int = 2) -> tuple[tuple[Condition, Poly], ...]:
        """The cases of what is one of two words, or of ``most``, and became an atom of its own, such as what is loaded
        and what stands for it outside; else none."""
        chosen = self._choice(x)
        few = chosen is not None and len(chosen.parts) <= most and all(p.width == x.width for _, p in chosen.parts)
        return chosen.parts if chosen is not None and few else ()

    def apply(self, width: int, name: str, *args: object) -> Poly:
        """The result of an operation that is not looked into: a word of data."""
        return self.terms.data(width, width, name, *args)

    def anything(self, width: int) -> Poly:
        """A value that is left open."""
        return self.terms.data(width, width, ANYTHING, width)

    def is_open(self, p: Poly) -> bool:
        """The value is left open; so is a word that is put together of nothing else, of which 1 + 2**bits is a factor
        where both halves are."""
        if len(p.terms) != 1 or len(p.terms[0][0]) != 1:
            return False
        ((i,), c), full = p.terms[0], (1 << p.width) - 1
        atom = self.terms.atoms[i]
        if atom.kind != ANYTHING or not isinstance(c, int):
            return False
        whole = c == 1 and atom.bits >= p.width  # an integer has a width of 0
        return whole or (p.width > 0 and (c & full) * ((1 << atom.bits) - 1) == full)

    def number(self, a: Value) -> int | None:
        """The one constant that a value is."""
        return self.terms.number(a) if isinstance(a, Poly) else None

    def text(self, value: Value) -> str:
        """The value as text, for messages."""
        if isinstance(value, Poly):
            return self.terms.text(value)
        parts = (f"{self.terms.text(p)} if {self.cases.text(c)}" for c, p in value.parts[:4])
        return "{" + "; ".join(parts) + "}"


def in_order(a: Value, b: Value) -> tuple[Value, Value]:
    """Two operands that may be exchanged, in the order of the normal form."""
    first, second = sorted((a, b), key=lambda value: (isinstance(value, Choice), value.id))
    return first, second
