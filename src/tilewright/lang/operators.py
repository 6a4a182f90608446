"""Operators on traced values: each records an operation; a user's Python and NumPy numbers are taken as they are."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from typing import Any, NoReturn

from tilewright.diag import type_shown
from tilewright.lang import arithmetic
from tilewright.lang.arithmetic import Number, Operand
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.lang.powers import power
from tilewright.lang.recorder import Node, Recorder
from tilewright.lang.source_locations import refuse
from tilewright.lang.traced import Traced


class Operators(Traced):
    """Arithmetic and comparisons, recorded through ``_recorder``."""

    __slots__ = ()
    _recorder: Recorder

    @abstractmethod
    def _operand(self) -> Operand:
        """The recorded value of an operand."""

    @abstractmethod
    def _tile(self, node: Node) -> Any:
        """A recorded result as the user's value."""

    def _binary(self, fn: BinaryFn, other: object, *, swapped: bool = False) -> Any:
        operands = self._with(other, fn, swapped=swapped)
        if operands is None:
            return NotImplemented
        return self._tile(arithmetic.binary(self._recorder, fn, *operands))

    def _power(self, other: object, *, swapped: bool = False) -> Any:
        operands = self._with(other, "**", swapped=swapped)
        return NotImplemented if operands is None else self._tile(power(self._recorder, *operands))

    def _with(self, other: object, name: str, *, swapped: bool) -> tuple[Operand, Operand] | None:
        """The operands of an operator in order; None where Python should try ``other``'s operator."""
        right = operand_of(other)
        if right is None and swapped:  # nobody else is left to ask
            refuse(
                "LNG023",
                found=f"{name} of {type_shown(other)} and {type_shown(self)}",
                required="tiles, fragments, scalars or numbers",
                help="numbers of Python and NumPy are values by themselves; load tensors by indexing them first",
            )
        if right is None:
            return None
        left = self._operand()
        return (right, left) if swapped else (left, right)

    def _compare(self, fn: CompareFn, other: object) -> Any:
        right = operand_of(other)
        if right is None:
            refuse(
                "LNG023",
                found=f"a comparison of {type_shown(self)} with {type_shown(other)}",
                required="tiles, fragments, scalars or numbers",
                help="compare with a number or a tile; test Python objects with `is`",
            )
        return self._tile(arithmetic.compare(self._recorder, fn, self._operand(), right))

    def _unary(self, fn: UnaryFn) -> Any:
        return self._tile(arithmetic.unary(self._recorder, fn, self._operand()))

    def __add__(self, other: object) -> Any:
        return self._binary(BinaryFn.ADD, other)

    def __radd__(self, other: object) -> Any:
        return self._binary(BinaryFn.ADD, other, swapped=True)

    def __sub__(self, other: object) -> Any:
        return self._binary(BinaryFn.SUB, other)

    def __rsub__(self, other: object) -> Any:
        return self._binary(BinaryFn.SUB, other, swapped=True)

    def __mul__(self, other: object) -> Any:
        return self._binary(BinaryFn.MUL, other)

    def __rmul__(self, other: object) -> Any:
        return self._binary(BinaryFn.MUL, other, swapped=True)

    def __truediv__(self, other: object) -> Any:
        return self._binary(BinaryFn.DIV, other)

    def __rtruediv__(self, other: object) -> Any:
        return self._binary(BinaryFn.DIV, other, swapped=True)

    def __floordiv__(self, other: object) -> Any:
        return self._binary(BinaryFn.FLOORDIV, other)

    def __rfloordiv__(self, other: object) -> Any:
        return self._binary(BinaryFn.FLOORDIV, other, swapped=True)

    def __mod__(self, other: object) -> Any:
        return self._binary(BinaryFn.MOD, other)

    def __rmod__(self, other: object) -> Any:
        return self._binary(BinaryFn.MOD, other, swapped=True)

    def __and__(self, other: object) -> Any:
        return self._binary(BinaryFn.AND, other)

    def __rand__(self, other: object) -> Any:
        return self._binary(BinaryFn.AND, other, swapped=True)

    def __or__(self, other: object) -> Any:
        return self._binary(BinaryFn.OR, other)

    def __ror__(self, other: object) -> Any:
        return self._binary(BinaryFn.OR, other, swapped=True)

    def __xor__(self, other: object) -> Any:
        return self._binary(BinaryFn.XOR, other)

    def __rxor__(self, other: object) -> Any:
        return self._binary(BinaryFn.XOR, other, swapped=True)

    def __lshift__(self, other: object) -> Any:
        return self._binary(BinaryFn.SHL, other)

    def __rlshift__(self, other: object) -> Any:
        return self._binary(BinaryFn.SHL, other, swapped=True)

    def __rshift__(self, other: object) -> Any:
        return self._binary(BinaryFn.SHR, other)

    def __rrshift__(self, other: object) -> Any:
        return self._binary(BinaryFn.SHR, other, swapped=True)

    def __pow__(self, other: object) -> Any:
        return self._power(other)

    def __rpow__(self, other: object) -> Any:
        return self._power(other, swapped=True)

    def __matmul__(self, other: object) -> NoReturn:
        refuse("LNG023", found="@", required="a listed operation", help="write tw.dot(a, b)")

    __rmatmul__ = __matmul__

    def __neg__(self) -> Any:
        return self._unary(UnaryFn.NEG)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._unary(UnaryFn.ABS)

    def __invert__(self) -> Any:
        return self._unary(UnaryFn.NOT)

    def __lt__(self, other: object) -> Any:
        return self._compare(CompareFn.LT, other)

    def __le__(self, other: object) -> Any:
        return self._compare(CompareFn.LE, other)

    def __gt__(self, other: object) -> Any:
        return self._compare(CompareFn.GT, other)

    def __ge__(self, other: object) -> Any:
        return self._compare(CompareFn.GE, other)

    def __eq__(self, other: object) -> Any:
        return self._compare(CompareFn.EQ, other)

    def __ne__(self, other: object) -> Any:
        return self._compare(CompareFn.NE, other)

    __hash__ = Traced.__hash__


def operand_of(value: object) -> Operand | None:
    """The recorded value of a user's operand; None if it is not a number or value."""
    if isinstance(value, Operators):
        return value._operand()  # pyright: ignore[reportPrivateUsage] - proxies of one file
    return number_of(value)


def number_of(value: object) -> Number | None:
    """A Python number, from Python's or NumPy's; of a subclass of int a plain one."""
    if isinstance(value, (bool, float)):
        return value
    if type(value).__name__ in ("bool", "bool_") and hasattr(value, "item"):  # NumPy's bool is no number to Python
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None
