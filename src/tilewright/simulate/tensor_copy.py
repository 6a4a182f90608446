"""Tensor copies decoded from the arguments of ``cuTensorMapEncodeTiled``: which element of a box lies at which byte.

Source: CUDA Driver API, cuTensorMapEncodeTiled; PTX ISA 9.1, 5.5 (tensors, boxes, swizzling modes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.simulate.arguments import BoundTensor
from tilewright.simulate.report import refuse
from tilewright.simulate.symbols import Array, Symbols
from tilewright.transport.asynchronous import TensorMap

_ELEMENT_BYTES = {
    0: 1,
    1: 2,
    2: 4,
    3: 4,
    4: 8,
    5: 8,
    6: 2,
    7: 4,
    8: 8,
    9: 2,
    10: 4,
    11: 4,
    12: 4,
}  # CUtensorMapDataType
_SWIZZLE_BITS = {0: 0, 1: 1, 2: 2, 3: 3}  # CU_TENSOR_MAP_SWIZZLE_NONE, 32B, 64B, 128B


@dataclass(frozen=True)
class Encoded:
    """A tensor map at launch; dimensions innermost first."""

    op: TensorMap
    tensor: BoundTensor
    base_bytes: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_bytes: int

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in shared memory."""
        return int(np.prod(self.box)) * self.element_bytes

    def places(self, start: Array | tuple[int, ...], offset: int) -> tuple[Array, Array, Array]:
        """For a box at ``start``: byte addresses of its elements in shared memory, their bytes in the tensor, modulo
        2^64 as addresses are, and which of them lie inside of it."""
        grid = np.indices(self.box[::-1]).reshape(len(self.box), -1)[::-1]  # innermost varies fastest
        inside = np.ones(grid.shape[1], np.bool_)
        source = np.full(grid.shape[1], self.base_bytes, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.dims, self.strides_bytes, strict=True)):
            coordinate = grid[axis] + int(start[axis])
            inside &= (coordinate >= 0) & (coordinate < extent)
            source += coordinate * stride
        linear: Array = np.arange(len(source)) * self.element_bytes
        return swizzled(offset + linear, _SWIZZLE_BITS[self.op.numbers.swizzle]), source, inside


def swizzled(addresses: Array, bits: int) -> Array:
    """Byte addresses with bits 4 and up exclusive-ored by the ``bits`` bits from 7 (PTX ISA, swizzling modes)."""
    return addresses ^ ((addresses >> 3) & (((1 << bits) - 1) << 4))


def encode(op: TensorMap, tensor: BoundTensor, symbols: Symbols) -> Encoded:
    """The map of a launch; SIM019 if it is not one the hardware has."""
    numbers = op.numbers
    element, box = _ELEMENT_BYTES[numbers.data_type], numbers.box
    dims = tuple(map(symbols.uniform, numbers.dims))
    strides = (element, *map(symbols.uniform, numbers.strides_bytes))
    base = symbols.uniform(numbers.address) - address_of(tensor.array)
    wrong = [s for s in strides[1:] if s % 16] or [n for n in box if not 1 <= n <= 256]
    if wrong or numbers.swizzle not in _SWIZZLE_BITS or element != tensor.array.itemsize:
        refuse(
            op,
            "SIM019",
            found=f"strides {list(strides)}, box {list(box)}, swizzle {numbers.swizzle:d}, elements of {element} bytes",
            required="strides of 16 bytes, boxes of 1 to 256 elements, the tensor's element size",
        )
    return Encoded(op, tensor, base, dims, strides, box, element)


def address_of(array: Array) -> int:
    """The address of an array's first element."""
    return int(array.__array_interface__["data"][0])


def indices(tensor: BoundTensor, source: Array) -> tuple[Array, ...] | None:
    """Coordinates of the elements at byte offsets ``source`` of the tensor; None if one is no element of it. Where
    several elements of an input share a place (sliding windows, repeated rows), it is any of them."""
    shape, strides = tensor.array.shape, tensor.array.strides
    found = [np.zeros_like(source) for _ in shape]
    reach = tensor.array.itemsize
    descending: list[int] = []
    for dim in sorted((d for d, extent in enumerate(shape) if extent > 1), key=lambda d: strides[d]):
        if strides[dim] < reach:  # elements interleave or share their place: an offset alone doesn't say which it is
            return _looked_up(tensor, source)
        reach += strides[dim] * (shape[dim] - 1)
        descending.insert(0, dim)
    rest = source
    for dim in descending:
        found[dim] = rest // strides[dim]
        rest = rest - found[dim] * strides[dim]
        if ((found[dim] < 0) | (found[dim] >= shape[dim])).any():
            return None
    return None if rest.any() else tuple(found)


def _looked_up(tensor: BoundTensor, source: Array) -> tuple[Array, ...] | None:
    offsets, order = tensor.elements
    at = np.minimum(np.searchsorted(offsets, source), len(offsets) - 1)
    return None if (offsets[at] != source).any() else np.unravel_index(order[at], tensor.array.shape)
