"""The bodies of maps and the element-wise ops of Tile IR: one reading for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import bool_
from tilewright.lang.enums import BinaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import tile_type
from tilewright.tile.scans import GROUPS
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.arithmetic import ElementFunctions, constant
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, fingerprints, key, term
from tilewright.validate.tile_to_transport.integers import Bounds, Integers
from tilewright.validate.tile_to_transport.states import StateFunction
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

Scalar: TypeAlias = GuardedTerms | Bounds
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


class Body:
    """A map's body at all registers of all threads at once."""

    def __init__(
        self,
        arithmetic: ElementFunctions,
        integers: Integers,
        resolved: Callable[[Bounds], Bounds],
        functions: Sequence[StateFunction],
        *,
        contracts: bool,
    ):
        """``functions`` are those of scans that are the user's."""
        self.arithmetic, self.integers, self.resolved, self.functions = arithmetic, integers, resolved, functions
        self.contracts = contracts
        """Each fma is a step of a product of matrices."""
        self.function = ""
        """Of a scan, whose states may be grouped in any way."""

    def run(self, op: t.Map, given: dict[object, Scalar]) -> list[GuardedTerms]:
        """The map's results. ``given`` holds its block's arguments and the kernel's scalars."""
        found = dict(given)
        combines = "" if op.combines is None else op.combines.data
        self.function = combines if combines in (*SCANS, SORTS) else ""
        ops = tuple(op.body.block.ops)
        for place, inner in enumerate(ops):
            if isinstance(inner, t.Yield):
                return [self._result(_value(found[v]), v) for v in inner.values]
            found[inner.results[0]] = self._op(inner, [found[v] for v in inner.operands])
            for function in self.functions if combines == USERS else ():
                self._apply(function, ops[: place + 1][-len(function.ops) :], found)
        raise Undecided("a map without an end")

    def _apply(self, function: StateFunction, ops: Sequence[Operation], found: dict[object, Scalar]) -> None:
        """What ops make that are a function's on two states."""

        def is_outside(value: SSAValue, name: str) -> bool:
            held = found[value]
            return isinstance(held, GuardedTerms) and bool((held.terms == key("symbol", name)).all())

        applied = function.applied(ops, is_outside) if len(ops) == len(function.ops) else None
        if applied is not None:
            states = [_value(found[v]) for v in applied[0]]
            for i, value in enumerate(applied[1]):
                found[value] = element_wise(function.value(i), states)

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
    if not scalar.decided:
        raise Undecided("a predicate as a value")
    true, false = (fingerprints(constant(b, bool_)) for b in (True, False))
    return GuardedTerms(np.where(scalar.mask, true, false))
