"""Device memory of our own, for callers without a tensor library: the command line, tests, benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.dtypes import DType
from tilewright.runtime.arguments import compact
from tilewright.runtime.driver import LEGACY_STREAM, Driver


@dataclass(frozen=True)
class DeviceKind:
    """The kind of device of an array, as in PyTorch."""

    type: str
    index: int


class DeviceArray:
    """A row-major array on one device; an argument of ``Program.launch``. Freed by ``free`` or a ``with`` block.

    It has what launches read of a PyTorch tensor, so that they take the same way.
    """

    is_cuda = True

    def __init__(self, driver: Driver, shape: Sequence[int], dtype: DType, device: int = 0) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = DeviceKind("cuda", device)
        self.size_bytes = prod(self.shape) * dtype.bytes
        self._strides = compact(self.shape)
        self._driver = driver
        self._address = driver.allocate(self.size_bytes, LEGACY_STREAM) if self.size_bytes else 0

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def is_neg(self) -> bool:
        """As for PyTorch's views whose elements are negated lazily."""
        return False

    def upload(self, data: bytes) -> None:
        """Fill with ``size_bytes`` bytes from the host."""
        assert len(data) == self.size_bytes
        if data:
            self._driver.upload(self._address, data)

    def download(self) -> bytes:
        """The bytes, after all work queued on the legacy stream."""
        return self._driver.download(self._address, self.size_bytes) if self.size_bytes else b""

    def free(self) -> None:
        if self._address:
            self._driver.free(self._address, LEGACY_STREAM)
            self._address = 0

    def __enter__(self) -> DeviceArray:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
