"""Last accesses to each element of a tensor: races in global memory, found while a kernel runs.

Between two barriers a CTA's accesses are unordered; an *epoch* numbers the intervals between barriers and is unique
over the whole run. Two accesses of one element race if at least one writes, different threads made them, and no barrier
lies between. Accesses of different programs are never ordered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.simulate.symbols import Array

_NOBODY, _SEVERAL = -1, -2


@dataclass(frozen=True)
class AccessConflict:
    """Access ``index`` of the op at hand conflicts with what ``other`` did before; -1 where several did."""

    index: int
    other: int
    wrote: bool


class GlobalShadow:
    """One tensor that the kernel stores to: last writer, reader and adder of each element.

    ``instance`` numbers the executions of a program; accesses of different instances are never ordered.
    """

    def __init__(self, shape: tuple[int, ...]):
        shape = shape or (1,)
        self._writer = np.full(shape, _NOBODY, np.int32)
        self._write_epoch = np.full(shape, -1, np.int64)
        self._write_instance = np.full(shape, _NOBODY, np.int32)
        self._reader = np.full(shape, _NOBODY, np.int32)
        self._read_epoch = np.full(shape, -1, np.int64)
        self._read_instance = np.full(shape, _NOBODY, np.int32)
        self._adder = np.full(shape, _NOBODY, np.int32)

    def write(self, where: tuple[Array, ...], who: Array, epoch: int, instance: int) -> AccessConflict | None:
        """Record plain stores; the first conflict with another store, a read or an atomic add, if any."""
        writer, reader, adder = self._writer[where], self._reader[where], self._adder[where]
        by_write = self._unordered(self._write_instance, self._write_epoch, writer, where, who, epoch, instance)
        by_read = self._unordered(self._read_instance, self._read_epoch, reader, where, who, epoch, instance)
        self._writer[where] = who
        self._write_epoch[where] = epoch
        self._write_instance[where] = instance
        return (
            _first(by_write, writer, True)
            or _first(by_read, reader, False)
            or _first(adder != _NOBODY, adder, True)
            or _first(self._writer[where] != who, self._writer[where], True)
        )

    def read(self, where: tuple[Array, ...], who: Array, epoch: int, instance: int) -> AccessConflict | None:
        """Record loads; the first conflict with a store or an atomic add, if any."""
        writer, reader, adder = self._writer[where], self._reader[where], self._adder[where]
        by_write = self._unordered(self._write_instance, self._write_epoch, writer, where, who, epoch, instance)
        other_instance = (self._read_instance[where] != instance) & (reader != _NOBODY)
        other_thread = (self._read_epoch[where] == epoch) & (reader != who)
        self._reader[where] = who
        self._read_instance[where] = instance
        self._read_epoch[where] = epoch
        several = other_instance | other_thread | (self._reader[where] != who)
        index = tuple(w[several] for w in where)
        self._reader[index] = _SEVERAL
        self._read_instance[tuple(w[other_instance] for w in where)] = _SEVERAL
        return _first(by_write, writer, True) or _first(adder != _NOBODY, adder, True)

    def add(self, where: tuple[Array, ...], who: Array) -> AccessConflict | None:
        """Record atomic adds, which agree with each other but with no plain access."""
        writer, reader = self._writer[where], self._reader[where]
        self._adder[where] = who
        return _first(writer != _NOBODY, writer, True) or _first(reader != _NOBODY, reader, False)

    def _unordered(
        self,
        instances: Array,
        epochs: Array,
        last: Array,
        where: tuple[Array, ...],
        who: Array,
        epoch: int,
        instance: int,
    ) -> Array:
        elsewhere = (instances[where] != instance) & (last != _NOBODY)
        return elsewhere | ((epochs[where] == epoch) & (last != who))


def _first(clash: Array, other: Array, wrote: bool) -> AccessConflict | None:
    if not clash.any():
        return None
    index = int(clash.argmax())
    return AccessConflict(index, int(other[index]), wrote)
