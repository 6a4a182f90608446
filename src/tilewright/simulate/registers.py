"""A group of threads' register buffers; reading an element that was never written is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.simulate.report import refuse
from tilewright.simulate.symbols import Array, Value
from tilewright.simulate.values import register_dtype
from tilewright.transport.dialect import Registers, TransportOp

ALL = slice(None)


@dataclass(eq=False)
class RegisterBuffer:
    """``data[thread, register]``; ``written`` says which elements have a value, None when all have."""

    hint: str
    dtype: DType
    data: Array
    written: Array | None
    first_thread: int
    touched: bool = False  # by ordinary ops since the last wgmma.fence
    group: Array | None = None  # for each register the wgmma group that uses it, 0 for none

    @staticmethod
    def declare(op: Registers, first_thread: int, threads: int) -> RegisterBuffer:
        """An undefined buffer. Its registers held other values before, so a wgmma that uses them needs a
        wgmma.fence."""
        kind = op.buffer.type
        shape = (threads, kind.count.data)
        dtype = kind.dtype.dtype
        data, written = np.zeros(shape, register_dtype(dtype)), np.zeros(shape, np.bool_)
        return RegisterBuffer(op.hint.data, dtype, data, written, first_thread, touched=True)

    @property
    def count(self) -> int:
        return self.data.shape[1]

    def uniform(self, op: TransportOp) -> int:
        """Register 0, an integer that all threads hold; refuses (SIM021) different ones."""
        self.require(op, index=np.zeros(1, np.int64))
        values = self.data[:, 0]
        if (values != values[0]).any():
            thread = int((values != values[0]).argmax())
            refuse(
                op,
                "SIM021",
                found=f"{int(values[thread])} in thread {thread + self.first_thread}, {int(values[0])} in the first",
                required="one integer for all threads that take the same way",
            )
        return int(values[0])

    def rows(self, first: int, count: int) -> RegisterBuffer:
        """The same registers of a subset of the threads."""
        part = slice(first, first + count)
        written = None if self.written is None else self.written[part]
        return RegisterBuffer(self.hint, self.dtype, self.data[part], written, self.first_thread + first)

    def touch(self, op: TransportOp, registers: Array | slice = ALL) -> None:
        """Record an ordinary read or write of ``registers``; refuses those that a wgmma in flight uses."""
        self.touched = True
        if self.group is not None and self.group[registers].any():
            refuse(
                op,
                "SIM016",
                found=f"buffer {self.hint!r}, used by wgmma group {int(self.group[registers].max())}",
                required="a wgmma_wait that retires the group first",
            )

    def hold(self, registers: slice, group: int) -> None:
        """Mark ``registers`` as used by wgmma group ``group`` until it retires."""
        if self.group is None:
            self.group = np.zeros(self.count, np.int64)
        self.group[registers] = group

    def retire(self, group: int) -> None:
        """Release the registers of all groups up to ``group``."""
        if self.group is not None:
            self.group[self.group <= group] = 0

    def require(self, op: TransportOp, mask: Array | None = None, index: Array | None = None) -> None:
        """Refuse to read elements that were never written; ``mask`` selects the threads and registers to check."""
        if self.written is None:
            return
        written = self.written if index is None else self.written[:, index]
        missing = ~written if mask is None else mask & ~written
        if missing.any():
            thread, register = (int(x) for x in np.argwhere(missing)[0])
            register = register if index is None else int(index[register])
            refuse(
                op,
                "SIM003",
                found=f"register {register} of buffer {self.hint!r} in thread {self.first_thread + thread}",
                required="a write before the first read",
                help="write a start value, or guard the read by the condition of the write",
            )

    def wrote(self, mask: Array | None = None, registers: Array | None = None) -> None:
        """Mark as defined: the elements of ``mask``, or ``registers`` of every thread, or everything."""
        if self.written is None:
            return
        if mask is not None:
            self.written |= mask
        else:
            self.written[:, slice(None) if registers is None else registers] = True
        if self.written.all():
            self.written = None

    def spoil(self, registers: Array) -> None:
        """Mark ``registers`` of every thread as undefined."""
        if len(registers):
            self.written = np.ones(self.data.shape, np.bool_) if self.written is None else self.written
            self.written[:, registers] = False


def masked(guard: Value, shape: tuple[int, int]) -> Array | None:
    """A guard as a mask over threads and registers; None when it holds everywhere."""
    if isinstance(guard, np.ndarray):
        full = np.broadcast_to(guard, shape).astype(np.bool_)
        return None if full.all() else full
    return None if guard else np.zeros(shape, np.bool_)
