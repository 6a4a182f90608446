"""Axes that reshapes split or merge: the digits of the parts are those of the whole, so that nothing moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from xdsl.ir import SSAValue

from tilewright.schedule.distribute import Digits, Distribution, InRegisters, InThreads, Mode
from tilewright.schedule.map_builder import ClassId
from tilewright.tile import dialect as tile

Parts = Mapping[ClassId, tuple[ClassId, ...]]
"""Classes by the one that they are the parts of, the slowest first."""


_KEPT = 8
"""The most parts of which a thread holds an element each."""


def parts_of(
    kernel: tile.Kernel,
    axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]],
    sizes: Mapping[ClassId, int],
    units: Iterable[ClassId | None],
    apart: Iterable[ClassId],
) -> Parts:
    """The classes that reshapes make of one other. A class is part of one whole, and no part is a whole; not those
    ``apart``, nor such that memory is contiguous along (``units``) and more than a vector lies behind each element."""
    found: dict[ClassId, tuple[ClassId, ...]] = {}
    units, refused = set(units), set(apart)
    for op in kernel.walk():
        if not isinstance(op, tile.Reshape):
            continue
        for sides in op.groups:
            old, new = (
                [c for d in dims if (c := axes_of[v][d]) is not None]
                for dims, v in zip(sides, (op.x, op.result), strict=True)
            )
            whole, parts = (old, new) if len(old) == 1 else (new, old)
            if len(whole) != 1 or len(parts) < 2 or found.get(whole[0]) == tuple(parts):
                continue
            taken = {c for w, p in found.items() for c in (w, *p)}
            if not taken.isdisjoint((*whole, *parts)) or not refused.isdisjoint((*whole, *parts)):
                continue
            inner = [prod(sizes[p] for p in parts[i + 1 :]) for i in range(len(parts))]
            if not any(p in units and n > _KEPT for p, n in zip(parts, inner, strict=True)):
                found[whole[0]] = tuple(parts)
    return found


def merged_axis_of(parts: Parts) -> dict[ClassId, ClassId]:
    """The merged axis of each part."""
    return {part: whole for whole, found in parts.items() for part in found}


def register_axes(
    kernel: tile.Kernel,
    axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]],
    parts: Parts,
    sizes: Mapping[ClassId, int],
) -> dict[ClassId, int]:
    """Wholes of which each thread holds an element of every part, because a few parts are reduced: the number of
    parts."""
    along = {axes_of[op.x][op.axis.data] for op in kernel.walk() if isinstance(op, tile.Reduce)}
    slowest = {whole: found[0] for whole, found in parts.items()}
    return {w: sizes[p] for w, p in slowest.items() if p in along and sizes[p] <= _KEPT}


def unit_of(parts: Parts, sizes: Mapping[ClassId, int], unit: ClassId | None) -> tuple[ClassId | None, int]:
    """The class that is spread in the stead of one that an access is contiguous along, and the elements of it for each
    of the other: the whole, where a thread has all of the faster parts."""
    for whole, found in parts.items():
        if unit in found:
            inner = prod(sizes[p] for p in found[found.index(unit) + 1 :])
            return (whole, inner) if inner <= _KEPT else (None, 1)
    return unit, 1


def distribute_parts(
    parts: Parts,
    sizes: Mapping[ClassId, int],
    spread: Callable[[Parts], Distribution],
) -> Distribution:
    """The distribution that ``spread`` gives the classes that are not parts, extended to parts; wholes whose digits
    cannot be divided at the boundaries of their parts are distributed as separate classes."""
    while True:
        made = spread(parts)
        digits: list[tuple[ClassId, Digits]] = []
        uncut: set[ClassId] = set()
        for c, own in made.digits:
            digits.append((c, own))
            if c in parts:
                cut = _cut(own, [sizes[p] for p in parts[c]])
                if cut is None:
                    uncut.add(c)
                else:
                    digits += zip(reversed(parts[c]), cut, strict=True)
        if not uncut:
            return replace(made, digits=tuple(digits))
        parts = {whole: found for whole, found in parts.items() if whole not in uncut}


def _cut(digits: Digits, sizes: Sequence[int]) -> list[Digits] | None:
    """The digits of the parts of a class, the fastest first; None where a digit crosses a boundary and can't be
    divided."""
    left = list(digits.modes)
    found: list[Digits] = []
    for size in reversed(sizes[1:]):
        modes: list[Mode] = []
        reach = 1
        while reach < size and left:
            mode = left.pop(0)
            count = mode.count if isinstance(mode, InRegisters) else 2
            here = gcd(count, size // reach)
            if here < count and isinstance(mode, InThreads):
                return None
            if here < count:
                assert isinstance(mode, InRegisters)
                left.insert(0, replace(mode, count=count // here))
                mode = replace(mode, count=here)
                if reach * here != size:
                    return None
            modes.append(mode)
            reach *= here
        if reach != size:
            return None
        found.append(Digits(size, _framed(modes)))
    last = Digits(sizes[0], _framed(left))
    return [*found, last] if last.covered * prod(sizes[1:]) == digits.covered else None


def _framed(modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """The digits with a vector first and repeats last."""
    atoms = [m for m in modes if isinstance(m, InThreads) or m.atom]
    repeats = prod(m.count for m in modes if isinstance(m, InRegisters) and not m.atom)
    first = () if atoms and isinstance(atoms[0], InRegisters) else (InRegisters(1),)
    return (*first, *atoms, InRegisters(repeats, atom=False))
