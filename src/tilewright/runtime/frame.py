"""The parameter buffer of a program: every value its kernels read, at fixed addresses.

    | tensor maps, 128 bytes each | tensor addresses | scalars of the call | other pointers | constants |

A kernel's parameter array (the ``void**`` of a launch) points into this block. Tensor addresses lie side by side, and
so do the call's scalars: a launch rewrites each group with one ``struct`` call.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import partial

_MAP_BYTES = 128
_MAP_ALIGN_BYTES = 64  # CUtensorMap: cuda.h
_QWORD = struct.Struct("<q")


class Frame:
    """A buffer for ``maps`` descriptors, ``tensors`` addresses, dynamic scalars packed by ``scalar_format`` (8 bytes
    each), and up to ``extra`` further values of 8 bytes."""

    def __init__(self, maps: int, tensors: int, scalar_format: str, extra: int) -> None:
        addresses, scalars = struct.Struct(f"<{tensors}Q"), struct.Struct(f"<{scalar_format}")
        self._tensors_at = maps * _MAP_BYTES
        self._scalars_at = self._tensors_at + addresses.size
        self._next = self._scalars_at + scalars.size
        self._buffer = ctypes.create_string_buffer(self._next + extra * 8 + _MAP_ALIGN_BYTES)
        start = ctypes.addressof(self._buffer)
        self._base = -start % _MAP_ALIGN_BYTES  # offset of the aligned block
        self._address = start + self._base
        self._arrays: list[ctypes.Array[ctypes.c_void_p]] = []
        self.write_tensors = partial(addresses.pack_into, self._buffer, self._base + self._tensors_at)
        self.write_scalars = partial(scalars.pack_into, self._buffer, self._base + self._scalars_at)

    # -- layout, while a plan is built --------------------------------------------------------------------------------

    def tensor_map(self, slot: int) -> int:
        """Offset of a descriptor."""
        return slot * _MAP_BYTES

    def tensor(self, position: int) -> int:
        """Offset of a tensor's address."""
        return self._tensors_at + position * 8

    def scalar(self, position: int) -> int:
        """Offset of a scalar of the call."""
        return self._scalars_at + position * 8

    def reserve(self, value: int = 0) -> int:
        """Offset of 8 further bytes, holding ``value`` as a signed integer (its low half serves 32-bit parameters)."""
        offset = self._next
        self._next += 8
        self.write(offset, value)
        return offset

    def parameters(self, offsets: Sequence[int]) -> int:
        """Address of a parameter array whose entries point at ``offsets``; 0 for a kernel without parameters."""
        if not offsets:
            return 0
        array = (ctypes.c_void_p * len(offsets))(*(self._address + o for o in offsets))
        self._arrays.append(array)
        return ctypes.addressof(array)

    # -- values -------------------------------------------------------------------------------------------------------

    def write(self, offset: int, value: int) -> None:
        _QWORD.pack_into(self._buffer, self._base + offset, value)

    def write_map(self, slot: int, encoded: bytes) -> None:
        start = self._base + slot * _MAP_BYTES
        self._buffer[start : start + _MAP_BYTES] = encoded

    def read(self, offset: int, size: int) -> bytes:
        """Bytes as a kernel would see them."""
        return self._buffer.raw[self._base + offset : self._base + offset + size]
