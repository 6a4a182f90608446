"""Shared memory of one CTA as bytes, with the last accesses to each of them and whether they happened before.

All buffers lie in one arena, so that buffers that overlap are seen to alias. Accesses come from threads (the generic
proxy) and from engines (tensor copies, wgmma: the async proxy); each must be ordered after those it conflicts with.
Access records are kept for cells of the smallest element's size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.simulate.clocks import CtaClocks
from tilewright.simulate.symbols import Array

_LANES = 32
_SEVERAL = -1


@dataclass(frozen=True)
class SharedConflict:
    """The access at position ``index`` conflicts with what ``other`` did."""

    index: int
    other: str
    unfenced: bool = False


class Arena:
    """``size`` bytes, watched in cells of ``cell`` bytes."""

    def __init__(self, size: int, cell: int, clocks: CtaClocks):
        self.bytes = np.zeros(size, np.uint8)
        self.cell, self.clocks = cell, clocks
        cells = -(-size // cell)
        self.written = np.zeros(cells, np.bool_)
        self._writer = np.zeros(cells, np.int32)
        self._write_time = np.zeros(cells, np.int32)
        warps = -(-clocks.threads // _LANES)
        self._readers = np.zeros((warps, cells), np.int32)  # time of a warp's last read; 0: none
        self._reader_lane = np.zeros((warps, cells), np.int8)
        self._adders = np.zeros((warps, cells), np.int32)  # time of a warp's last addition; 0: none
        self._engine_reads = np.zeros((len(clocks.engines), cells), np.int32)
        self._has_read = np.zeros(warps, np.bool_)  # rows of the above without an entry are not looked at
        self._has_added = np.zeros(warps, np.bool_)
        self._engine_has_read = np.zeros(len(clocks.engines), np.bool_)

    def cells(self, addresses: Array, size: int) -> tuple[Array, Array]:
        """The cells of elements of ``size`` bytes at ``addresses``, and for each cell the position of its element."""
        each = max(size // self.cell, 1)
        first = addresses // self.cell
        if each == 1:
            return first, np.arange(len(addresses))
        cells = (first[:, None] + np.arange(each)[None, :]).ravel()
        return cells, np.repeat(np.arange(len(addresses)), each)

    # -- threads --------------------------------------------------------------------------------------------------
    def write(self, cells: Array, who: Array) -> SharedConflict | None:
        """Threads ``who`` write; the first conflict."""
        known = self.clocks.known
        writers = self._unknown_writer(cells, _pick(known, who, self._writer.take(cells)))
        clash = writers or self._unknown_readers(cells, known, who) or self._unknown_adders(cells, who)
        self._written_by(cells, who, self.clocks.time[who])
        twice = self._writer[cells] != who
        return clash or (_clash(twice, f"thread {int(self._writer[cells][twice.argmax()])}") if twice.any() else None)

    def read(self, cells: Array, who: Array) -> SharedConflict | None:
        """Threads ``who`` read; the first conflict."""
        clash = self._unknown_writer(cells, _pick(self.clocks.known, who, self._writer.take(cells)))
        clash = clash or self._unknown_adders(cells, who)
        warp, lane, time = who // _LANES, (who % _LANES).astype(np.int8), self.clocks.time.take(who)
        self._has_read[warp] = True
        place = warp * self._readers.shape[1] + cells
        readers, lanes = self._readers.reshape(-1), self._reader_lane.reshape(-1)
        earlier, by = readers.take(place), lanes.take(place)
        lanes[place] = lane
        mixed = (lanes.take(place) != lane) | ((earlier > 0) & (by != lane))
        if mixed.any():
            lanes[place[mixed]] = _SEVERAL
        readers[place] = time
        return clash

    def add(self, cells: Array, who: Array) -> SharedConflict | None:
        """Threads ``who`` add, in any order among themselves; the first conflict with other accesses."""
        known = self.clocks.known
        clash = self._unknown_writer(cells, _pick(known, who, self._writer.take(cells)))
        clash = clash or self._unknown_readers(cells, known, who)
        self._has_added[who // _LANES] = True
        np.maximum.at(self._adders, (who // _LANES, cells), self.clocks.time[who])
        return clash

    # -- engines --------------------------------------------------------------------------------------------------
    def engine_read(self, cells: Array, rows: Array, column: int, time: int) -> SharedConflict | None:
        """An engine, started by threads ``rows``, reads until it reaches ``time``; the first conflict."""
        known, fenced = self.clocks.known[rows].min(axis=0), self.clocks.fenced[rows].min(axis=0)
        writer = self._writer[cells]
        clash = self._unknown_writer(cells, known[writer])
        generic = self.clocks.generic(writer)
        hidden = generic & (fenced[writer] < self._write_time[cells])
        if clash is None and hidden.any():
            clash = SharedConflict(int(hidden.argmax()), self.clocks.name(int(writer[hidden.argmax()])), unfenced=True)
        engine = column - self.clocks.engines.start
        self._engine_has_read[engine] = True
        self._engine_reads[engine, cells] = time
        return clash

    def engine_write(self, cells: Array, row: int, column: int, time: int) -> SharedConflict | None:
        """An engine, started by thread ``row``, writes until it reaches ``time``; the first conflict."""
        who = np.full(len(cells), row)
        known = self.clocks.known
        clash = self._unknown_writer(cells, known[row, self._writer[cells]])
        clash = clash or self._unknown_readers(cells, known, who)
        self._written_by(cells, np.full(len(cells), column), np.full(len(cells), time))
        return clash

    def copies_write(self, cells: Array, who: Array, column: int, time: int) -> SharedConflict | None:
        """The cp.async of threads ``who`` of a warp write until ``column`` reaches ``time``; the first conflict. Copies
        of one warp with no wait between them may complete in any order, so they conflict with each other too."""
        clash = self._unknown_writer(cells, self.clocks.known[who, self._writer[cells]])
        clash = clash or self._unknown_readers(cells, self.clocks.known, who)
        self._written_by(cells, np.full(len(cells), column), np.full(len(cells), time))
        return clash

    # -- what must be known ---------------------------------------------------------------------------------------
    def _unknown_writer(self, cells: Array, known: Array) -> SharedConflict | None:
        late = known < self._write_time.take(cells)
        if not late.any():
            return None
        index = int(late.argmax())
        return SharedConflict(index, f"{self.clocks.name(int(self._writer[cells[index]]))}, which wrote it")

    def _unknown_readers(self, cells: Array, known: Array, who: Array) -> SharedConflict | None:
        for warp in _rows(self._has_read):
            time = self._readers[warp, cells]
            if not time.any():
                continue
            lane = self._reader_lane[warp, cells].astype(np.int64)
            first = warp * _LANES
            last = min(first + _LANES, self.clocks.threads)
            one = known[who, np.minimum(first + np.maximum(lane, 0), last - 1)]
            everyone = known[:, first:last].min(axis=1)[who]
            late = time > np.where(lane == _SEVERAL, everyone, one)
            if late.any():
                index = int(late.argmax())
                reader = "several threads" if lane[index] == _SEVERAL else f"thread {first + int(lane[index])}"
                return SharedConflict(index, f"{reader}, which read it")
        for engine in _rows(self._engine_has_read):
            column = self.clocks.engines[engine]
            time = self._engine_reads[engine, cells]
            late = time > known[who, column]
            if late.any():
                return SharedConflict(int(late.argmax()), f"{self.clocks.name(column)}, which read it")
        return None

    def _unknown_adders(self, cells: Array, who: Array) -> SharedConflict | None:
        for warp in _rows(self._has_added):
            time = self._adders[warp, cells]
            if not time.any():
                continue
            first = warp * _LANES
            last = min(first + _LANES, self.clocks.threads)
            late = time > self.clocks.known[:, first:last].min(axis=1)[who]
            if late.any():
                return SharedConflict(int(late.argmax()), "several threads, which added to it")
        return None

    def _written_by(self, cells: Array, column: Array, time: Array) -> None:
        self._writer[cells] = column
        self._write_time[cells] = time
        self.written[cells] = True
        for table, used in (
            (self._readers, self._has_read),
            (self._adders, self._has_added),
            (self._engine_reads, self._engine_has_read),
        ):
            for row in _rows(used):
                table[row, cells] = 0


def _pick(table: Array, row: Array, column: Array) -> Array:
    """``table[row, column]``, indexed through the flattened table."""
    return table.reshape(-1).take(row * table.shape[1] + column)


def _rows(used: Array) -> list[int]:
    return np.flatnonzero(used).tolist()


def _clash(where: Array, other: str) -> SharedConflict:
    return SharedConflict(int(where.argmax()), f"{other}, which wrote it")
