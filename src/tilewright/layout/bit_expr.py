"""F2-linear maps as integer expressions: fields and sums where output bits are disjoint, xor only where they
overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.base.expr import Expr, expr


@dataclass(frozen=True)
class BitField:
    """``bits`` input bits taken from ``value``, lowest first; ``bounded`` when ``value < 2**bits`` is known."""

    value: Expr
    bits: int
    bounded: bool


@dataclass(frozen=True)
class _BitRun:
    """Consecutive bits of one field, each worth twice the one before: ``((value // 2^start) % 2^length) * worth``."""

    term: Expr
    support: int


def linear_expr(columns: Sequence[int], fields: Sequence[BitField]) -> Expr:
    """The value ``xor of columns[i]`` over the set bits i of the fields, which lie one after the other.

    Runs of bits become one field each; runs whose output bits are disjoint are added, the others are xored first.
    """
    runs: list[_BitRun] = []
    position = 0
    for field in fields:
        runs += _field_runs(columns[position : position + field.bits], field)
        position += field.bits
    return sum((_joined(group) for group in _meeting(runs)), expr(0))


def _field_runs(columns: Sequence[int], field: BitField) -> list[_BitRun]:
    runs: list[_BitRun] = []
    start = 0
    while start < len(columns):
        worth = support = columns[start]
        length = 1
        while worth and start + length < len(columns):
            column = columns[start + length]
            # a doubled column whose bits collide with the run's would carry instead of xor
            if column != worth << length or column & support:
                break
            support |= column
            length += 1
        if worth:
            value = field.value // (1 << start)
            if not (field.bounded and start + length == field.bits):
                value = value % (1 << length)
            runs.append(_BitRun(value * worth, support))
        start += length
    return runs


def _meeting(runs: list[_BitRun]) -> list[list[_BitRun]]:
    """Groups of runs that share output bits, directly or through others."""
    groups: list[tuple[int, list[_BitRun]]] = []
    for run in runs:
        support, members = run.support, [run]
        apart: list[tuple[int, list[_BitRun]]] = []
        for group in groups:
            if group[0] & support:
                support |= group[0]
                members = group[1] + members
            else:
                apart.append(group)
        groups = [*apart, (support, members)]
    return [members for _, members in groups]


def _joined(group: list[_BitRun]) -> Expr:
    return reduce(lambda a, b: a ^ b, (run.term for run in group))
