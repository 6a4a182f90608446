"""The bodies of maps and the element-wise ops of Tile IR: one reading for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import DType, bool_
from tilewright.lang.enums import BinaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import tile_type
from tilewright.tile.scans import GROUPS
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.arithmetic import ElementFunctions, constant, is_exact
from tilewright.validate.tile_to_transport.bounded_states import BoundedState, BoundedStates
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, fingerprints, key, term
from tilewright.validate.tile_to_transport.integers import Bounds, Integers
from tilewright.validate.tile_to_transport.values import (
    GuardedTerms,
    chosen,
    combined,
    element_wise,
    product_added,
    weighed,
)
from tilewright.validate.undecided import Undecided

SCANS = frozenset(fn.value for fn in GROUPS)
"""Functions of scans of which every grouping is the same term."""
USERS = "fn"
"""The tag of scans by a user's function."""
SORTS = "sort"
"""The tag of steps of a sorting network."""

Scalar: TypeAlias = "GuardedTerms | Bounds | StateValue"
"""A value in a map's body; a predicate is bounds until something but a ``select`` reads it."""


def constant_terms(op: tile.Constant, rank: int) -> Fingerprints:
    """A constant, of ``rank`` axes of extent 1."""
    return fingerprints(constant(op.value.data, op.dtype)).reshape((1,) * rank)


def computed(arithmetic: ElementFunctions, op: Operation, args: list[Fingerprints]) -> Fingerprints:
    """An element-wise op on terms."""
    match op:
        case tile.Unary():
            return arithmetic.unary(str(op.fn.data), args[0], tile_type(op.x).element)
        case tile.Binary():
            return arithmetic.binary(str(op.fn.data), args[0], args[1], tile_type(op.a).element)
        case tile.Compare():
            return arithmetic.compare(str(op.fn.data), args[0], args[1], tile_type(op.a).element)
        case tile.Select():
            return arithmetic.select(*args)
        case tile.Bitcast():
            return term(("bitcast", tile_type(op.x).element.name, op.dtype.name), args[0])
        case tile.Cast():
            return arithmetic.cast(args[0], tile_type(op.x).element, op.dtype)
        case tile.Fma():
            return arithmetic.fused(*args)
        case t.Fma():
            return arithmetic.fma(*args)
        case t.Approximate():
            return arithmetic.approximate(op.fn.data, *args)
        case t.ExponentScale():
            return args[0]
        case _:
            raise Undecided(f"{op.name} in a map")


class Widened:
    """Values that were converted to a type which has all of theirs: back in their own they are what they were."""

    def __init__(self, arithmetic: ElementFunctions):
        self.arithmetic = arithmetic
        self._narrow: dict[tuple[str, str], tuple[Fingerprints, Fingerprints]] = {}

    def cast(self, x: Fingerprints, source: DType, target: DType) -> Fingerprints:
        """A conversion, of which later ones back are told."""
        result = self.arithmetic.cast(x, source, target)
        if (source.is_bool and target.is_int) or (source != target and is_exact(source, target)):
            before = self._narrow.get((target.name, source.name), (x[:0].ravel(),) * 2)
            wide, place = np.unique(np.concatenate([before[0], np.ravel(result)]), return_index=True)
            self._narrow[target.name, source.name] = wide, np.concatenate([before[1], np.ravel(x)])[place]
        elif (known := self._narrow.get((source.name, target.name))) is not None:
            place = np.minimum(np.searchsorted(known[0], x), known[0].size - 1)
            result = np.where(known[0][place] == x, known[1][place], result)
        return result


class StateValues:
    """The values of a state, written where they are asked for."""

    def __init__(self, states: BoundedStates, state: BoundedState):
        self.states, self.state = states, state

    @cached_property
    def written(self) -> list[GuardedTerms]:
        """Those of all registers."""
        return self.states.written(self.state)


@dataclass(frozen=True)
class StateValue:
    """One value of a state."""

    of: StateValues
    place: int


