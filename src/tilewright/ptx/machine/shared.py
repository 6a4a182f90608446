"""Shared memory of all instances of a batch, with shadow memory: last writer and readers of each granule, and
asynchronous accesses in flight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.ptx.machine.clocks import Clocks
from tilewright.ptx.machine.lanes import Lanes
from tilewright.ptx.machine.scratch import ArrayPool
from tilewright.ptx.opcodes.bit_vectors import UNSIGNED
from tilewright.ptx.opcodes.rows import Bits

RESERVED = 1024
"""Bytes at the start of each CTA's window that no variable takes, as on sm_90."""
RANK_SHIFT = 24
"""A shared address is the rank of the CTA in its cluster, and an offset of so many bits."""
Complain = Callable[[str, Bits, str], None]
"""Reports a fault: its code, the lanes, what happened."""


class SharedWindow:
    """``data[instance]`` are the bytes.

    Shadows count granules of ``grain`` bytes, the narrowest access of the kernel.
    """

    def __init__(self, lanes: Lanes, clocks: Clocks, size: int, grain: int, complain: Complain, scratch: ArrayPool):
        self.lanes, self.clocks, self.grain, self.complain = lanes, clocks, grain, complain
        self.size = RESERVED + size
        self.stride = -(-self.size // 1024) * 1024
        self.data = scratch.zeros("data", lanes.instances * self.stride, np.uint8)
        cells = self.data.size // grain
        clock = {n: scratch.zeros(n, cells, np.int32) for n in ("write_time", "read_time", "first_read_time")}
        thread = {
            n: scratch.zeros(n, cells, np.int16) for n in ("writer", "reader", "first_reader", "reading", "writing")
        }
        self.write_time, self.writer = clock["write_time"], thread["writer"]
        self.read_time, self.reader = clock["read_time"], thread["reader"]
        self.first_read_time, self.first_reader = clock["first_read_time"], thread["first_reader"]
        self.being_read, self.being_written = thread["reading"], thread["writing"]
        self.in_flight = False

    def locate(self, lanes: Bits, address: Bits, size: int) -> tuple[Bits, Bits, Bits]:
        """(position in ``data``, instance, which lanes are right) of ``size`` bytes at 32-bit shared addresses."""
        rank = address >> np.uint64(RANK_SHIFT)
        offset = (address & np.uint64((1 << RANK_SHIFT) - 1)).astype(np.int64)
        good = (rank < self.lanes.cluster_ctas) & (offset >= RESERVED) & (offset + size <= self.size)
        if not good.all():
            self.complain(
                "PTX010", lanes[~good], f"shared address {int(address[~good][0]):#x}, {size} bytes, of {self.size}"
            )
        aligned = offset % size == 0
        if not aligned.all():
            self.complain("PTX011", lanes[~aligned], f"shared address {int(address[~aligned][0]):#x}, {size} bytes")
        good &= aligned
        instance = self.lanes.instance[lanes]
        if self.lanes.cluster_ctas > 1:
            instance = np.where(
                good,
                self.lanes.mate(instance, np.minimum(rank, self.lanes.cluster_ctas - 1).astype(np.int64)),
                instance,
            )
        return np.where(good, instance * self.stride + offset, instance * self.stride), instance, good

    def load(self, lanes: Bits, address: Bits, count: int, size: int) -> list[Bits]:
        """``count`` elements of ``size`` bytes for each lane."""
        at, instance, good = self.locate(lanes, address, count * size)
        self.note_read(lanes, at, instance, count * size)
        view = self.data.view(UNSIGNED[8 * size])
        first = at // size
        return [
            np.where(good, view[first + i], 0).astype(view.dtype) if not good.all() else view[first + i]
            for i in range(count)
        ]

    def store(self, lanes: Bits, address: Bits, values: list[Bits], size: int) -> None:
        """Write ``count`` elements of ``size`` bytes for each lane; where addresses collide, the last lane's value
        stays."""
        at, instance, good = self.locate(lanes, address, len(values) * size)
        if not good.all():
            lanes, at, instance = lanes[good], at[good], instance[good]
            values = [np.broadcast_to(v, good.shape)[good] for v in values]
        self.note_write(lanes, at, instance, len(values) * size)
        view = self.data.view(UNSIGNED[8 * size])
        for i, value in enumerate(values):
            view[at // size + i] = value
            other = view[at // size + i] != value
            if other.any():
                self.complain("PTX012", lanes[other], "write of what another thread writes at the same time")

    # -- what the shadow says

    def note_read(self, lanes: Bits, at: Bits, instance: Bits, size: int) -> None:
        """Check and record reads of ``size`` bytes at positions: they must happen after the last write, and touch
        nothing in flight."""
        cell, lane, where = self._granules(at, size), lanes[:, None], instance[:, None]
        time, writer = self.write_time[cell], self.writer[cell]
        if not time.all():
            self.complain("PTX013", lanes[(time == 0).any(1)], "shared memory that nothing wrote")
        known = self.clocks.ordered(lane, writer, time, where)
        if not known.all() and not (known := known | (time == 0)).all():
            self.complain(
                "PTX012",
                lanes[~known.all(1)],
                f"read of what participant {int(writer[~known][0])} wrote, unordered",
            )
        if self.in_flight and (busy := self.being_written[cell]).any():
            self.complain("PTX012", lanes[busy.any(1)], "read of what an asynchronous copy is writing")
        who = np.broadcast_to(self.clocks.who[lane], cell.shape)
        fresh = self.first_read_time[cell] <= time
        self.first_read_time[cell[fresh]], self.first_reader[cell[fresh]] = self.clocks.now, who[fresh]
        self.read_time[cell], self.reader[cell] = self.clocks.now, who

    def _granules(self, at: Bits, size: int) -> Bits:
        """The cells [lane, granule] of ``size`` bytes at aligned positions: of two lanes all the same, or none."""
        return (at // self.grain)[:, None] + np.arange(size // self.grain)

    def _earlier(self) -> tuple[tuple[str, Bits, Bits], ...]:
        """(what was done, by whom, when) of the accesses that a write must happen after."""
        first, last = (self.first_reader, self.first_read_time), (self.reader, self.read_time)
        return ("wrote", self.writer, self.write_time), ("reads", *last), ("reads", *first)

    def note_write(self, lanes: Bits, at: Bits, instance: Bits, size: int) -> None:
        """Check and record writes: they must happen after every earlier access."""
        cell, lane, where = self._granules(at, size), lanes[:, None], instance[:, None]
        for did, thread, times in self._earlier():
            time, other = times[cell], thread[cell]
            known = self.clocks.ordered(lane, other, time, where)
            if not known.all() and not (known := known | (time == 0)).all():
                bad = int(other[~known][0])
                self.complain("PTX012", lanes[~known.all(1)], f"write of what participant {bad} {did}, unordered")
        if self.in_flight and (self.being_read[cell].any() or self.being_written[cell].any()):
            busy = (self.being_read[cell] > 0) | (self.being_written[cell] > 0)
            self.complain("PTX012", lanes[busy.any(1)], "write of what an asynchronous operation is using")
        self.write_time[cell], self.writer[cell] = self.clocks.now, self.clocks.who[lane]

    # -- asynchronous operations: footprints are cells of one instance

    def cells(self, instance: int, offset: Bits, size: int) -> Bits:
        """The cells that elements of ``size`` bytes at offsets of an instance's window take."""
        start = instance * self.stride // self.grain
        low, high = int(offset.min()), int(offset.max()) + size
        if high - low == len(offset) * size:
            return np.arange(start + low // self.grain, start + -(-high // self.grain))
        if size <= self.grain:
            return start + np.unique(offset // self.grain)
        return start + (offset[:, None] + np.arange(0, size, self.grain)).reshape(-1) // self.grain

    def begin_read(self, lane: int, instance: int, cell: Bits) -> None:
        """An asynchronous read issued by ``lane``."""
        time, writer = self.write_time[cell], self.writer[cell]
        lanes = np.array([lane])
        if not time.all():
            self.complain("PTX013", lanes, "an asynchronous operation reads shared memory that nothing wrote")
        known = self.clocks.ordered_fenced(lane, writer, time, instance)
        if not known.all() and not (known := known | (time == 0)).all():
            bad = int(writer[~known][0])
            self.complain(
                "PTX012",
                lanes,
                f"asynchronous read of what participant {bad} wrote, unordered or without proxy fence",
            )
        if self.being_written[cell].any():
            self.complain("PTX012", lanes, "an asynchronous operation reads what a copy is writing")
        self.being_read[cell] += 1
        self.in_flight = True

    def end_read(self, cell: Bits) -> None:
        """The asynchronous read is complete."""
        self.being_read[cell] -= 1

    def begin_write(self, lane: int, instance: int, cell: Bits) -> None:
        """Check and record an asynchronous write issued by ``lane``: all earlier accesses of the cells must happen
        before."""
        lanes = np.array([lane])
        for did, thread, times in self._earlier():
            time, other = times[cell], thread[cell]
            known = self.clocks.ordered(lane, other, time, instance)
            if not known.all() and not (known := known | (time == 0)).all():
                bad = int(other[~known][0])
                self.complain("PTX012", lanes, f"asynchronous write of what participant {bad} {did}, unordered")
        if self.being_read[cell].any() or self.being_written[cell].any():
            self.complain("PTX012", lanes, "an asynchronous copy writes what another asynchronous operation is using")
        self.being_written[cell] += 1
        self.in_flight = True

    def end_write(self, cell: Bits, column: int) -> None:
        """The asynchronous write is complete; its writer is an asynchronous column."""
        self.being_written[cell] -= 1
        self.write_time[cell], self.writer[cell] = self.clocks.now, column