class Body:
    """A map's body at all registers of all threads at once."""

    def __init__(
        self,
        arithmetic: ElementFunctions,
        integers: Integers,
        resolved: Callable[[Bounds], Bounds],
        functions: Sequence[BoundedStates],
        widened: Widened,
        *,
        contracts: bool,
    ):
        """``functions`` are those of scans that are the user's, whose states are ``widened`` between threads."""
        self.arithmetic, self.integers, self.resolved, self.functions = arithmetic, integers, resolved, functions
        self.widened = widened
        self.contracts = contracts
        """Each fma is a step of a product of matrices."""
        self.applied: dict[tuple[BoundedStates, tuple[SSAValue, ...]], tuple[BoundedState, BoundedState]] = {}
        """The states that a user's function was applied to, by the values that it made of them."""
        self.made: dict[tuple[BoundedStates, tuple[SSAValue, ...]], BoundedState] = {}
        """States, by their values."""
        self.function = ""
        """Of a scan, whose states may be grouped in any way."""

    def run(self, op: t.Map, given: dict[object, Scalar]) -> list[GuardedTerms]:
        """The map's results. ``given`` holds its block's arguments and the kernel's scalars."""
        found = dict(given)
        combines = "" if op.combines is None else op.combines.data
        self.function = combines if combines in (*SCANS, SORTS) else ""
        ops = tuple(op.body.block.ops)
        functions = self.functions if combines == USERS else ()
        self.moves = combines == USERS
        chosen_until = 0
        for place, inner in enumerate(ops):
            if isinstance(inner, t.Yield):
                return [self._result(_value(found[v]), v) for v in inner.values]
            found[inner.results[0]] = self._op(inner, [found[v] for v in inner.operands])
            for states in functions:
                self._apply(states, ops[: place + 1], found)
            for states in functions:
                if self._choose(states, ops[chosen_until : place + 1][-states.function.count :], found):
                    chosen_until = place + 1
                    break
        raise Undecided("a map without an end")

    def _choose(self, states: BoundedStates, ops: Sequence[Operation], found: dict[object, Scalar]) -> bool:
        """Whether ops select one of two states under a bound, value by value; then what they make."""
        selects = [op for op in ops if isinstance(op, tile.Select)]
        kinds = [v.type for v in states.function.arguments[: states.function.count]]
        if len(selects) < len(kinds) or [op.result.type for op in selects] != kinds:
            return False
        bounds = found[selects[0].cond]
        if not isinstance(bounds, Bounds) or any(op.cond != selects[0].cond for op in selects):
            return False
        then, otherwise = (tuple(op.operands[i] for op in selects) for i in (1, 2))
        if bounds.decided and {(states, then), (states, otherwise)}.isdisjoint(self.made):
            return False
        if (states, then) in self.applied:
            first = states.joined(*self.applied[states, then], bounds.atoms)
        else:
            first = self._read(states, then, found)
        made = states.chosen(bounds, first, self._read(states, otherwise, found))
        self._made(states, made, tuple(op.result for op in selects), found)
        return True

    def _read(self, states: BoundedStates, values: tuple[SSAValue, ...], found: dict[object, Scalar]) -> BoundedState:
        """A state, of which these are the values."""
        made = self.made.get((states, values))
        return states.read([_value(found[v]) for v in values]) if made is None else made

    def _made(
        self, states: BoundedStates, state: BoundedState, values: Sequence[SSAValue], found: dict[object, Scalar]
    ) -> None:
        """Values are those of a state, written where something reads one of them."""
        self.made[states, tuple(values)] = state
        written = StateValues(states, state)
        found.update((v, StateValue(written, i)) for i, v in enumerate(values))

    def _apply(self, states: BoundedStates, ops: Sequence[Operation], found: dict[object, Scalar]) -> None:
        """What ops make that are a function's on two states."""
        function = states.function

        def is_outside(value: SSAValue, name: str) -> bool:
            held = found[value]
            return isinstance(held, GuardedTerms) and bool((held.terms == key("symbol", name)).all())

        applied = function.applied(ops, is_outside)
        if applied is not None:
            arguments, made = tuple(applied[0]), tuple(applied[1])
            parts = arguments[: function.count], arguments[function.count :]
            sides = self._read(states, parts[0], found), self._read(states, parts[1], found)
            self._made(states, states.joined(*sides), made, found)
            self.applied[states, made] = sides

    def _result(self, value: GuardedTerms, of: SSAValue) -> GuardedTerms:
        """A running state beyond the domain is the identity; in a network it is a number like others."""
        if self.function == SORTS:
            return value.folded(self.arithmetic, tile_type(of).element)
        return weighed(self.arithmetic.group(self.function, tile_type(of).element), value) if self.function else value

    def _op(self, op: Operation, args: list[Scalar]) -> Scalar:
        match op:
            case t.Predicate():
                return self.resolved(self.integers.bounds(op.expr.expr))
            case tile.ScalarExpr():
                return GuardedTerms(self.integers(op.expr.expr).fingerprints)
            case tile.Constant():
                return GuardedTerms(constant_terms(op, 2))
            case tile.Cast() if self.moves:
                cast = partial(self.widened.cast, source=tile_type(op.x).element, target=op.dtype)
                return element_wise(cast, [_value(args[0])])
            case tile.Select() if isinstance(args[0], Bounds):
                return chosen(args[0], _value(args[1]), _value(args[2]))
            case t.Fma() if self.contracts:
                a, b, c = map(_value, args)
                return product_added(self.arithmetic, a, b, c)
            case tile.Binary() if self.contracts and op.fn.data is BinaryFn.ADD:
                a, b = map(_value, args)
                return combined(self.arithmetic.group("sum", tile_type(op.a).element), a, b)
            case tile.Binary() if str(op.fn.data) == self.function:
                a, b = map(_value, args)
                return combined(self.arithmetic.group(self.function, tile_type(op.a).element), a, b)
            case _:
                return element_wise(lambda *terms: computed(self.arithmetic, op, list(terms)), list(map(_value, args)))


def _value(scalar: Scalar) -> GuardedTerms:
    if isinstance(scalar, GuardedTerms):
        return scalar
    if isinstance(scalar, StateValue):
        return scalar.of.written[scalar.place]
    if not scalar.decided:
        raise Undecided("a predicate as a value")
    true, false = (fingerprints(constant(b, bool_)) for b in (True, False))
    return GuardedTerms(np.where(scalar.mask, true, false))
